"""The part of `vflpriv attack` that goes after one device's features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vflpriv.audits.feature_trials import FeatureTrials, FeatureTried
from vflpriv.budgets import Budget
from vflpriv.config import Config
from vflpriv.data import VerticalData
from vflpriv.errors import InputError
from vflpriv.feature_attempts import FeatureAttack
from vflpriv.registry import available, find
from vflpriv.render_pictures import sheet
from vflpriv.report_attacks import FeatureCell, TrainedRow
from vflpriv.report_budgets import accounted
from vflpriv.systems import System
from vflpriv.units import Unit
from vflpriv.views import Adversary

__all__ = ["FeatureAttempts"]

_NONE = "none"
_WHERE = "attack.features"


@dataclass(frozen=True, kw_only=True)
class FeatureAttempts:
    """What a configuration wants tried on features; nothing without its section."""

    config: Config
    attacks: Sequence[FeatureAttack] = ()
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
        return cls(config=config, attacks=_chosen(section.attacks), adversaries=adversaries, victim=victim)

    def wanted(self, row: TrainedRow) -> bool:
        """Whether features are attacked under this row's defence."""
        section = self.config.attack.features
        return section is not None and (section.defences is None or row.defence in section.defences)

    def cells(self, row: TrainedRow, system: System, *, advance: Callable[[int], None]) -> list[FeatureCell]:
        """Every attack through every view of one system."""
        section = self.config.attack.features
        assert section is not None
        trials = FeatureTrials(
            system=system,
            seeds=self.config.attack.seeds,
            confidence=self.config.confidence,
            known=section.known_records,
            victim=self.victim,
            attribute=section.sensitive_column,
        )
        tried = trials.run(self.attacks, self.adversaries, advance=advance)
        budgets = {a: accounted(self.config.accountant, system, a, Unit.FEATURES) for a in self.adversaries}
        return [_cell(row, one, budgets[one.adversary]) for one in tried]


def _chosen(names: Sequence[str] | None) -> list[FeatureAttack]:
    if names is None:
        return [t() for t in available("attack").values() if t.target != "labels" and not t.heavy]
    chosen = [find("attack", name)() for name in names]
    for attack in chosen:
        if attack.target == "labels":
            raise InputError(f"{_WHERE}.attacks", attack.name, "attacks on features; those on labels go into attack")
    return chosen


def _cell(row: TrainedRow, tried: FeatureTried, budget: Budget) -> FeatureCell:
    words: dict[str, Any] = {
        "system": row.system,
        "defence": row.defence,
        "attack": tried.attack,
        "adversary": str(tried.adversary),
        "victim": tried.victim,
        "knows": tuple(sorted(tried.knows)),
        "epsilon": budget.upper,
        "delta": budget.delta,
    }
    leak = tried.leak
    if leak is None:
        return FeatureCell(**words, not_applicable=tried.refusal)
    same = ("measure", "chance", "blind", "leakage", "error", "mean_error", "psnr", "ssim", "ssim_low", "ssim_high")
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
        picture=None if tried.pictures is None else sheet(tried.pictures.numpy()),
    )
