"""What every experiment does: read data once, train many systems as tasks, and evaluate them on their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypedDict

import numpy as np

from vflpriv import __version__
from vflpriv.common.store import Entry, JsonForm, Store
from vflpriv.common.tasks import Executor, Progress, Tasks, Worker
from vflpriv.config.models import Config
from vflpriv.core.data import Part, VerticalData
from vflpriv.core.engine import Engine
from vflpriv.core.systems import System, accelerated
from vflpriv.core.wire import Wire
from vflpriv.experiments.curves import LearningCurve
from vflpriv.experiments.lagrangian import followed_round, unmet_conditions
from vflpriv.run.systems import load_data
from vflpriv.training.engines.admm import AdmmEngine

__all__ = ["TRIED_APART", "Loaded", "Trainer", "differ_by_seed_alone", "learning_curve", "marks"]

TRIED_APART = 1_000_000
"""Added to the seed of trainings that settings are chosen by."""
_MEGABYTE = 10**6


class Loaded:
    """The data of configurations, with at most `tested` test records; those with the same data share one copy."""

    def __init__(self, *, tested: int | None = None) -> None:
        self._tested = tested
        self._read: dict[tuple[str, int | None], VerticalData] = {}

    def data(self, config: Config) -> VerticalData:
        """The data set of a configuration; where its features are noised, that of its seed."""
        key = config.data.model_dump_json(), config.seed if config.data.noisy_devices else None
        if key not in self._read:
            data, end = load_data(config), self._tested
            blocks = tuple(block[:end] for block in data.test_blocks)
            self._read[key] = replace(data, test_blocks=blocks, test_labels=data.test_labels[:end])
        return self._read[key]


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
        watched = _Watched(evaluations=evaluations, part=part, drop=drop, lagrangian=lagrangian)

        def tasks(missing: Sequence[int]) -> Tasks[tuple[Sequence[System], _Watched], int, LearningCurve]:
            chosen = [systems[place] for place in missing]
            return Tasks(
                function=_task,
                common=(chosen, watched),
                items=range(len(chosen)),
                names=[f"{system.key}, seed {system.seed}" for system in chosen],
                accelerated=any(map(accelerated, chosen)),
                isolated=self.long,
            )

        entries = [self._entry(system, watched) for system in systems]
        return self.store.results(entries, tasks, executor=self.executor, progress=self.progress)

    def curves_of_seeds(self, systems: Sequence[System], *, part: Part = "test") -> list[LearningCurve]:
        """What each system reaches at the end of its training; those that differ by their seed alone train together."""
        if not differ_by_seed_alone(systems):
            return self.curves(systems, evaluations=1, part=part)
        watched = _Watched(evaluations=1, part=part, drop=None, lagrangian=False)

        def train(missing: Sequence[int], finished: Callable[[int, LearningCurve], None]) -> None:
            tasks = Tasks(
                function=_task_of_seeds,
                common=([systems[place] for place in missing], part),
                items=[0],
                names=[f"{systems[0].key}, {len(missing)} seeds"],
                accelerated=accelerated(systems[0]),
            )
            (curves,) = self.executor.run(tasks, progress=self.progress)
            for number, curve in enumerate(curves):
                finished(number, curve)

        entries = [self._entry(system, watched) for system in systems]
        return self.store.completed(entries, train, self.progress)

    def _entry(self, system: System, watched: _Watched) -> Entry[LearningCurve]:
        """Where the curve of a system is stored."""
        key = system.result_key(self.store, "learning", __version__, *watched.values())
        return Entry(key=key, form=JsonForm(LearningCurve), work=system.rounds)


class _Watched(TypedDict):
    """What `learning_curve` is told beside the system."""

    evaluations: int
    part: Part
    drop: float | None
    lagrangian: bool


def _task(common: tuple[Sequence[System], _Watched], place: int, worker: Worker) -> LearningCurve:
    systems, watched = common
    system = systems[place]
    worker.progress.stage(f"{system.key}, seed {system.seed}")
    return learning_curve(system, **watched, progress=worker.progress)


def differ_by_seed_alone(systems: Sequence[System]) -> bool:
    """Whether these trainings have the same data, settings, batches and active devices, and no simulated clock.

    Batches that are drawn follow from the seed: then each training has a schedule of its own.
    """
    first, others = systems[0], systems[1:]
    return first.schedule.seconds is None and all(
        system.data is first.data
        and system.settings == first.settings
        and all(
            np.array_equal(getattr(system.schedule, name), getattr(first.schedule, name))
            for name in ("active", "order", "start", "size")
        )
        for system in others
    )


def _task_of_seeds(common: tuple[Sequence[System], Part], _: int, worker: Worker) -> list[LearningCurve]:
    systems, part = common
    worker.progress.stage(f"{systems[0].key}, {len(systems)} seeds together")
    seeds = [system.seed for system in systems]
    engine, wire = systems[0].train([0] * len(seeds), seeds=seeds), Wire()
    engine.run(wire, advance=lambda rounds: worker.progress.advance(rounds * len(seeds)))
    reached = engine.evaluate(part=part, replicas=len(seeds))
    accuracy, finite = reached.accuracy.tolist(), reached.logits.isfinite().flatten(1).all(1).tolist()
    areas = reached.auc().tolist() if systems[0].data.classes == 2 else None
    return [
        LearningCurve(
            seed=seed,
            rounds=(systems[0].rounds,),
            accuracy=(accuracy[place],),
            auc=() if areas is None else (areas[place],),
            megabytes=(wire.traffic.total / _MEGABYTE,),
            diverged=None if finite[place] else systems[0].rounds,
        )
        for place, seed in enumerate(seeds)
    ]
