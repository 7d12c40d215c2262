"""One training, evaluated on its way, as a task that any worker can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vflpriv import __version__
from vflpriv.audits.worlds.store import result_key
from vflpriv.common.tasks import Executor, Progress, Tasks, Worker
from vflpriv.core.data import Part
from vflpriv.core.systems import System, accelerated
from vflpriv.core.wire import Wire
from vflpriv.report.curves import LearningCurve
from vflpriv.run.stored import RowStore

__all__ = ["Trainer", "learning_curve", "marks"]

_MEGABYTE = 10**6


def marks(rounds: int, evaluations: int) -> list[int]:
    """The numbers of rounds after which a training is evaluated: evenly spread, the last one among them.

    >>> marks(10, 4), marks(3, 20)
    ([2, 5, 8, 10], [1, 2, 3])
    """
    spread = np.linspace(0, rounds, min(rounds, evaluations) + 1)[1:]
    return [int(mark) for mark in np.round(spread)]


def learning_curve(
    system: System, *, evaluations: int = 1, part: Part = "test", progress: Progress | None = None
) -> LearningCurve:
    """Train a system once, and evaluate it on the way."""
    engine, wire, stops = system.train([0]), Wire(), set(marks(system.rounds, evaluations))
    two_classes, clock = system.data.classes == 2, system.schedule.seconds
    rounds, accuracy, auc, megabytes, seconds = [], [], [], [], []
    for number in range(1, system.rounds + 1):
        engine.round(number - 1, wire)
        if number in stops:
            rounds.append(number)
            reached = engine.evaluate(part=part)
            accuracy.append(float(reached.accuracy[0]))
            auc += [float(reached.auc()[0])] if two_classes else []
            seconds += [] if clock is None else [float(clock[number - 1])]
            megabytes.append(wire.traffic.total / _MEGABYTE)
        if progress is not None:
            progress.advance(1)
    importance = engine.importance()
    return LearningCurve(
        seed=system.seed,
        rounds=tuple(rounds),
        accuracy=tuple(accuracy),
        auc=tuple(auc),
        seconds=tuple(seconds),
        megabytes=tuple(megabytes),
        importance=() if importance is None else tuple(importance.norms[0].tolist()),
        importance_caveat=(importance.caveat() or "") if importance is not None else "",
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Trainer:
    """Trains many systems, several at a time: what is in the store is used again, what is new is stored when done."""

    store: RowStore[LearningCurve]
    progress: Progress
    executor: Executor

    def curves(self, systems: Sequence[System], *, evaluations: int, part: Part = "test") -> list[LearningCurve]:
        """The curve of each system."""
        keys = [self.key(system, evaluations, part) for system in systems]
        curves = {place: curve for place, key in enumerate(keys) if (curve := self.store.load(key)) is not None}
        for place in curves:
            self.progress.advance(systems[place].rounds)
        missing = [place for place in range(len(systems)) if place not in curves]
        tasks = Tasks(
            function=_task,
            common=([systems[place] for place in missing], evaluations, part),
            items=range(len(missing)),
            names=[f"{systems[place].key}, seed {systems[place].seed}" for place in missing],
            accelerated=any(accelerated(systems[place]) for place in missing),
        )

        def finished(number: int, curve: LearningCurve) -> None:
            self.store.save(keys[missing[number]], curve)

        computed = self.executor.run(tasks, progress=self.progress, finished=finished)
        curves |= dict(zip(missing, computed, strict=True))
        return [curves[place] for place in range(len(systems))]

    def key(self, system: System, evaluations: int, part: Part) -> str | None:
        """The name under which the curve of a system is stored; None where nothing is."""
        kept = self.store.folder is not None
        return result_key(system, "learning", __version__, evaluations, part) if kept else None


def _task(common: tuple[Sequence[System], int, Part], place: int, worker: Worker) -> LearningCurve:
    systems, evaluations, part = common
    system = systems[place]
    worker.progress.stage(f"{system.key}, seed {system.seed}")
    return learning_curve(system, evaluations=evaluations, part=part, progress=worker.progress)
