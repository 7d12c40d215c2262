"""Independent pieces of long work, and the protocol of executors that run them on cores, GPUs or other machines.

Whoever has work makes `Tasks` of it and hands them to the `Executor` that it was given; no result depends on which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from vflpriv.common.machine import single_threaded

__all__ = ["Advancing", "Executor", "InProcess", "NoProgress", "Progress", "Tasks", "Worker"]

C = TypeVar("C")
S = TypeVar("S")
T = TypeVar("T")


class Progress(Protocol):
    """Receives what is being done, and how many replica-rounds were done since the last call."""

    def stage(self, text: str) -> None: ...
    def advance(self, work: int) -> None: ...


class NoProgress:
    """Progress that nobody reads."""

    def stage(self, text: str) -> None:
        """Ignore it."""

    def advance(self, work: int) -> None:
        """Ignore it."""


class Advancing(NoProgress):
    """Progress whose replica-rounds a function is told of; `None` is told nothing."""

    def __init__(self, advance: Callable[[int], None] | None) -> None:
        self._advance = advance

    def advance(self, work: int) -> None:
        if self._advance is not None:
            self._advance(work)


@dataclass(frozen=True, eq=False, kw_only=True)
class Worker:
    """What a task knows of the place where it runs."""

    progress: Progress = field(default_factory=NoProgress)
    neighbours: int = 1
    """Tasks that may run on the same device at the same time, this one included: they share its memory."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Tasks(Generic[C, S, T]):
    """One function for many items: `function(common, item, worker)`, in any order, in any process, perhaps twice.

    The function is one of a module, everything else can be pickled, and the result depends on `common` and the item
    alone. `common` is what all items need; several calls that have the same object in it send it to a worker once.
    """

    function: Callable[[C, S, Worker], T]
    common: C
    items: Sequence[S]
    names: Sequence[str]
    """What errors call each item."""
    accelerated: bool = False
    """Whether a task wants a GPU of its own; else it computes on one core."""
    isolated: bool = False
    """Whether two tasks are not to run in one process at the same time: they change what is global in it, or take so
    long that waiting for each other's Python code would cost more than to start processes."""


class Executor(Protocol):
    """Runs tasks: results come back in order, and `finished(place, result)` is called here as soon as each is there.

    A task whose worker dies is run again, a few times; an error of the task itself ends the run at once.
    """

    def run(
        self,
        tasks: Tasks[Any, Any, T],
        *,
        progress: Progress,
        finished: Callable[[int, T], None] | None = None,
    ) -> list[T]: ...


class InProcess:
    """Runs one task after the other in this process, each operation on one thread.

    >>> square = lambda common, item, worker: common * item**2
    >>> InProcess().run(Tasks(function=square, common=2, items=[1, 3], names=["1", "3"]), progress=NoProgress())
    [2, 18]
    """

    def run(
        self,
        tasks: Tasks[Any, Any, T],
        *,
        progress: Progress,
        finished: Callable[[int, T], None] | None = None,
    ) -> list[T]:
        worker, results = Worker(progress=progress), []
        with single_threaded():
            for place, item in enumerate(tasks.items):
                results.append(tasks.function(tasks.common, item, worker))
                if finished is not None:
                    finished(place, results[-1])
        return results
