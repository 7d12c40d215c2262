"""What comes back from a task in another process: its result or its error, its progress and its warnings."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle

from vflpriv.common.tasks import NoProgress, Progress, Worker
from vflpriv.errors import VflprivError

__all__ = ["TRIES", "Outcome", "TaskError", "WorkerError", "accepted", "performed"]

TRIES = 3
"""How often a task is begun whose worker dies before it is done."""
_REGISTRY: dict[str | tuple[str, type[Warning], int], int] = {}
"""Warnings of tasks that were shown."""


class WorkerError(VflprivError):
    """The workers of a task died again and again, or those that are left cannot run it."""


class TaskError(RuntimeError):
    """An error of a task that cannot be sent as it is; its text has the traceback."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """The result of a task, or its error with the traceback; replica-rounds done; warnings with their places."""

    value: Any = None
    error: BaseException | None = None
    traceback: str = ""
    work: int = 0
    warned: tuple[tuple[Warning | str, type[Warning], str, int], ...] = ()


class _Counter(NoProgress):
    """Progress that is added up, to be reported with the result."""

    def __init__(self) -> None:
        self.work = 0

    def advance(self, work: int) -> None:
        self.work += work


def performed(function: Callable[[Any, Any, Worker], Any], common: Any, item: Any, neighbours: int) -> Outcome:
    """Run a task in a process of its own kind, and keep whatever comes of it."""
    counter = _Counter()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            value = function(common, item, Worker(progress=counter, neighbours=neighbours))
            error, text = None, ""
        except Exception as raised:  # noqa: BLE001 (whatever it is, it is raised again where the tasks came from)
            value, error, text = None, raised, traceback.format_exc()
    warned = tuple((w.message, w.category, w.filename, w.lineno) for w in seen)
    return Outcome(value=value, error=_sendable(error, text), traceback=text, work=counter.work, warned=warned)


def _sendable(error: BaseException | None, text: str) -> BaseException | None:
    """The error if it survives the way, else one that says the same."""
    if error is None:
        return None
    try:
        error.__traceback__ = None
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:  # noqa: BLE001 (errors of any library may fail to be built again, in any way)
        return TaskError(text)
    return error


def accepted(outcome: Outcome, progress: Progress) -> Any:
    """The result of a task; its warnings are shown and its error is raised here."""
    for message, category, filename, line in outcome.warned:
        warnings.warn_explicit(message, category, filename, line, registry=_REGISTRY)
    if outcome.error is not None:
        raise outcome.error from (TaskError(outcome.traceback) if outcome.traceback else None)
    progress.advance(outcome.work)
    return outcome.value
