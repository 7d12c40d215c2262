"""`vflpriv reproduce`: trains every row of a published table, several seeds each, and puts ours beside the paper's."""

from __future__ import annotations

import operator
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vflpriv import __version__
from vflpriv.audits.statistics.significance import mean_interval
from vflpriv.common.registry import find
from vflpriv.common.tasks import Executor, InProcess
from vflpriv.common.threads import single_threaded
from vflpriv.config.reproductions import Profile, ProfileRow, Protected
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary
from vflpriv.report.curves import LearningCurve
from vflpriv.report.reproduction import SHARES, Figure, Guarantee, Reproduction, TrainedLine
from vflpriv.run.budgets import account
from vflpriv.run.experiments.choosing import best_of, tried
from vflpriv.run.experiments.facts import hardware, versions
from vflpriv.run.experiments.learning import Trainer
from vflpriv.run.experiments.reading import Loaded
from vflpriv.run.noise.calibrate import parse_unit
from vflpriv.run.progress import Task, progress_bar
from vflpriv.run.selection import chosen_keys
from vflpriv.run.stored import RowStore
from vflpriv.run.systems import build_system
from vflpriv.training.engine import check_device

__all__ = ["reproduce_profile"]

_CONFIDENCE = 0.95
_ACCOUNTANT = "auto"
_APART = 1_000_000
"""Added to the seed of trainings that settings are chosen by."""


@single_threaded()
def reproduce_profile(
    profile: Profile,
    *,
    quick: bool = False,
    seeds: int | None = None,
    seed: int = 0,
    only: Sequence[str] = (),
    device: str = "auto",
    store: Path | None = None,
    quiet: bool | None = None,
    executor: Executor | None = None,
) -> Reproduction:
    """Train the chosen rows; trainings in the store are used again."""
    check_device(device)
    keys = chosen_keys([row.key for row in profile.row], only)
    rows = [row for row in profile.row if row.key in keys]
    count = seeds or (profile.quick.seeds if quick else profile.seeds)
    builder = _Builder(profile, quick=quick, device=device)
    simplest = [dict(row.tries[0]) if row.tries else {} for row in rows]

    def to_try(place: int, settings: dict[str, Any]) -> System:
        return builder.system(rows[place], settings, seed + _APART, validated=True)

    rounds = [builder.system(*each, seed).rounds for each in zip(rows, simplest, strict=True)]
    with progress_bar(quiet) as bar:
        trainings = [count + profile.tried * len(row.tries) for row in rows]
        task = Task(bar, round(sum(map(operator.mul, trainings, rounds))))
        trainer = Trainer(store=RowStore(store, LearningCurve), progress=task, executor=executor or InProcess())
        tries = tried([row.tries for row in rows], to_try, trainer)
        settings = [best_of(found, plain) for found, plain in zip(tries, simplest, strict=True)]
        pairs = [each for each in zip(rows, settings, strict=True) for _ in range(count)]
        systems = [builder.system(*each, seed + number % count) for number, each in enumerate(pairs)]
        curves = trainer.curves(systems, evaluations=profile.evaluations)
    lines = []
    for place, row in enumerate(rows):
        own = slice(place * count, (place + 1) * count)
        line = _line(profile, row, systems[own][0], curves[own])
        lines.append(line.model_copy(update={"tried": tuple(tries[place])}))
    return Reproduction(
        tool_version=__version__,
        name=profile.name,
        title=profile.title,
        source=profile.source,
        setting=profile.setting,
        chosen=profile.chosen,
        command=_command(profile.name, quick=quick, seeds=seeds, seed=seed, only=only),
        versions=versions(),
        hardware=hardware(),
        seed=seed,
        seeds=count,
        quick=quick,
        confidence=_CONFIDENCE,
        target=profile.target,
        data=systems[0].data.facts,
        lines=tuple(lines),
    )


class _Builder:
    """Builds the systems of a profile; data that several of them use are read once."""

    def __init__(self, profile: Profile, *, quick: bool, device: str) -> None:
        self._profile, self._quick, self._device = profile, quick, device
        self._loaded = Loaded()

    def system(self, row: ProfileRow, settings: Mapping[str, Any], seed: int, *, validated: bool = False) -> System:
        config = self._profile.config(
            row, settings, seed=seed, quick=self._quick, device=self._device, validated=validated
        )
        return build_system(config, 0, self._loaded.data(config))


def _line(profile: Profile, row: ProfileRow, system: System, curves: Sequence[LearningCurve]) -> TrainedLine:
    return TrainedLine(
        key=row.key,
        title=row.title or row.key,
        engine=system.engine_name,
        settings=system.settings_facts,
        figures=tuple(_figure(measure, paper, profile.target, curves) for measure, paper in row.paper.items()),
        guarantee=None if row.protected is None else _guarantee(row.protected, system),
        explained=row.explained,
        curves=tuple(curves),
    )


def _figure(measure: str, paper: float, target: float | None, curves: Sequence[LearningCurve]) -> Figure:
    values = tuple(_value(measure, target, curve) for curve in curves)
    reached = [value for value in values if value is not None]
    if len(reached) < len(values):
        return Figure(measure=measure, paper=paper, values=values, mean=None)
    limits = (0.0, 100.0) if measure in SHARES else (0.0, float("inf"))
    mean, low, high = mean_interval(reached, _CONFIDENCE, limits)
    return Figure(measure=measure, paper=paper, values=values, mean=mean, low=low, high=high)


def _value(measure: str, target: float | None, curve: LearningCurve) -> float | None:
    """One measure of one training; None where the target was not reached."""
    if measure == "accuracy":
        return 100 * curve.accuracy[-1]
    if measure == "auc":
        return 100 * curve.auc[-1]
    assert target is not None
    costs = {
        "megabytes": curve.megabytes,
        "mebibytes": tuple(count * 10**6 / 2**20 for count in curve.megabytes),
        "seconds": curve.seconds,
    }
    return curve.until(target / 100, costs[measure])


def _guarantee(protected: Protected, system: System) -> Guarantee:
    exposure = system.ledger.exposure(Adversary.parse(protected.view), parse_unit(protected.unit))
    budget = account(find("accountant", _ACCOUNTANT)(), exposure, system.delta)
    return Guarantee(
        claimed=protected.claimed,
        accounted=budget.upper,
        delta=system.delta,
        unit=protected.unit,
        view=protected.view,
        unprotected=exposure.unprotected,
    )


def _command(name: str, *, quick: bool, seeds: int | None, seed: int, only: Sequence[str]) -> str:
    parts = ["vflpriv", "reproduce", name, *(["--quick"] if quick else [])]
    parts += ["--seeds", str(seeds)] if seeds is not None else []
    parts += ["--seed", str(seed)] if seed else []
    parts += [word for key in only for word in ("--only", key)]
    return shlex.join(parts)
