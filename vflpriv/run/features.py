"""Attacks that a configuration asks for, in `vflpriv attack` and `vflpriv audit`: which, through which views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.trainings import Training, attempt_work
from vflpriv.audits.scoring.trials import Trials
from vflpriv.common.registry import available, find
from vflpriv.config.models import Config
from vflpriv.core.attack import NO_DEFENCE, FeatureAttack
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.attacks import FeatureCell
from vflpriv.run.summary.cells import budget_fields, feature_cell

__all__ = ["FeaturePlan", "chosen_attacks", "parse_views", "trials_of"]

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
    names: Sequence[str] | None,
    section: str,
    is_meant: Callable[[str], bool],
    expected: str,
    *,
    malicious: bool = False,
) -> list[Any]:
    """The attacks with these names whose targets are meant; without names, all of these but those that take long, and
    those of a `malicious` server where these are wanted."""
    if names is None:
        meant = [t for t in available("attack").values() if is_meant(t.target) and not t.heavy]
        return [t() for t in meant if malicious or not getattr(t, "forges", False)]
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
        texts = data.reads_tokens(victim)
        if texts and column is not None and not 0 < column < (data.vocabulary or column + 1):
            expected = f"a token id of 1 to {(data.vocabulary or 0) - 1}, since device {victim} holds texts"
            raise InputError(f"{_SECTION}.sensitive_column", column, expected)
        if not texts and column is not None and column >= width:
            raise InputError(f"{_SECTION}.sensitive_column", column, f"a column below {width}")
        for name in section.defences or ():
            if name not in (NO_DEFENCE, *config.attack.defences, *(v.name for v in config.attack.variants)):
                expected = ", ".join((NO_DEFENCE, *config.attack.defences))
                raise InputError(f"{_SECTION}.defences", name, f"one of {expected}")
        # Token ids are names: a figure of R² on them would say nothing.
        others, expected = ("labels", "integrity", "tokens"), "attacks on features; those on labels go into attack"
        if texts:
            others, expected = (
                ("labels", "integrity", "features"),
                f"attacks on texts, since device {victim} holds token ids",
            )
        elif "tokens" in {find("attack", name).target for name in section.attacks or ()}:
            expected = f"attacks on numbers, since device {victim} holds no token ids"
        attacks = chosen_attacks(
            section.attacks,
            _SECTION,
            lambda target: target not in others,
            expected,
            malicious=config.attack.malicious,
        )
        published = next((a for a in attacks if section.attacks and "published" in a.knows), None)
        if published is not None and not any(system.engine.get("encoder") for system in config.system):
            expected = "a system that starts from published weights: bottom = transformer-embedding, and its encoder"
            raise InputError(f"{_SECTION}.attacks", published.name, expected)
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
        """The attacks that read a training as those on labels do: all but those on a property and on membership."""
        return [attack for attack in self.attacks if attack.target not in ("property", "membership")]

    def trainings(self, defence: str = NO_DEFENCE, *, shared: bool = False) -> int:
        """How many trainings these attacks need under this defence; `shared` if those on features are given theirs."""
        if not self.applies(defence):
            return 0
        own = {word for attack in self.attacks for word in ("shadows", "own-trainings") if word in attack.knows}
        guessed = any(attack.target == "membership" for attack in self.attacks)
        return bool(self.observing and not shared) + guessed + len(own)

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
        properties = {who: budget(system, who, Unit.CLIENT) for who in self.adversaries} if self._of_properties else {}
        # Predictions are post-processing of the trained model: the budget of its holder bounds what they tell anyone.
        guessed = any(attempt.target == "membership" for attempt in attempts)
        of_members = budget(trials.membership.trained, _MODEL_HOLDER, Unit.RECORD) if guessed else {}

        def accounted(attempt: Attempt) -> dict[str, Any]:
            if attempt.target == "membership":
                return of_members
            return (properties if attempt.target == "property" else budgets)[attempt.adversary]

        return [feature_cell({"system": key, "defence": defence} | accounted(a), a) for a in attempts]

    @property
    def _of_properties(self) -> bool:
        return any(attack.target == "property" for attack in self.attacks)


def parse_views(texts: Sequence[str], devices: int) -> list[Adversary]:
    """The adversaries that these texts name, `device` standing for each of them; unknown device numbers are refused."""
    adversaries = [adversary for text in texts for adversary in Adversary.parse(text).each(devices)]
    for adversary in adversaries:
        adversary.members(devices)
    return adversaries
