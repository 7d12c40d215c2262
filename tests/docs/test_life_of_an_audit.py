"""The page on the life of one audit names functions that are called, in the order in which they are called."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.docs.blocks import blocks
from tests.program import vflpriv
from tests.tree import ROOT
from vflpriv.config.loading import load_config
from vflpriv.core.systems import System
from vflpriv.core.wire import Wire
from vflpriv.run.systems import build_system, load_data

Call = tuple[str, str]
"""A file of this checkout, and the qualified name of one of its functions."""

PAGE = (ROOT / "docs" / "life-of-an-audit.md").read_text("utf-8")
STEPS: list[Call] = re.findall(r"^\| `([\w/.]+)` \| `([\w.]+)` \|", PAGE, re.MULTILINE)
ROUND = re.findall(r"^- `([\w/.]+\.py)`", PAGE, re.MULTILINE)
BESIDE_THE_ROUND = {
    "vflpriv/common/lazy.py",
    "vflpriv/common/philox.py",
    "vflpriv/core/law.py",
    "vflpriv/laws/continuous.py",
    "vflpriv/laws/grid.py",
}
"""Decorators that say that no gradients are taken; and the law of the noise, whose rounding is its own idea."""


@contextmanager
def noted_calls() -> Iterator[list[Call]]:
    """The calls of functions of this checkout, in all threads, in order."""
    calls: list[Call] = []
    root = f"{ROOT}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # An environment may lie in the checkout, with the libraries in it.
        if event == "call" and code.co_filename.startswith(root) and "/site-packages/" not in code.co_filename:
            calls.append((code.co_filename.removeprefix(root), code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def first_missing(steps: list[Call], calls: list[Call]) -> Call | None:
    """The first step that is not called after the one before it; None if all are."""
    later = iter(calls)
    return next((step for step in steps if step not in later), None)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (block,) = (block for block in blocks(PAGE) if block.name == "small.toml")
    path = tmp_path / "small.toml"
    path.write_text(block.text, encoding="utf-8")
    return path


def test_every_step_is_called_after_the_one_above_it(config: Path, tmp_path: Path) -> None:
    with noted_calls() as calls:
        done = vflpriv("audit", config, "--format", "json", "--out", tmp_path / "out", "--workers", 1, "--quiet")
    assert done.returncode in (0, 1, 3), done.stderr
    assert len(STEPS) > 30
    assert first_missing(STEPS, calls) is None


def test_a_wrong_order_is_noticed() -> None:
    calls = [("a.py", "f"), ("b.py", "g"), ("a.py", "f")]
    assert first_missing([("a.py", "f"), ("b.py", "g")], calls) is None
    assert first_missing([("b.py", "g"), ("a.py", "f"), ("b.py", "g")], calls) == ("b.py", "g")
    assert first_missing([("c.py", "h")], calls) == ("c.py", "h")


@pytest.mark.parametrize("update", ["joint", "sgd"])
def test_a_round_of_dpzv_enters_the_files_that_are_listed(config: Path, update: str) -> None:
    loaded = load_config(config, {"system.dpzv.engine.server_update": update})
    system: System = build_system(loaded, 0, load_data(loaded))
    engine, wire = system.train([0, 1]), Wire()
    engine.round(0, wire)  # random numbers are drawn ahead
    with noted_calls() as calls:
        engine.round(1, wire)
    assert {file for file, _ in calls if not file.startswith("tests/")} - BESIDE_THE_ROUND == set(ROUND)
    assert len(ROUND) <= 9
