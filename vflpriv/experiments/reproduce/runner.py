"""`vflpriv reproduce`: trains every row of a published table, several seeds each, and puts ours beside the paper's."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vflpriv import __version__
from vflpriv.audits.statistics.significance import mean_interval
from vflpriv.common.devices import check_device
from vflpriv.common.machine import hardware, single_threaded, versions
from vflpriv.common.registry import find
from vflpriv.common.store import Store
from vflpriv.common.tasks import Executor, InProcess
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary
from vflpriv.experiments.curves import LearningCurve, Try
from vflpriv.experiments.learning import TRIED_APART, Loaded, Trainer
from vflpriv.experiments.reproduce.profile import Profile, ProfileRow, Protected
from vflpriv.experiments.reproduce.result import SHARES, Figure, Guarantee, Reproduction, TrainedLine
from vflpriv.run.calibrate import parse_unit
from vflpriv.run.progress import Task, progress_bar
from vflpriv.run.selection import chosen_keys
from vflpriv.run.summary.budgets import account
from vflpriv.run.systems import build_system

__all__ = ["reproduce_profile"]

_CONFIDENCE = 0.95
_ACCOUNTANT = "auto"
_COUNTED = {"mebibytes": "megabytes"}
"""What a curve calls a measure, where it is not its name."""


@single_threaded()
def reproduce_profile(
    profile: Profile,
    *,
    quick: bool = False,
    share: float | None = None,
    seeds: int | None = None,
    seed: int = 0,
    only: Sequence[str] = (),
    device: str = "auto",
    store: Path | None = None,
    quiet: bool | None = None,
    executor: Executor | None = None,
) -> Reproduction:
    """Train the chosen rows, or a share of their rounds; trainings in the store are used again."""
    check_device(device)
    keys = chosen_keys([row.key for row in profile.row], only)
    rows = [row for row in profile.row if row.key in keys]
    count = seeds or (profile.quick.seeds if quick else profile.seeds)
    drop = profile.drop / 100 if profile.stop else None
    plan = _Plan(profile, rows, seed=seed, quick=quick, share=share, device=device)
    with progress_bar(quiet) as bar:
        task = Task(bar, plan.rounds(count))
        trainer = Trainer(store=Store(store), progress=task, executor=executor or InProcess(), long=not quick)
        tries = plan.tries(trainer, drop)
        chosen = {key: max(own, key=lambda t: t.accuracy).settings for key, own in tries.items() if own}
        systems = [plan.to_train(row, chosen, number) for row in rows for number in range(count)]
        lagrangian = any("rises" in {*row.paper, *profile.measures} for row in rows)
        curves = trainer.curves(systems, evaluations=profile.evaluations, drop=drop, lagrangian=lagrangian)
    lines = []
    for place, row in enumerate(rows):
        own = slice(place * count, (place + 1) * count)
        line = _line(profile, row, systems[own][0], curves[own])
        lines.append(line.model_copy(update={"tried": tuple(tries.get(row.key, ()))}))
    return Reproduction(
        tool_version=__version__,
        name=profile.name,
        title=profile.title,
        source=profile.source,
        setting=profile.setting,
        chosen=profile.chosen,
        command=_command(profile.name, quick=quick, share=share, seeds=seeds, seed=seed, only=only),
        versions=versions(),
        hardware=hardware(),
        seed=seed,
        seeds=count,
        quick=quick,
        smaller={**profile.quick.data, **profile.quick.engine} if quick else {},
        share=1.0 if share is None else share,
        drop=profile.drop if profile.stop else None,
        confidence=_CONFIDENCE,
        target=profile.target,
        data=systems[0].data.facts,
        lines=tuple(lines),
    )


class _Plan:
    """The trainings of these rows of a profile, and the tries that decide their settings; data are read once."""

    def __init__(
        self,
        profile: Profile,
        rows: Sequence[ProfileRow],
        *,
        seed: int,
        quick: bool,
        share: float | None,
        device: str,
    ) -> None:
        self._profile, self._rows, self._seed = profile, rows, seed
        self._quick, self._share, self._device = quick, share, device
        self._loaded = Loaded(tested=profile.quick.test if quick else None)
        self._leaders = {leader.key: leader for leader in map(profile.tried_by, rows)}
        self._choosing = [leader for leader in self._leaders.values() if len(leader.tries) > 1]

    def tries(self, trainer: Trainer, drop: float | None) -> dict[str, list[Try]]:
        """For each row whose tries decide settings, what each reaches on validation records; all train side by side.

        A row of less than two has nothing to choose from, and is not trained. With `drop` what counts is the best of
        the evaluations (see `learning_curve`), otherwise the last one.
        """
        pairs = [(leader, settings) for leader in self._choosing for settings in leader.tries]
        systems = [self._to_try(leader, settings) for leader, settings in pairs]
        evaluations = self._profile.evaluations if self._profile.stop else 1
        curves = trainer.curves(systems, evaluations=evaluations, part="validation", drop=drop)
        tries: dict[str, list[Try]] = {key: [] for key in self._leaders}
        for (leader, settings), curve in zip(pairs, curves, strict=True):
            tries[leader.key].append(Try(settings=settings, accuracy=curve.reached))
        return tries

    def to_train(self, row: ProfileRow, chosen: Mapping[str, Mapping[str, Any]], number: int) -> System:
        """The training of a row with the settings that were chosen for it, or the only ones, if it has any."""
        leader = self._profile.tried_by(row)
        only = leader.tries[0] if leader.tries else {}
        return self._system(row, chosen.get(leader.key, only), self._seed + number)

    def rounds(self, count: int) -> int:
        """The rounds of all tries and of `count` trainings of each row."""
        of_tries = [len(leader.tries) * self._to_try(leader, leader.tries[0]).rounds for leader in self._choosing]
        return sum(of_tries) + count * sum(self.to_train(row, {}, 0).rounds for row in self._rows)

    def _to_try(self, leader: ProfileRow, settings: Mapping[str, Any]) -> System:
        """The training, on other records than those of validation, of one of the choices."""
        return self._system(leader, settings, self._seed + TRIED_APART, validated=True)

    def _system(self, row: ProfileRow, settings: Mapping[str, Any], seed: int, *, validated: bool = False) -> System:
        config = self._profile.config(
            row,
            settings,
            seed=seed,
            quick=self._quick,
            share=self._share,
            device=self._device,
            validated=validated,
        )
        return build_system(config, 0, self._loaded.data(config))


def _line(profile: Profile, row: ProfileRow, system: System, curves: Sequence[LearningCurve]) -> TrainedLine:
    extra = [name for name in profile.measures if getattr(curves[0], _COUNTED.get(name, name)) not in (None, ())]
    measured = dict.fromkeys([*row.paper, *extra]) or {"accuracy": None}
    return TrainedLine(
        key=row.key,
        title=row.title or row.key,
        engine=system.engine_name,
        settings=system.settings_facts,
        figures=tuple(_figure(name, row.paper.get(name), profile.target, curves) for name in measured),
        guarantee=None if row.protected is None else _guarantee(row.protected, system, curves),
        explained=row.explained,
        curves=tuple(curves),
    )


def _figure(measure: str, paper: float | None, target: float | None, curves: Sequence[LearningCurve]) -> Figure:
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
        return 100 * curve.reached
    if measure == "auc":
        return 100 * curve.auc[curve.place]
    if measure == "rises":
        return None if curve.rises is None else float(curve.rises)
    assert target is not None
    costs = {
        "megabytes": curve.megabytes,
        "mebibytes": tuple(count * 10**6 / 2**20 for count in curve.megabytes),
        "seconds": curve.seconds,
    }
    return curve.until(target / 100, costs[measure])


def _guarantee(protected: Protected, system: System, curves: Sequence[LearningCurve]) -> Guarantee:
    """Of all rounds that were trained, also of those behind the one that is reported; the most of any seed."""
    trained = max(curve.rounds[-1] for curve in curves)
    ledger = replace(system, schedule=system.schedule.first(trained)).ledger
    exposure = ledger.exposure(Adversary.parse(protected.view), parse_unit(protected.unit))
    budget = account(find("accountant", _ACCOUNTANT)(), exposure, system.delta)
    return Guarantee(
        claimed=protected.claimed,
        accounted=budget.upper,
        delta=system.delta,
        unit=protected.unit,
        view=protected.view,
        unprotected=exposure.unprotected,
    )


def _command(name: str, *, quick: bool, share: float | None, seeds: int | None, seed: int, only: Sequence[str]) -> str:
    parts = ["vflpriv", "reproduce", name, *(["--quick"] if quick else [])]
    parts += ["--share", f"{share:g}"] if share is not None else []
    parts += ["--seeds", str(seeds)] if seeds is not None else []
    parts += ["--seed", str(seed)] if seed else []
    parts += [word for key in only for word in ("--only", key)]
    return shlex.join(parts)
