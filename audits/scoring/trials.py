"""Attacks on a system that an engine trains: every attack through every view, in trainings with several seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vflpriv.audits.scoring.attempts import Attempt, Secret
from vflpriv.audits.scoring.candidates import SHADOW_MODELS, MembershipTraining
from vflpriv.audits.scoring.features import Features, sensitive
from vflpriv.audits.scoring.labels import LABELS_PER_CLASS, Labels
from vflpriv.audits.scoring.others import other_people
from vflpriv.audits.scoring.properties import PropertyTraining
from vflpriv.audits.scoring.trainings import Training, attempt_work, needed_kinds, train
from vflpriv.common.devices import precise_device
from vflpriv.core.attack import Attack, Conduct, OtherPeople
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER

__all__ = ["Trials"]

Advance = Callable[[int], None] | None


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Trains a system once for all attacks of honest devices, once for each malicious conduct, once for membership.

    Each seed is a replica of its own. An attack is told labels of each class (`labels_per_class`), or the rows, the
    sensitive column (`attribute`) or the membership of `known` records, each seed others. Features are those of device
    `victim`, the last one if None. Candidates for membership are `pairs` pairs; attacks that need them are given so
    many `shadow_models`.
    """

    system: System
    seeds: int
    confidence: float
    labels_per_class: int = LABELS_PER_CLASS
    known: int = 100
    victim: int | None = None
    attribute: int | None = None
    pairs: int = 200
    shadow_models: int = SHADOW_MODELS

    def run(
        self,
        attacks: Sequence[Any],
        adversaries: Sequence[Adversary],
        *,
        training: Training | None = None,
        advance: Advance = None,
    ) -> tuple[Attempt, ...]:
        """Try every attack through every view; those on a property and on membership come last.

        `training` is one of honest devices with all that the others read (`training`).
        """
        observing = [attack for attack in attacks if attack.target not in ("membership", "property")]
        attempts: list[Attempt] = []
        if observing:
            training = training or self.training(observing, adversaries, advance=advance)
            secrets, honest = self._secrets(training, self._others(observing)), training.views(adversaries)
            for attack in observing:
                for adversary in adversaries:
                    secret = secrets[attack.target]
                    view = self._dishonest(attack, honest[adversary], secret) or honest[adversary]
                    attempts.append(self._attempt(secret, attack, view, advance))
        properties = [attack for attack in attacks if attack.target == "property"]
        if properties:
            attempts += self._of_property(properties, adversaries, advance)
        guessing = [attack for attack in attacks if attack.target == "membership"]
        if guessing:
            views = self.membership.views(adversaries, advance)
            shadows = any("shadows" in attack.knows for attack in guessing)
            members = self.membership.secret(confidence=self.confidence, shadows=shadows, advance=advance)
            attempts += [self._attempt(members, a, views[who], advance) for a in guessing for who in adversaries]
        return tuple(attempts)

    def training(
        self, attacks: Sequence[Attack], adversaries: Sequence[Adversary], *, advance: Advance = None
    ) -> Training:
        """A training of honest devices with all that these attacks read through the views of these adversaries."""
        knows: frozenset[str] = frozenset().union(*(getattr(attack, "knows", ()) for attack in attacks))
        on_labels = all(attack.target == "labels" for attack in attacks)
        return train(
            self.system,
            self.seeds,
            needed_kinds(self.system, attacks),
            devices=self._links(adversaries) if on_labels else None,
            white="model" in knows,
            advance=advance,
        )

    @cached_property
    def membership(self) -> MembershipTraining:
        """The training in which coins decide who takes part."""
        return MembershipTraining(
            system=self.system, seeds=self.seeds, pairs=self.pairs, known=self.known, shadow_models=self.shadow_models
        )

    def _of_property(self, attacks: Sequence[Any], adversaries: Sequence[Adversary], advance: Advance) -> list[Attempt]:
        """Attacks on the share of the victim's records that have the sensitive attribute."""
        victim = self.system.data.devices - 1 if self.victim is None else self.victim
        block = self.system.data.blocks[victim]
        training = PropertyTraining(
            system=self.system,
            victim=victim,
            attribute=None if self.attribute is None else sensitive(block, self.attribute),
            models=self.shadow_models,
            confidence=self.confidence,
        )
        return training.attempts(attacks, adversaries, needed_kinds(self.system, attacks), advance)

    def _attempt(self, secret: Secret, attack: Attack, view: View, advance: Advance) -> Attempt:
        attempt = secret.attempt(attack, view)
        if advance is not None:
            advance(attempt_work(self.system))
        return attempt

    def _others(self, attacks: Sequence[Any]) -> OtherPeople | None:
        """The adversary's own training on the records that are held out, for attacks that know one."""
        asking = [attack for attack in attacks if "others" in getattr(attack, "knows", ())]
        if not asking or self.attribute is None:
            return None
        victim = self.system.data.devices - 1 if self.victim is None else self.victim
        return other_people(self.system, self.seeds, needed_kinds(self.system, asking), victim, self.attribute)

    def _secrets(self, training: Training, others: OtherPeople | None) -> dict[str, Secret]:
        """What attacks on this system guess, by their target."""
        system, where = self.system, precise_device(self.system.torch_device)
        common: dict[str, Any] = {
            "seed": system.seed,
            "confidence": self.confidence,
            "seeds": self.seeds,
            "defences": system.defences,
        }
        mechanism = system.engine.mechanisms(system.settings, system.schedule).get("embeddings")
        features = Features(
            blocks={m: block.to(where) for m, block in enumerate(system.data.blocks)},
            victim=system.data.devices - 1 if self.victim is None else self.victim,
            known=self.known,
            attribute=self.attribute,
            models=training.models,
            published=training.published,
            others=others,
            noise_std=0.0 if mechanism is None else mechanism.noise_std,
            **common,
        )
        labels = Labels(
            truth=system.data.labels.to(where),
            classes=system.data.classes,
            labels_per_class=self.labels_per_class,
            start=training.start,
            **common,
        )
        return {"labels": labels, "features": features, "attribute": features, "tokens": features}

    def _dishonest(self, attack: Any, honest: View, secret: Secret) -> View | None:
        """What the adversary sees where its parties behave as the attack has it; None if they are honest."""
        conduct, adversary = getattr(attack, "conduct", None), honest.adversary
        if getattr(attack, "forges", False):
            return self._forged(attack, honest, secret)
        if conduct is None or not honest.own or attack.refusal(honest) is not None:
            return None
        conducts = dict.fromkeys(adversary.members(self.system.data.devices), conduct)
        kinds, devices = needed_kinds(self.system, [attack]), self._links([adversary])
        return train(self.system, self.seeds, kinds, devices=devices, conducts=conducts).views([adversary])[adversary]

    def _forged(self, attack: Any, honest: View, secret: Secret) -> View | None:
        """What a malicious server sees; None where the attack cannot be tried."""
        auxiliaries, adversary = [secret.auxiliary(attack, r) for r in range(self.seeds)], honest.adversary
        if secret.refusal(attack, honest, auxiliaries) is not None:
            return None
        conducts = {SERVER.index: Conduct(name=attack.name, answer=attack.answers(auxiliaries))}
        kinds = needed_kinds(self.system, [attack])
        return train(self.system, self.seeds, kinds, conducts=conducts).views([adversary])[adversary]

    def _links(self, adversaries: Sequence[Adversary]) -> frozenset[int] | None:
        """The devices whose messages some adversary sees; None, for all, if an adversary is not a device."""
        if not all(adversary.is_device for adversary in adversaries):
            return None
        return frozenset(m for adversary in adversaries for m in adversary.members(self.system.data.devices))
