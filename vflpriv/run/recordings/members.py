"""Attacks on membership in a recorded training, where the coins of `plant_members` decided who was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from vflpriv.audits.ciphertexts import Sealed
from vflpriv.audits.learned.recorded import Split
from vflpriv.audits.recorded.membership import HOW_TO_PLANT, MEMBER_UNITS, member_split, membership_refusal
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.membership import Members
from vflpriv.audits.scoring.queries import queries
from vflpriv.core.attack import NO_DEFENCE, FeatureAttack
from vflpriv.core.canaries import MemberCanaries
from vflpriv.core.kinds import Content, names_of
from vflpriv.core.systems import Offer
from vflpriv.core.units import Unit
from vflpriv.core.views import DEVICES_TRIED, Adversary, View
from vflpriv.recording.files.checks import readable
from vflpriv.recording.system import RecordedSystem
from vflpriv.report.attacks import FeatureCell
from vflpriv.run.recordings.views import view_of
from vflpriv.run.summary.cells import budget_fields, feature_cell

__all__ = ["MembershipResults", "try_membership"]

_USUAL = ("server", "device(0)", "model")
_NO_QUERIES = "needs messages of one round about all candidates, those left out too: predictions after the training"
_NO_LABELS = "needs the labels of all candidates: call wire.labels(...) while recording"


@dataclass(frozen=True, kw_only=True)
class MembershipResults:
    """What membership attacks reached: the attempts with the views that they read, and as cells of the report."""

    cells: Sequence[FeatureCell] = ()
    attempts: Sequence[Attempt] = ()
    views: Sequence[View] = ()
    not_tested: Sequence[str] = ()


def try_membership(system: RecordedSystem, attacks: Sequence[FeatureAttack], sealed: Sealed) -> MembershipResults:
    """Guess who was trained on through the usual views and those of claims about records."""
    canaries, seed = system.members, system.config.seed
    if canaries is None:
        named = attacks if system.config.attacks is not None else ()
        wanted = named or any(claim.unit in MEMBER_UNITS for claim in system.claims)
        # A training function has trials in two worlds for what coins would measure.
        lines = [f"membership: no coins were recorded; {HOW_TO_PLANT}"] if wanted else []
        lines = [] if Offer.WORLDS in system.offers else lines
        return MembershipResults(cells=[_unrecorded(system, attack) for attack in named], not_tested=lines)
    split = member_split(system, seed)
    if split is None or membership_refusal(system, seed) is not None:
        return MembershipResults()
    return _Membership(system, canaries, split, sealed).results(attacks)


@dataclass(frozen=True, eq=False)
class _Membership:
    """Guesses about the membership canaries of one recording."""

    system: RecordedSystem
    canaries: MemberCanaries
    split: Split
    sealed: Sealed

    def results(self, attacks: Sequence[FeatureAttack]) -> MembershipResults:
        """All attempts through all views."""
        views = [queries(_asking_view(self.system, a, self.sealed), self.canaries) for a in self._adversaries()]
        attempts = [self._attempt(attack, self._computable(view)) for view in views for attack in attacks]
        return MembershipResults(cells=[self._cell(a) for a in attempts], attempts=attempts, views=views)

    def _adversaries(self) -> list[Adversary]:
        """The usual ones, and those of the claims, of "any device" the first few."""
        devices = self.system.schedule.devices
        claimed = [c.adversary for c in self.system.claims if c.unit in MEMBER_UNITS]
        single = [member for adversary in claimed for member in adversary.each(devices)[:DEVICES_TRIED]]
        return list(dict.fromkeys((*map(Adversary.parse, _USUAL), *single)))

    def _attempt(self, attack: FeatureAttack, view: View) -> Attempt:
        """Try one attack on the queries of a view. It is told the coins in `split.told`, and scored on the others."""
        if not view.messages:
            return Attempt.of(attack, view.adversary, refusal=_NO_QUERIES)
        answers, config, records = self.system.answers, self.system.config, self.system.recording.head.records
        labels = torch.full((records,), -1) if answers is None else answers.labels
        unlabelled = view.classes < 2 or bool((labels[self.canaries.records] < 0).any())
        if "labels" in attack.knows and unlabelled:
            return Attempt.of(attack, view.adversary, refusal=_NO_LABELS)
        trained = torch.zeros(1, records, dtype=torch.bool)
        trained[0, self.canaries.candidates[self.canaries.trained]] = True
        told = self.canaries.candidates[torch.from_numpy(np.sort(self.split.told))].flatten()
        members = Members(
            trained=trained, labels=labels, known=told, seed=config.seed, confidence=config.confidence, tolerant=True
        )
        return members.attempt(attack, view)

    def _computable(self, view: View) -> View:
        return replace(view, messages=tuple(readable(m, self.system.classes) for m in view.messages))

    def _cell(self, attempt: Attempt) -> FeatureCell:
        # Predictions are post-processing of the trained model: the budget of its holder bounds what they tell anyone.
        accountant, holder = self.system.config.accountant, Adversary("model")
        fields = budget_fields(accountant, self.system, holder, self.canaries.unit)
        return feature_cell({"system": self.system.key, "defence": NO_DEFENCE} | fields, attempt)


def _unrecorded(system: RecordedSystem, attack: FeatureAttack) -> FeatureCell:
    """The cell of an attack that was asked for, although there are no coins."""
    refusal = "needs coins that decide who is trained on: vflpriv.plant_members(...) and wire.members(canaries)"
    attempt = Attempt.of(attack, Adversary("server"), refusal=refusal)
    return feature_cell({"system": system.key, "defence": NO_DEFENCE, "unit": Unit.RECORD}, attempt)


def _asking_view(system: RecordedSystem, adversary: Adversary, sealed: Sealed) -> View:
    """What an adversary sees, with the ids of what it asks for itself.

    An outsider sees the predictions that leave the system, and knows whom it asked about; the holder of the model
    computes them itself.
    """
    if adversary.knows_batches:
        return view_of(system, adversary, sealed)
    asked = names_of(content=Content.CONFIDENCES)
    if not adversary.holds_model:
        asked &= view_of(system, adversary, sealed).kinds
    answers = (m for m in system.messages if m.kind in asked and not sealed.hides(m, adversary))
    return View(adversary, tuple(answers), system.classes)
