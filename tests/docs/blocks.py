"""Fenced blocks of Markdown files, and what runs each kind of them. A block without a runner is an error."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

from tests.docs.reduced import DATA, FLAGS, ONLY_CHECKED, check
from vflpriv.config.loading import load_config
from vflpriv.recording.files.ending import end_recordings
from vflpriv.recording.ledger_file import load_ledger
from vflpriv.run.systems import build_system, load_data

__all__ = ["Block", "Page", "blocks", "commands"]

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^# ([\w.-]+\.(?:toml|py|yml))$", re.MULTILINE)
_CODE = re.compile(r"exit code (\d)(?! if)")
_VERDICTS = (0, 1, 3)
_LINKED = ("examples", "constraints.txt")


@dataclass(frozen=True)
class Block:
    """One of them: its language, its text and the line it begins at."""

    language: str
    text: str
    line: int

    @property
    def name(self) -> str | None:
        """The file that the reader is told to write: the first line, if that is a comment with a file's name."""
        found = _NAMED.match(self.text)
        return found[1] if found else None


def blocks(text: str) -> list[Block]:
    """All fenced blocks; a fence that is not closed is an error."""
    found = [Block(m[1], m[2], text.count("\n", 0, m.start()) + 1) for m in _FENCE.finditer(text)]
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(found), "a fence is not closed"
    return found


def commands(text: str) -> Iterator[tuple[list[str], str]]:
    """Words and comment of each command of a shell block; continued lines are one."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        comment = line.rpartition("#")[2] if "#" in line else ""
        if words:
            yield words, comment


def _unread(command: str) -> tuple[str, ...]:
    """Pages of recorded systems go unread: `tests/render/` looks at pages, and drawing them takes as long as audits."""
    return ("--format", "json") if command.startswith("vflpriv audit --transcript ") else ()


@dataclass
class Page:
    """One file, whose blocks are run one after another in a folder of their own."""

    folder: Path
    vflpriv: Callable[..., tuple[int, str, str]]
    names: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    ran: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in _LINKED:
            (self.folder / name).symlink_to(ROOT / name)
        self.names["__name__"] = "page"

    def write(self, found: Sequence[Block]) -> None:
        """The files that these blocks tell the reader to write."""
        for block in found:
            if block.name is not None:
                (self.folder / block.name).write_text(block.text, encoding="utf-8")
                self.ran.clear()

    def run(self, block: Block) -> None:
        """Whatever the block is for."""
        runner = getattr(self, f"run_{block.language}", None)
        assert runner is not None, f"no runner for a block of language {block.language!r}"
        self.write([block])
        runner(block)

    def run_python(self, block: Block) -> None:
        if block.name is not None:
            compile(block.text, block.name, "exec")  # it is run by the command that names it
            return
        with redirect_stdout(StringIO()) as said:
            exec(compile(block.text, "block", "exec"), self.names)  # noqa: S102
        self.printed += said.getvalue()

    def run_toml(self, block: Block) -> None:
        """A ledger, a configuration, or an excerpt of one, which is completed by an engine."""
        raw = tomllib.loads(block.text)
        if "release" in raw or "claim" in raw:
            path = self.folder / (block.name or "block-ledger.toml")
            path.write_text(block.text, encoding="utf-8")
            load_ledger(path)
            return
        if "engine" not in raw and "system" not in raw:
            raw["engine"] = {"name": "split", "rounds": 4, "batch_size": 8}
        name = raw.get("data", {}).get("name", "digits")
        config = load_config(raw, {"data.name": DATA.get(name, name)})
        data = load_data(config)
        for place in range(len(config.system)):
            build_system(config, place, data)

    def run_yaml(self, block: Block) -> None:
        """A workflow: its commands are run."""
        document = yaml.safe_load(block.text)
        steps = [step for job in document["jobs"].values() for step in job["steps"]]
        self.run_sh(Block("sh", "\n".join(step["run"] for step in steps if "run" in step), block.line))

    def run_text(self, block: Block) -> None:
        """What the commands and programs before it print, line by line."""
        for line in block.text.strip().splitlines():
            assert line in self.printed, f"nothing printed {line!r}"

    def run_diff(self, block: Block) -> None:
        """Lines that are kept or added are lines of `train.py`, in this order, whatever its comments."""
        lines = iter(re.sub(r"  # .*", "", line) for line in (self.folder / "train.py").read_text("utf-8").splitlines())
        for line in block.text.splitlines():
            assert line[0] == "-" or line[1:] in lines, f"train.py has no line {line[1:]!r} here"

    def run_diagram(self, block: Block) -> None:
        """Nothing to run; `tests/test_layers.py` holds the drawing of the layers against the imports."""

    def run_sh(self, block: Block) -> None:
        for words, comment in commands(block.text):
            said = _CODE.search(comment)
            self._command([Path(words[0]).name, *words[1:]], int(said[1]) if said else None)

    def _command(self, words: list[str], wanted: int | None) -> None:
        command = shlex.join(words)
        if command in self.ran:
            return  # no file has changed since
        self.ran.append(command)
        if command.startswith(ONLY_CHECKED) and command not in FLAGS:
            check(words, ROOT)
            return
        program, *arguments = words
        if program == "vflpriv":
            code, out, error = self.vflpriv(*arguments, *FLAGS.get(command, ()), *_unread(command))
            self.printed += out
            assert "Traceback" not in error
        else:
            self._other(program, arguments)
            code = 0
        judges = program == "vflpriv" and arguments[0] in ("audit", "papers", "attack", "compare", "replay")
        expected = _VERDICTS if judges else (0,)
        if wanted is not None and command not in FLAGS:
            expected = (wanted,)
        assert code in expected, f"{command}: exit code {code}, expected {expected}"

    def _other(self, program: str, arguments: list[str]) -> None:
        """A script is run here, rather than by another interpreter that has to import torch again."""
        if program == "cp":
            shutil.copy(self.folder / arguments[0], self.folder / arguments[1])
            return
        assert program == "python", f"no runner for the command {program}"
        script, told, known = self.folder / arguments[0], sys.argv, set(sys.modules)
        try:
            sys.argv = arguments
            sys.path.insert(0, str(script.parent))
            runpy.run_path(str(script), run_name="__main__")
        finally:
            sys.argv = told
            end_recordings()  # as at the end of that interpreter
            sys.path.remove(str(script.parent))
            beside = {path.stem for path in script.parent.glob("*.py")}
            for name in (set(sys.modules) - known) & beside:  # another example may have a module of the same name
                del sys.modules[name]
