"""The progress bar: what is done, how much of it, and how long the rest takes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from vflpriv.run import progress
from vflpriv.run.progress import Task, progress_bar


def shown(monkeypatch: pytest.MonkeyPatch, total: int | None, done: int, seconds: float) -> str:
    """The bar on a terminal after so much work and time."""
    file, time = io.StringIO(), [0.0]
    terminal = Console(file=file, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda **_: terminal)
    bar = progress_bar(quiet=False)
    bar.get_time = lambda: time[0]
    with bar:
        task = Task(bar, total)
        task.stage("split: features")
        for part in range(1, 5):
            time[0] = seconds * part / 4
            task.advance(done // 4)
        bar.refresh()
    return file.getvalue()


def test_it_says_how_much_is_done_and_how_long_the_rest_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, 100, 20, 2.0)
    assert "split: features" in text
    assert "20 % · 0:08 left" in text


def test_work_of_unknown_amount_shows_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "0:03 so far" in shown(monkeypatch, None, 4, 3.0)
