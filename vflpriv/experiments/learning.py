"""One training, evaluated on its way, as a task that any worker can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypedDict

import numpy as np

from vflpriv import __version__
from vflpriv.common.store import Entry, JsonForm, Store
from vflpriv.common.tasks import Executor, Progress, Tasks, Worker
from vflpriv.core.data import Part
from vflpriv.core.engine import Engine
from vflpriv.core.systems import System, accelerated
from vflpriv.core.wire import Wire
from vflpriv.experiments.curves import LearningCurve
from vflpriv.training.engines.admm import AdmmEngine
from vflpriv.training.engines.lagrangian import followed_round, unmet_conditions

__all__ = ["Trainer", "Watched", "learning_curve", "marks"]

_MEGABYTE = 10**6


def marks(rounds: int, evaluations: int) -> list[int]:
    """The numbers of rounds after which a training is evaluated: evenly spread, the last one among them.

    >>> marks(10, 4), marks(3, 20)
    ([2, 5, 8, 10], [1, 2, 3])
    """
    spread = np.linspace(0, rounds, min(rounds, evaluations) + 1)[1:]
    return [int(mark) for mark in np.round(spread)]


def learning_curve(
    system: System,
    *,
    evaluations: int = 1,
    part: Part = "test",
    drop: float | None = None,
    lagrangian: bool = False,
    progress: Progress | None = None,
) -> LearningCurve:
    """Train a system once, and evaluate it on the way.

    With `drop` it is evaluated on the validation records too, and training ends once its accuracy on them is more than
    so much below the best one by then. `part` then has no say in when that is. With `lagrangian` the rounds are counted
    in which the augmented Lagrangian of an ADMM training rises.
    """
    engine, wire, stops = system.train([0]), Wire(), set(marks(system.rounds, evaluations))
    curve, values = _Noted(system, engine, wire, part=part, drop=drop), list[float]()
    for number in range(1, system.rounds + 1):
        if lagrangian and isinstance(engine, AdmmEngine):
            values.append(float(followed_round(engine, number - 1, wire)[0]))
        else:
            engine.round(number - 1, wire)
        if number in stops:
            curve.evaluate(number)
        if progress is not None:
            progress.advance(1)
        if curve.fallen:
            if progress is not None:
                progress.advance(system.rounds - number)
            break
    if not values:
        return curve.noted()
    assert isinstance(engine, AdmmEngine)
    rises = sum(later > earlier for earlier, later in pairwise(values))
    return curve.noted().model_copy(update={"rises": rises, "unmet": unmet_conditions(engine)})


class _Noted:
    """What a training reached at its evaluations by now."""

    def __init__(self, system: System, engine: Engine, wire: Wire, *, part: Part, drop: float | None) -> None:
        self._system, self._engine, self._wire, self._part, self._drop = system, engine, wire, part, drop
        self._rounds: list[int] = []
        self._accuracy: list[float] = []
        self._validation: list[float] = []
        self._auc: list[float] = []
        self._megabytes: list[float] = []
        self._seconds: list[float] = []
        self._importance = engine.importance()
        self._diverged: int | None = None

    def evaluate(self, number: int) -> None:
        """Note what is reached after so many rounds."""
        reached, clock = self._engine.evaluate(part=self._part, records=1), self._system.schedule.seconds
        self._rounds.append(number)
        self._accuracy.append(float(reached.accuracy[0]))
        if self._diverged is None and not bool(reached.logits.isfinite().all()):
            self._diverged = number
        self._auc += [float(reached.auc()[0])] if self._system.data.classes == 2 else []
        self._seconds += [] if clock is None else [float(clock[number - 1])]
        self._megabytes.append(self._wire.traffic.total / _MEGABYTE)
        if self._drop is not None:
            same = self._part == "validation"
            validated = reached if same else self._engine.evaluate(part="validation", records=1)
            self._validation.append(float(validated.accuracy[0]))
        if self._drop is None or self._validation[-1] > max(self._validation[:-1], default=-1.0):
            self._importance = self._engine.importance()

    @property
    def fallen(self) -> bool:
        """Whether the accuracy on validation records is too far below the best one."""
        if self._drop is None or not self._validation:
            return False
        return max(self._validation) - self._validation[-1] > self._drop

    def noted(self) -> LearningCurve:
        importance = self._importance
        return LearningCurve(
            seed=self._system.seed,
            rounds=tuple(self._rounds),
            accuracy=tuple(self._accuracy),
            validation=tuple(self._validation),
            auc=tuple(self._auc),
            seconds=tuple(self._seconds),
            megabytes=tuple(self._megabytes),
            diverged=self._diverged,
            importance=() if importance is None else tuple(importance.norms[0].tolist()),
            importance_caveat=(importance.caveat() or "") if importance is not None else "",
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Trainer:
    """Trains many systems, several at a time: what is in the store is used again, what is new is stored when done."""

    store: Store
    progress: Progress
    executor: Executor
    long: bool = False
    """Whether trainings take minutes, so that each is for a process of its own from the start."""

    def curves(
        self,
        systems: Sequence[System],
        *,
        evaluations: int,
        part: Part = "test",
        drop: float | None = None,
        lagrangian: bool = False,
    ) -> list[LearningCurve]:
        """The curve of each system, watched as `learning_curve` says."""
        watched = Watched(evaluations=evaluations, part=part, drop=drop, lagrangian=lagrangian)

        def tasks(missing: Sequence[int]) -> Tasks[tuple[Sequence[System], Watched], int, LearningCurve]:
            chosen = [systems[place] for place in missing]
            return Tasks(
                function=_task,
                common=(chosen, watched),
                items=range(len(chosen)),
                names=[f"{system.key}, seed {system.seed}" for system in chosen],
                accelerated=any(map(accelerated, chosen)),
                isolated=self.long,
            )

        entries = [self.entry(system, watched) for system in systems]
        return self.store.results(entries, tasks, executor=self.executor, progress=self.progress)

    def entry(self, system: System, watched: Watched) -> Entry[LearningCurve]:
        """Where the curve of a system is stored."""
        key = system.result_key(self.store, "learning", __version__, *watched.values())
        return Entry(key=key, form=JsonForm(LearningCurve), work=system.rounds)


class Watched(TypedDict):
    """What `learning_curve` is told beside the system."""

    evaluations: int
    part: Part
    drop: float | None
    lagrangian: bool


def _task(common: tuple[Sequence[System], Watched], place: int, worker: Worker) -> LearningCurve:
    systems, watched = common
    system = systems[place]
    worker.progress.stage(f"{system.key}, seed {system.seed}")
    return learning_curve(system, **watched, progress=worker.progress)
