"""The progress bar of long work, on standard error."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.progress import Task as RichTask
from rich.text import Text

from vflpriv.common.formatting import clean

__all__ = ["LateTask", "Task", "clock", "progress_bar"]


def progress_bar(quiet: bool | None) -> Bar:
    """A bar that disappears at the end. Only a terminal shows it: notebooks and logs of builds stay clean."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), _Left())
    console = Console(stderr=True)
    return Bar(*columns, console=console, transient=True, disable=bool(quiet) or not console.is_terminal)


class _Left(ProgressColumn):
    """How much is done, and how long the rest takes: "12 % · 0:09 left"."""

    max_refresh = 0.5

    def render(self, task: RichTask) -> Text:
        """While the amount of work is not known, how long it has taken so far."""
        if task.total is None:
            return Text(f"{clock(task.elapsed or 0.0)} so far")
        left = "" if task.time_remaining is None else f" · {clock(task.time_remaining)} left"
        return Text(f"{task.percentage:.0f} %{left}")


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any.

    >>> clock(9.4), clock(75), clock(3661)
    ('0:09', '1:15', '1:01:01')
    """
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"


class Task:
    """The one progress bar of an audit."""

    def __init__(self, bar: Bar, total: int | None) -> None:
        self._bar, self._task = bar, bar.add_task("starting", total=total)

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
