"""Example reports for the documentation: `make docs` makes each by the commands that its page shows."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.docs_markdown import fence, join
from tools.docs_results import RESULTS, stored
from vflpriv.common.registry import find
from vflpriv.experiments.frontier.result import FrontierReport
from vflpriv.experiments.reproduce.result import Reproduction
from vflpriv.report.formats import Context

__all__ = ["EXAMPLES", "FOLDER", "STORED", "Example", "gallery_page", "write_gallery"]

FOLDER = "gallery"
"""Where the reports lie below the documentation's own folder."""

_VERDICTS = (0, 1, 3)
_ATTACK = """\
# attack.toml
[data]
name = "breast-cancer"
devices = 2

[engine]
name = "split"
rounds = 60
batch_size = 64

[attack]
attacks = ["label_norm", "label_direction", "label_batch"]
views = ["device(0)"]
seeds = 5

[attack.defences.marvell]
defence = "marvell"

[attack.defences.alibi]
label_protection = "alibi"
label_epsilon = 1.0
"""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A report, the files and commands that make it, and where they leave it."""

    key: str
    title: str
    shows: str
    commands: Sequence[str]
    report: str
    files: Mapping[str, str] = field(default_factory=dict)


EXAMPLES = (
    Example(
        key="demo",
        title="A claim that is violated",
        shows="Split learning whose gradients carry no noise. The labels are read off them.",
        commands=("vflpriv demo",),
        report="vflpriv-demo/report/report.html",
    ),
    Example(
        key="label-dp",
        title="A claim that holds",
        shows="The same system, whose labels are noised once before training.",
        commands=(
            "vflpriv init label-dp",
            "python train.py",
            "vflpriv audit --transcript transcript --ledger ledger.toml --out report",
        ),
        report="report/report.html",
    ),
    Example(
        key="theorem",
        title="A published theorem that fails",
        shows="DPZV with its clip exactly as printed, which does not bound the scalar that it should bound. The report "
        "has the input that shows it.",
        commands=("vflpriv audit papers --only dpzv-clip --out report",),
        report="report/report.html",
    ),
    Example(
        key="two-worlds",
        title="The same algorithm, made sound and measured",
        shows="Noise calibrated for all devices together, and trainings in two worlds that differ in one record.",
        commands=("vflpriv init engine", "vflpriv audit audit.toml --out report"),
        report="report/report.html",
    ),
    Example(
        key="attacks",
        title="Attacks and defences",
        shows="What three attacks gain with and without two defences, and which defence to take.",
        commands=("vflpriv attack attack.toml --out attacks",),
        report="attacks/attacks.html",
        files={"attack.toml": _ATTACK},
    ),
)
"""Reports that are made anew."""

STORED = {
    "reproduce-vimadmm-table-3": (
        "A paper's table, trained again",
        "Printed figures beside those that were reached.",
    ),
    "frontier-mnist-record": (
        "The best accuracy at a given ε",
        "What to use on MNIST where each record is protected.",
    ),
}
"""Committed results that are only drawn, with title and meaning."""


def gallery_page() -> str:
    """The page that shows all of them."""
    blocks = [
        "# Example reports",
        "Reports as the commands leave them. Each stands alone: one file, no server, nothing fetched. "
        "[How to read a report](reading-a-report.md) explains their parts.",
    ]
    for example in EXAMPLES:
        files = [fence("toml", text) for text in example.files.values()]
        blocks += [
            *_section(example.key, example.title, example.shows),
            *(*files, fence("sh", "\n".join(example.commands))),
        ]
    for name, (title, shows) in STORED.items():
        blocks += [*_section(name, title, shows), fence("sh", _result(name).command)]
    return join(*blocks)


def _section(key: str, title: str, shows: str) -> list[str]:
    link = f"{FOLDER}/{key}.html"
    frame = f'<iframe src="{link}" title="{title}" loading="lazy"></iframe>'
    return [f"## {title}", f'{shows} <a href="{link}">Open the report</a>.', frame]


def _result(name: str) -> Reproduction | FrontierReport:
    kind = Reproduction if name.startswith("reproduce-") else FrontierReport
    return stored(kind, RESULTS)[name]


def write_gallery(folder: Path, examples: Sequence[Example] = EXAMPLES, names: Sequence[str] = tuple(STORED)) -> None:
    """Make every report, and put it into this folder under its own name."""
    folder.mkdir(parents=True, exist_ok=True)
    for example in examples:
        with tempfile.TemporaryDirectory() as work:
            _make(example, Path(work))
            shutil.copy(Path(work) / example.report, folder / f"{example.key}.html")
    for name in names:
        result = _result(name)
        page = find("format", "html")().render(result, Context())
        (folder / f"{name}.html").write_text(page, encoding="utf-8")


def _make(example: Example, work: Path) -> None:
    """Run the commands in an empty folder. A verdict is no failure."""
    for name, text in example.files.items():
        (work / name).write_text(text, encoding="utf-8")
    quiet = {key: value for key, value in os.environ.items() if key != "GITHUB_STEP_SUMMARY"}
    for command in example.commands:
        program, *arguments = shlex.split(command)
        start = [sys.executable] if program == "python" else [sys.executable, "-m", program]
        done = subprocess.run([*start, *arguments], check=False, cwd=work, env=quiet, capture_output=True, text=True)
        if done.returncode not in _VERDICTS:
            raise RuntimeError(f"{example.key}: {command!r} ended with {done.returncode}: {done.stderr.strip()}")
