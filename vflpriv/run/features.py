"""Attacks for `vflpriv attack` and `vflpriv audit`: what a configuration asks for, and the results as rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.score import Column
from vflpriv.audits.scoring.trainings import Training, attempt_work
from vflpriv.audits.scoring.trials import Trials
from vflpriv.common.registry import available, find
from vflpriv.config.models import Config
from vflpriv.core.attack import NO_DEFENCE, FeatureAttack
from vflpriv.core.data import VerticalData
from vflpriv.core.source import Source
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.attacks import Cell, ColumnRow, FeatureCell
from vflpriv.report.pictures import sheet
from vflpriv.run.budgets import accounted

__all__ = ["FeaturePlan", "budget_fields", "chosen_attacks", "feature_cell", "label_cell", "parse_views", "trials_of"]

_SECTION = "attack.features"
_MODEL_HOLDER = Adversary("model")


def trials_of(config: Config, system: System) -> Trials:
    """How a system is attacked, as the configuration has it."""
    section = config.attack.features
    told: dict[str, Any] = {}
    if section is not None:
        told = {"known": section.known_records, "victim": section.victim, "attribute": section.sensitive_column}
        told |= {"pairs": section.candidates // 2, "shadow_models": section.shadow_models}
    return Trials(
        system=system,
        seeds=config.attack.seeds,
        confidence=config.confidence,
        labels_per_class=config.attack.labels_per_class,
        **told,
    )


def chosen_attacks(
    names: Sequence[str] | None, section: str, is_meant: Callable[[str], bool], expected: str
) -> list[Any]:
    """The attacks with these names whose targets are meant; without names, all of these but those that take long."""
    if names is None:
        return [t() for t in available("attack").values() if is_meant(t.target) and not t.heavy]
    chosen = [find("attack", name)() for name in names]
    for attack in chosen:
        if not is_meant(attack.target):
            raise InputError(f"{section}.attacks", attack.name, expected)
    return chosen


@dataclass(frozen=True, kw_only=True)
class FeaturePlan:
    """The attacks on features and membership that a configuration asks for; none without its section."""

    config: Config
    attacks: Sequence[FeatureAttack] = ()
    adversaries: Sequence[Adversary] = ()

    @classmethod
    def of(cls, config: Config, data: VerticalData) -> FeaturePlan:
        """Read the plan from the configuration; what does not fit the data is refused."""
        section = config.attack.features
        if section is None:
            return cls(config=config)
        victim = data.devices - 1 if section.victim is None else section.victim
        if victim >= data.devices:
            raise InputError(f"{_SECTION}.victim", victim, f"a device below {data.devices}")
        column, width = section.sensitive_column, data.blocks[victim][0].numel()
        if column is not None and column >= width:
            raise InputError(f"{_SECTION}.sensitive_column", column, f"a column below {width}")
        for name in section.defences or ():
            if name not in (NO_DEFENCE, *config.attack.defences, *(v.name for v in config.attack.variants)):
                expected = ", ".join((NO_DEFENCE, *config.attack.defences))
                raise InputError(f"{_SECTION}.defences", name, f"one of {expected}")
        expected = "attacks on features; those on labels go into attack"
        attacks = chosen_attacks(section.attacks, _SECTION, lambda target: target != "labels", expected)
        return cls(config=config, attacks=attacks, adversaries=parse_views(section.views, data.devices))

    def applies(self, defence: str = NO_DEFENCE) -> bool:
        """Whether any attack on features or membership is tried under this defence."""
        section = self.config.attack.features
        if section is None or not self.attacks:
            return False
        names = {defence, *(v.section for v in self.config.attack.variants if v.name == defence)}
        return section.defences is None or not names.isdisjoint(section.defences)

    @property
    def observing(self) -> list[FeatureAttack]:
        """The attacks that read a training as those on labels do: all but those on membership."""
        return [attack for attack in self.attacks if attack.target != "membership"]

    def trainings(self, defence: str = NO_DEFENCE, *, shared: bool = False) -> int:
        """How many trainings these attacks need under this defence; `shared` if those on features are given theirs."""
        if not self.applies(defence):
            return 0
        observing = self.observing
        shadows = any("shadows" in attack.knows for attack in self.attacks)
        return bool(observing and not shared) + (len(observing) < len(self.attacks)) + shadows

    def work(self, system: System, defence: str = NO_DEFENCE, *, shared: bool = False) -> int:
        """Replica-rounds of these trainings, attempts included, for the progress bar."""
        if not self.applies(defence):
            return 0
        attempts = len(self.attacks) * len(self.adversaries)
        return self.trainings(defence, shared=shared) * system.schedule.rounds + attempts * attempt_work(system)

    def cells(
        self,
        key: str,
        system: System,
        *,
        defence: str = NO_DEFENCE,
        training: Training | None = None,
        advance: Callable[[int], None],
    ) -> list[FeatureCell]:
        """Try every attack through every view of the system with this key, under one defence.

        `training` is one of all seeds with honest devices, and with all that the attacks on features read.
        """
        trials = trials_of(self.config, system)
        attempts = trials.run(self.attacks, self.adversaries, training=training, advance=advance)
        budget = partial(budget_fields, self.config.accountant)
        budgets = {who: budget(system, who, Unit.FEATURES) for who in self.adversaries}
        # Predictions are post-processing of the trained model: the budget of its holder bounds what they tell anyone.
        guessed = any(attempt.target == "membership" for attempt in attempts)
        of_members = budget(trials.membership.trained, _MODEL_HOLDER, Unit.RECORD) if guessed else {}
        return [
            feature_cell(
                {"system": key, "defence": defence}
                | (of_members if attempt.target == "membership" else budgets[attempt.adversary]),
                attempt,
            )
            for attempt in attempts
        ]


def parse_views(texts: Sequence[str], devices: int) -> list[Adversary]:
    """The adversaries that these texts name, `device` standing for each of them; unknown device numbers are refused."""
    adversaries = [adversary for text in texts for adversary in Adversary.parse(text).each(devices)]
    for adversary in adversaries:
        adversary.members(devices)
    return adversaries


# Results as rows


def budget_fields(accountant: str, system: Source, adversary: Adversary, unit: Unit) -> dict[str, Any]:
    """The accounted budget of a unit against an adversary, as fields of a cell."""
    budget = accounted(accountant, system, adversary, unit)
    return {"unit": unit, "epsilon": budget.upper, "delta": budget.delta}


def label_cell(fields: Mapping[str, Any], attempt: Attempt) -> Cell:
    """One attack on labels through one view; `fields` are those of the cell that the attempt does not say."""
    return Cell(**fields, **_common(attempt))


def feature_cell(fields: Mapping[str, Any], attempt: Attempt) -> FeatureCell:
    """One attack on features or membership through one view; `fields` as for labels."""
    score, pictures = attempt.mean, attempt.pictures
    told = {"victim": attempt.victim, "knows": tuple(sorted(attempt.knows))}
    if score is None:
        measure = {"measure": "AUC"} if attempt.target == "membership" else {}
        return FeatureCell(**fields, **_common(attempt), **told, **measure)
    figures: dict[str, float] = {}
    for name, figure in score.figures.items():
        figures |= {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}
    columns = tuple(map(_column_row, score.columns))
    return FeatureCell(
        **fields,
        **_common(attempt),
        **told,
        measure=score.measure.name,
        **score.numbers,
        **figures,
        columns=columns,
        picture=None if pictures is None else sheet(pictures.numpy()),
        map=None if pictures is None else _map(columns, pictures.shape[2:]),
    )


def _common(attempt: Attempt) -> dict[str, Any]:
    """The fields that every cell has: which attack, through whose view, and how well it did or why it was not tried."""
    fields = {"attack": attempt.attack, "adversary": str(attempt.adversary), "adaptive": attempt.adaptive}
    score = attempt.mean
    if score is None:
        return {**fields, "not_applicable": attempt.refusal}
    success = {f"success{end}": getattr(score, name) for end, name in _ENDS.items()}
    leakage = {"leakage": score.leakage.value, "low": score.leakage.low, "high": score.leakage.high}
    baselines = {name: getattr(score, name) for name in ("chance", "blind", "guesses", "population")}
    return {**fields, **success, **leakage, "leakage_error": score.leakage.error, **baselines}


_ENDS = {"": "value", "_low": "low", "_high": "high", "_error": "error"}


def _column_row(column: Column) -> ColumnRow:
    r2 = column.r2
    ends = {} if r2 is None else {"value": r2.value, "low": r2.low, "high": r2.high}
    return ColumnRow(error=column.error, mean_error=column.mean_error, **ends)


def _map(columns: Sequence[ColumnRow], shape: Sequence[int]) -> str:
    """The R² of every pixel as a picture: black is no better than the mean, white is exact; channels side by side."""
    values = np.array([c.value or 0.0 for c in columns]).reshape(1, shape[0], 1, *shape[1:])
    return sheet(values)
