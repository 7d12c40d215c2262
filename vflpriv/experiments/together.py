"""Trainings that differ by their seed alone, on the replica axis of one engine: what all of them read is read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vflpriv.common.tasks import Tasks, Worker
from vflpriv.core.data import Part
from vflpriv.core.systems import System, accelerated
from vflpriv.core.wire import Wire
from vflpriv.experiments.curves import LearningCurve
from vflpriv.experiments.learning import Trainer, Watched

__all__ = ["curves_of_seeds", "differ_by_seed_alone"]

_MEGABYTE = 10**6


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


def curves_of_seeds(trainer: Trainer, systems: Sequence[System], *, part: Part = "test") -> list[LearningCurve]:
    """What each system reaches at the end of its training; those that differ by their seed alone train together."""
    if not differ_by_seed_alone(systems):
        return trainer.curves(systems, evaluations=1, part=part)
    watched = Watched(evaluations=1, part=part, drop=None, lagrangian=False)

    def train(missing: Sequence[int], finished: Callable[[int, LearningCurve], None]) -> None:
        tasks = Tasks(
            function=_task,
            common=([systems[place] for place in missing], part),
            items=[0],
            names=[f"{systems[0].key}, {len(missing)} seeds"],
            accelerated=accelerated(systems[0]),
        )
        (curves,) = trainer.executor.run(tasks, progress=trainer.progress)
        for number, curve in enumerate(curves):
            finished(number, curve)

    entries = [trainer.entry(system, watched) for system in systems]
    return trainer.store.completed(entries, train, trainer.progress)


def _task(common: tuple[Sequence[System], Part], _: int, worker: Worker) -> list[LearningCurve]:
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
