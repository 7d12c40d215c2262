"""Attacks on features and membership for `vflpriv attack` and `vflpriv audit`: the plan, and its results as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vflpriv.audits.scoring.features import FeatureAttempt, FeatureTrials
from vflpriv.audits.scoring.membership import Figure, MembershipAttempt, MembershipTrials
from vflpriv.audits.scoring.trainings import Training, attempt_work
from vflpriv.common.registry import available, find
from vflpriv.config.models import Config
from vflpriv.core.attack import NO_DEFENCE, FeatureAttack, MembershipAttack
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.attacks import ColumnRow, FeatureCell
from vflpriv.report.pictures import sheet
from vflpriv.run.budgets import accounted

__all__ = ["FeaturePlan", "feature_cell", "membership_cell", "parse_views"]

_SECTION = "attack.features"
_MODEL_HOLDER = Adversary("model")


@dataclass(frozen=True, kw_only=True)
class FeaturePlan:
    """The attacks on features and membership that a configuration asks for; none without its section."""

    config: Config
    attacks: Sequence[FeatureAttack] = ()
    memberships: Sequence[MembershipAttack] = ()
    adversaries: Sequence[Adversary] = ()
    victim: int = 0

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
        adversaries, chosen = parse_views(section.views, data.devices), _attacks(section.attacks)
        return cls(
            config=config,
            attacks=[attack for attack in chosen if attack.target != "membership"],
            memberships=[attack for attack in chosen if attack.target == "membership"],
            adversaries=adversaries,
            victim=victim,
        )

    def applies(self, defence: str = NO_DEFENCE) -> bool:
        """Whether any attack on features or membership is tried under this defence."""
        section = self.config.attack.features
        if section is None or not (self.attacks or self.memberships):
            return False
        names = {defence, *(v.section for v in self.config.attack.variants if v.name == defence)}
        return section.defences is None or not names.isdisjoint(section.defences)

    def trainings(self, defence: str = NO_DEFENCE, *, shared: bool = False) -> int:
        """How many trainings these attacks need under this defence; `shared` if those on features are given theirs."""
        if not self.applies(defence):
            return 0
        shadows = any("shadows" in attack.knows for attack in self.memberships)
        return bool(self.attacks and not shared) + bool(self.memberships) + shadows

    def work(self, system: System, defence: str = NO_DEFENCE, *, shared: bool = False) -> int:
        """Replica-rounds of these trainings, attempts included, for the progress bar."""
        if not self.applies(defence):
            return 0
        attempts = (len(self.attacks) + len(self.memberships)) * len(self.adversaries)
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
        fields = {"system": key, "defence": defence}
        return [*self._features(fields, system, training, advance), *self._memberships(fields, system, advance)]

    def _features(
        self, fields: Mapping[str, Any], system: System, training: Training | None, advance: Callable[[int], None]
    ) -> Iterator[FeatureCell]:
        section = self.config.attack.features
        if section is None or not self.attacks:
            return
        trials = FeatureTrials(
            system=system,
            seeds=self.config.attack.seeds,
            confidence=self.config.confidence,
            known=section.known_records,
            victim=self.victim,
            attribute=section.sensitive_column,
        )
        attempts = trials.run(self.attacks, self.adversaries, training=training, advance=advance)
        budgets = {adversary: self._budget(system, adversary, Unit.FEATURES) for adversary in self.adversaries}
        for attempt in attempts:
            yield feature_cell({**fields, **budgets[attempt.adversary]}, attempt)

    def _memberships(
        self, fields: Mapping[str, Any], system: System, advance: Callable[[int], None]
    ) -> Iterator[FeatureCell]:
        section = self.config.attack.features
        if section is None or not self.memberships:
            return
        trials = MembershipTrials(
            system=system,
            seeds=self.config.attack.seeds,
            confidence=self.config.confidence,
            pairs=section.candidates // 2,
            known=section.known_records,
            shadow_models=section.shadow_models,
        )
        # Predictions are post-processing of the trained model: the budget of its holder bounds what they tell anyone.
        budget = self._budget(trials.trained, _MODEL_HOLDER, Unit.RECORD)
        for attempt in trials.run(self.memberships, self.adversaries, advance=advance):
            yield membership_cell({**fields, **budget}, attempt)

    def _budget(self, system: System, adversary: Adversary, unit: Unit) -> dict[str, Any]:
        """The accounted budget of a unit against an adversary, as fields of a cell."""
        budget = accounted(self.config.accountant, system, adversary, unit)
        return {"unit": unit, "epsilon": budget.upper, "delta": budget.delta}


def parse_views(texts: Sequence[str], devices: int) -> list[Adversary]:
    """The adversaries that these texts name, `device` standing for each of them; unknown device numbers are refused."""
    adversaries = [adversary for text in texts for adversary in Adversary.parse(text).each(devices)]
    for adversary in adversaries:
        adversary.members(devices)
    return adversaries


def _attacks(names: Sequence[str] | None) -> list[Any]:
    """The attacks on features and membership with these names; without names, all but those that take long."""
    if names is None:
        return [t() for t in available("attack").values() if t.target != "labels" and not t.heavy]
    chosen = [find("attack", name)() for name in names]
    for attack in chosen:
        if attack.target == "labels":
            raise InputError(f"{_SECTION}.attacks", attack.name, "attacks on features; those on labels go into attack")
    return chosen


def feature_cell(fields: Mapping[str, Any], attempt: FeatureAttempt) -> FeatureCell:
    """One attack on features through one view; `fields` are those of the cell that the attempt does not say."""
    fields = {**fields, **_named(attempt), "victim": attempt.victim, "adaptive": attempt.adaptive}
    leak = attempt.leak
    if leak is None:
        return FeatureCell(**fields, not_applicable=attempt.refusal)
    same = ("measure", "chance", "blind", "leakage", "error", "mean_error", "psnr", "ssim", "ssim_low", "ssim_high")
    columns = tuple(ColumnRow(**asdict(column)) for column in leak.columns)
    pictures = attempt.pictures
    return FeatureCell(
        **fields,
        **{name: getattr(leak, name) for name in same},
        success=leak.value,
        success_low=leak.low,
        success_high=leak.high,
        success_error=leak.value_error,
        low=leak.leakage_low,
        high=leak.leakage_high,
        leakage_error=leak.leakage_error,
        guesses=leak.records,
        columns=columns,
        picture=None if pictures is None else sheet(pictures.numpy()),
        map=None if pictures is None else _map(columns, pictures.shape[2:]),
    )


def _map(columns: Sequence[ColumnRow], shape: Sequence[int]) -> str:
    """The R² of every pixel as a picture: black is no better than the mean, white is exact; channels side by side."""
    values = np.array([c.value or 0.0 for c in columns]).reshape(1, shape[0], 1, *shape[1:])
    return sheet(values)


def membership_cell(fields: Mapping[str, Any], attempt: MembershipAttempt) -> FeatureCell:
    """One attack on membership through one view; `fields` are those of the cell that the attempt does not say."""
    fields, leak = {**fields, **_named(attempt), "measure": "AUC"}, attempt.leak
    if leak is None:
        return FeatureCell(**fields, not_applicable=attempt.refusal)
    return FeatureCell(
        **fields,
        success=leak.auc.value,
        success_low=leak.auc.low,
        success_high=leak.auc.high,
        success_error=leak.auc_error,
        chance=leak.chance,
        leakage=leak.auc.value - leak.chance,
        low=leak.auc.low - leak.chance,
        high=leak.auc.high - leak.chance,
        leakage_error=leak.auc_error,
        guesses=leak.records,
        advantage=leak.advantage.value,
        advantage_low=leak.advantage.low,
        advantage_high=leak.advantage.high,
        **_figure("found", leak.found),
        **_figure("rarely_found", leak.rarely_found),
    )


def _figure(name: str, figure: Figure | None) -> dict[str, float]:
    """A figure and its interval as fields of a cell; none where it could not be measured."""
    if figure is None:
        return {}
    return {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}


def _named(attempt: FeatureAttempt | MembershipAttempt) -> dict[str, Any]:
    """The fields of a cell that say which attack it is, through whose view, and what it is told."""
    return {"attack": attempt.attack, "adversary": str(attempt.adversary), "knows": tuple(sorted(attempt.knows))}
