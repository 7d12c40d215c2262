"""The progress bar of long work, on standard error."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from vflpriv.common.formatting import clean

__all__ = ["LateTask", "Task", "progress_bar"]


def progress_bar(quiet: bool | None) -> Bar:
    """A bar that disappears at the end; `quiet=None` shows it on a terminal only, so that notebooks stay clean."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    hidden = not sys.stderr.isatty() if quiet is None else quiet
    return Bar(*columns, console=Console(stderr=True), transient=True, disable=hidden)


class Task:
    """The one progress bar of an audit."""

    def __init__(self, bar: Bar, total: int | None) -> None:
        self._bar, self._task = bar, bar.add_task("auditing", total=total)

    def stage(self, text: str) -> None:
        self._bar.update(self._task, description=clean(text))
        if not self._bar.console.is_terminal and not self._bar.disable:
            self._bar.console.print(clean(text), markup=False, emoji=False)

    def expect(self, total: int) -> None:
        """Say how much work there is, if that was not known before."""
        self._bar.update(self._task, total=total)

    def advance(self, work: int) -> None:
        self._bar.advance(self._task, work)


class LateTask:
    """The progress bar of work whose amount is known late; it appears then, so that no error before it has a bar."""

    def __init__(self, quiet: bool | None) -> None:
        self._bar = progress_bar(quiet)
        self._task: Task | None = None

    def __enter__(self) -> LateTask:
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:
            self._bar.stop()

    def expect(self, total: int) -> None:
        """Begin, with so much work."""
        self._bar.start()
        self._task = Task(self._bar, total)

    def stage(self, text: str) -> None:
        if self._task is not None:
            self._task.stage(text)

    def advance(self, work: int) -> None:
        if self._task is not None:
            self._task.advance(work)
