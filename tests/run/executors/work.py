"""Tasks for tests of executors: they compute, fail, or end the process that runs them."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

from vflpriv.common.tasks import NoProgress, Tasks, Worker
from vflpriv.errors import InputError
from vflpriv.run.executors.local import LocalExecutor

__all__ = [
    "LIGHT",
    "Told",
    "die",
    "die_once",
    "fail",
    "light_workers",
    "loaded",
    "mark",
    "mean_of",
    "slow_square",
    "square",
    "tasks",
    "wait_for_processes",
    "warn",
    "whereabouts",
]

LIGHT = """
from contextlib import nullcontext
from vflpriv.run.executors import process
process.single_threaded = nullcontext
process.main(first="vflpriv.errors")
"""
"""The program of workers that import no torch, which takes them ten times as long as to start."""


def light_workers() -> Any:
    """Inside the block worker processes run that program."""
    return mock.patch("vflpriv.run.executors.process._CODE", LIGHT)


def wait_for_processes(executor: LocalExecutor, count: int = 2) -> None:
    """Run small tasks until all processes take part."""
    for _ in range(200):
        found = executor.run(tasks(whereabouts, range(4)), progress=NoProgress())
        if len({pid for pid, _ in found} - {os.getpid()}) == count:
            return
    raise AssertionError("the worker processes never became ready")


class Told:
    """Progress that is kept."""

    def __init__(self) -> None:
        self.work: list[int] = []

    def stage(self, text: str) -> None:
        """Nothing to keep."""

    def advance(self, work: int) -> None:
        self.work.append(work)


def tasks(function: Any, items: Any, common: Any = None) -> Tasks[Any, Any, Any]:
    return Tasks(function=function, common=common, items=items, names=[f"task {item}" for item in items])


def square(common: Any, item: int, worker: Worker) -> int:
    worker.progress.advance(item)
    return item * item


def slow_square(common: Any, item: int, worker: Worker) -> int:
    """Later items are done first."""
    time.sleep(0.05 * (5 - item % 5))
    return square(common, item, worker)


def whereabouts(common: Any, item: int, worker: Worker) -> tuple[int, int]:
    time.sleep(0.2)
    return os.getpid(), worker.neighbours


def mean_of(common: Any, item: int, worker: Worker) -> float:
    """Needs what all have in common, and torch."""
    return float(common[item].mean())


def loaded(common: Any, item: str, worker: Worker) -> tuple[bool, int]:
    """Whether a module was there before, and on how many threads torch computes."""
    there = item in sys.modules
    import torch

    return there, torch.get_num_threads()


def die(common: str, item: int, worker: Worker) -> int:
    if item == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def die_once(common: str, item: int, worker: Worker) -> int:
    """Begins are marked in a folder; the first one of item 2 kills its process."""
    begun = mark(common, item)
    if item == 2 and begun == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return square(common, item, worker)


def mark(folder: str, item: int) -> int:
    """How often this item was begun, this time included."""
    (Path(folder) / f"{item}-{time.monotonic_ns()}-{os.getpid()}").touch()
    return len(list(Path(folder).glob(f"{item}-*")))


def fail(common: Any, item: int, worker: Worker) -> int:
    if item == 3:
        raise InputError("field", item, "another number")
    return item


def warn(common: Any, item: int, worker: Worker) -> int:
    warnings.warn(f"item {item} is odd", UserWarning, stacklevel=1)
    return item
