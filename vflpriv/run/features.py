"""What `vflpriv attack` and `vflpriv audit` do about one device's features, and about membership."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vflpriv.audits.scoring.features import FeatureAttempt, FeatureTrials
from vflpriv.audits.scoring.membership import MembershipAttempt, MembershipTrials
from vflpriv.common.pictures import sheet
from vflpriv.common.registry import available, find
from vflpriv.config.models import Config
from vflpriv.core.attack import FeatureAttack, MembershipAttack
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.attacks import ColumnRow, FeatureCell
from vflpriv.run.budgets import accounted

__all__ = ["FeatureAttempts"]

_NONE = "none"
_WHERE = "attack.features"
_HOLDER = Adversary("model")


@dataclass(frozen=True, kw_only=True)
class FeatureAttempts:
    """What a configuration wants tried on features; nothing without its section."""

    config: Config
    attacks: Sequence[FeatureAttack] = ()
    memberships: Sequence[MembershipAttack] = ()
    adversaries: Sequence[Adversary] = ()
    victim: int = 0

    @classmethod
    def of(cls, config: Config, data: VerticalData) -> FeatureAttempts:
        """Check the section against the data and what there is."""
        section = config.attack.features
        if section is None:
            return cls(config=config)
        victim = data.devices - 1 if section.victim is None else section.victim
        if victim >= data.devices:
            raise InputError(f"{_WHERE}.victim", victim, f"a device below {data.devices}")
        column, width = section.sensitive_column, data.blocks[victim][0].numel()
        if column is not None and column >= width:
            raise InputError(f"{_WHERE}.sensitive_column", column, f"a column below {width}")
        for name in section.defences or ():
            if name not in (_NONE, *config.attack.defences):
                expected = ", ".join((_NONE, *config.attack.defences))
                raise InputError(f"{_WHERE}.defences", name, f"one of {expected}")
        adversaries = [one for text in section.views for one in Adversary.parse(text).each(data.devices)]
        for adversary in adversaries:
            adversary.members(data.devices)
        chosen = _chosen(section.attacks)
        attacks, memberships = ([a for a in chosen if (a.target == "membership") == m] for m in (False, True))
        words: dict[str, Any] = {"attacks": attacks, "memberships": memberships, "adversaries": adversaries}
        return cls(config=config, **words, victim=victim)

    def trainings(self, defence: str = _NONE) -> int:
        """How many trainings attacks on features need under this defence."""
        section = self.config.attack.features
        if section is None or (section.defences is not None and defence not in section.defences):
            return 0
        return bool(self.attacks) + bool(self.memberships)

    def cells(
        self, key: str, system: System, *, defence: str = _NONE, advance: Callable[[int], None]
    ) -> list[FeatureCell]:
        """Every attack through every view of one system, `key`, under one defence."""
        names = {"system": key, "defence": defence}
        return [*self._features(names, system, advance), *self._memberships(names, system, advance)]

    def _features(
        self, names: Mapping[str, Any], system: System, advance: Callable[[int], None]
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
        tried = trials.run(self.attacks, self.adversaries, advance=advance)
        budgets = {adversary: self._budget(system, adversary, Unit.FEATURES) for adversary in self.adversaries}
        for one in tried:
            yield _cell({**names, **budgets[one.adversary]}, one)

    def _memberships(
        self, names: Mapping[str, Any], system: System, advance: Callable[[int], None]
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
        )
        # Predictions are post-processing of the trained model: its holder's budget bounds what anyone learns of them.
        budget = self._budget(trials.trained, _HOLDER, Unit.RECORD)
        for one in trials.run(self.memberships, self.adversaries, advance=advance):
            yield _membership_cell({**names, **budget}, one)

    def _budget(self, system: System, adversary: Adversary, unit: Unit) -> dict[str, Any]:
        """What is accounted for a unit under an adversary's eyes."""
        budget = accounted(self.config.accountant, system, adversary, unit)
        return {"unit": unit, "epsilon": budget.upper, "delta": budget.delta}


def _chosen(names: Sequence[str] | None) -> list[Any]:
    if names is None:
        return [t() for t in available("attack").values() if t.target != "labels" and not t.heavy]
    chosen = [find("attack", name)() for name in names]
    for attack in chosen:
        if attack.target == "labels":
            raise InputError(f"{_WHERE}.attacks", attack.name, "attacks on features; those on labels go into attack")
    return chosen


def _cell(names: Mapping[str, Any], tried: FeatureAttempt) -> FeatureCell:
    words = {**names, **_words(tried), "victim": tried.victim}
    leak = tried.leak
    if leak is None:
        return FeatureCell(**words, not_applicable=tried.refusal)
    same = ("measure", "chance", "blind", "leakage", "error", "mean_error", "psnr", "ssim", "ssim_low", "ssim_high")
    columns = tuple(ColumnRow(**asdict(column)) for column in leak.columns)
    pictures = tried.pictures
    return FeatureCell(
        **words,
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
    """The R² of every pixel as a picture: black is the mean or worse, white is exact; colours side by side."""
    values = np.array([c.value or 0.0 for c in columns]).reshape(1, shape[0], 1, *shape[1:])
    return sheet(values)


def _membership_cell(names: Mapping[str, Any], tried: MembershipAttempt) -> FeatureCell:
    words, leak = {**names, **_words(tried), "measure": "AUC"}, tried.leak
    if leak is None:
        return FeatureCell(**words, not_applicable=tried.refusal)
    found = leak.found
    return FeatureCell(
        **words,
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
        found=None if found is None else found.value,
        found_low=None if found is None else found.low,
        found_high=None if found is None else found.high,
    )


def _words(tried: FeatureAttempt | MembershipAttempt) -> dict[str, Any]:
    return {"attack": tried.attack, "adversary": str(tried.adversary), "knows": tuple(sorted(tried.knows))}
