"""What the README shows of the program, made by the program: `python -m tools.docs_readme` rewrites these parts of it.

Between the marks `trace` stands what `vflpriv trace` says of the script above it, between the marks `found` a table of
findings, each with its command. No figure is typed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from tools.docs_markdown import fence, table, with_part
from tools.docs_results import RESULTS, stored
from vflpriv import api
from vflpriv.common import formatting as f
from vflpriv.experiments.frontier.result import FrontierReport
from vflpriv.experiments.reproduce.result import Reproduction
from vflpriv.report.rows import USEFUL

__all__ = ["found_table", "trace_output", "trace_part", "write_readme"]

README = Path(__file__).resolve().parents[1] / "README.md"
_ASKED = 1.0
"""The ε for which a visitor asks what to use."""


def trace_output() -> str:
    """What `vflpriv trace` prints of the script at 80 columns, without the ledger, as a block."""
    command = [sys.executable, "-m", "vflpriv", "trace", "lender.py", "--quiet"]
    done = subprocess.run(
        command, cwd=README.parent / "examples" / "trace", check=False, capture_output=True, text=True
    )
    return trace_part(done.stdout)


def trace_part(printed: str) -> str:
    """The part of what `vflpriv trace` prints that the README shows."""
    lines = [line.rstrip() for line in printed.splitlines()]
    first, last = (
        next(i for i, line in enumerate(lines) if line.startswith(word)) for word in ("What leaves", "The ledger")
    )
    return fence("text", "\n".join(lines[first:last]).rstrip())


def found_table(results: Path = RESULTS) -> str:
    """Findings of budgets, which are computed here, and of committed results."""
    rows = [_dpzv(), _accuracy_at_one(results), _clip(), _vafl(), _completion(results)]
    rows += [_reproduced(results, name) for name in ("vimadmm-table-3", "cascaded-table-2")]
    rows += [_frontier(results, unit) for unit in ("record", "label")]
    return table(("finding", "shown by"), [(finding, f"`{command}`") for finding, command in rows])


def _claims(config: str | None, system: str) -> dict[str, Any]:
    (audited,) = api.account(config, only=[system]).systems
    return {claim.key: claim for claim in audited.claims}


def _dpzv() -> tuple[str, str]:
    claims = _claims(None, "dpzv-published")
    claim = claims["dpzv-device"]
    single, every = (f.epsilon(claims[key].paper_reading.epsilon_upper) for key in ("dpzv-device", "dpzv-devices"))
    finding = (
        f"DPZV, {claim.where}: ε = {f.epsilon(claim.epsilon)} is claimed, and counts on secret batches. Devices know "
        f"theirs: {single} towards one device, {every} towards all, even in the paper's reading."
    )
    return finding, "vflpriv account --only dpzv-published"


def _clip() -> tuple[str, str]:
    claim = _claims("papers", "dpzv-clip")["dpzv-device"]
    accounted = f.epsilon(claim.accounted.epsilon_upper)
    finding = f"Its clip, as printed, does not bound what it should: accounted ε = {accounted}, with a witness."
    return finding, "vflpriv audit papers --only dpzv-clip"


def _vafl() -> tuple[str, str]:
    claim = _claims("papers", "vafl-rows")["vafl-steps"]
    accounted = f.epsilon(claim.paper_reading.epsilon_upper)
    finding = (
        f"VAFL, {claim.where}: ε = {f.epsilon(claim.epsilon)} is claimed. Each row belongs to one record, and nothing "
        f"averages it: {accounted}, even in the paper's reading."
    )
    return finding, "vflpriv account papers --only vafl-rows"


def _completion(results: Path) -> tuple[str, str]:
    run = json.loads((results / "attacks-mnist.json").read_text("utf-8"))
    attack = "label_completion_active"
    attempts = [step["attacks"][attack] for step in run["steps"].values() if attack in step["attacks"]]
    success, alone = (
        f.percent(mean(value for attempt in attempts for value in attempt[key])) for key in ("success", "blind")
    )
    finding = (
        f"Split learning, MNIST: a party that knows {run['row']['known']} labels of each class reads {success} of the "
        f"others; without the protocol {alone}."
    )
    return finding, run["command"]


def _accuracy_at_one(results: Path) -> tuple[str, str]:
    """DPZV at a claimed and at an accounted ε of 1."""
    report = stored(Reproduction, results)["reproduce-dpzv-figure-3"]
    claimed, kept = (next(line for line in report.lines if line.key == key) for key in ("dpzv-1", "dpzv-1-calibrated"))
    assert claimed.guarantee is not None
    bound = claimed.guarantee.accounted
    accounted = f"accounted {f.epsilon(bound)}" if bound <= USEFUL else f"no useful accounted bound, {f.epsilon(bound)}"
    finding = (
        f"DPZV on MNIST: {f.percent(claimed.accuracy)} at a claimed ε = 1 ({accounted}), {f.percent(kept.accuracy)} at "
        "an accounted ε = 1."
    )
    return finding, report.command


def _reproduced(results: Path, name: str) -> tuple[str, str]:
    report = stored(Reproduction, results)[f"reproduce-{name}"]
    return f"{report.headline.rstrip('.')}.", report.command


def _frontier(results: Path, unit: str) -> tuple[str, str]:
    report = stored(FrontierReport, results)[f"frontier-mnist-{unit}"]
    (best,) = (point for point in report.points if point.epsilon == _ASKED)
    finding = (
        f"It can be done: {f.percent(best.mean)} on MNIST, each {report.unit} at ε = {best.epsilon:g}, "
        f"δ = {f.delta(report.delta)} towards all devices ({best.title})."
    )
    return finding, report.command


def write_readme(path: Path = README) -> None:
    """Write both parts anew."""
    text = path.read_text("utf-8")
    for name, content in (("trace", trace_output()), ("found", found_table())):
        text = with_part(text, name, content)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_readme()
