"""Membership in a recorded training: its attacks, and tests of claims by the coins that `plant_members` has thrown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from vflpriv.audits.ciphertexts import Sealed
from vflpriv.audits.learned.recorded import LEAST_CANARIES, Split, learned_membership
from vflpriv.audits.one_run import LEARNED, OneRunAudit, guess_members
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.membership import Members
from vflpriv.audits.scoring.queries import queries, training_refusal
from vflpriv.common.numerics import Floats
from vflpriv.core.attack import NO_DEFENCE, FeatureAttack, Guess
from vflpriv.core.audit import AuditContext, Finding, untested
from vflpriv.core.canaries import MemberCanaries
from vflpriv.core.claims import Claim
from vflpriv.core.kinds import Content, names_of
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary, View
from vflpriv.recording.files.checks import readable
from vflpriv.recording.system import RecordedSystem
from vflpriv.report.attacks import FeatureCell
from vflpriv.run.recordings.views import DEVICES_TRIED, view_of
from vflpriv.run.summary.cells import budget_fields, feature_cell

__all__ = ["MembershipResults", "try_membership"]

_UNITS = (Unit.RECORD, Unit.ADD_REMOVE)
_USUAL = ("server", "device(0)", "model")
_NO_QUERIES = "needs messages of one round about all candidates, those left out too: predictions after the training"
_NO_LABELS = "needs the labels of all candidates: call wire.labels(...) while recording"
_PLANT = (
    "members, canaries = vflpriv.plant_members(records=…, canaries=200, seed=…, unit=…) before training on `members`, "
    "wire.members(canaries) while recording, and predictions of canaries.records after the training measure claims "
    "about records"
)


@dataclass(frozen=True, kw_only=True)
class MembershipResults:
    """Attempts of membership attacks as cells of the report, tests of claims, and what was not tested."""

    cells: Sequence[FeatureCell] = ()
    findings: Sequence[Finding] = ()
    not_tested: Sequence[str] = ()


def try_membership(system: RecordedSystem, attacks: Sequence[FeatureAttack], sealed: Sealed) -> MembershipResults:
    """Guess who was trained on through the usual views and those of claims, and test the claims about records."""
    canaries, claims = system.members, [c for c in system.claims if c.unit in _UNITS]
    if canaries is None:
        named = attacks if system.config.attacks is not None else ()
        lines = [f"membership: no coins were recorded; {_PLANT}"] if claims or named else []
        return MembershipResults(cells=[_unrecorded(system, attack) for attack in named], not_tested=lines)
    split = Split.of_members(canaries, seed=system.config.seed)
    refusal = training_refusal(system.messages, canaries)
    if split is None:
        few = f"{len(canaries.worlds)} membership canaries were recorded"
        refusal = f"{few}, and fewer than {LEAST_CANARIES} say nothing"
    if refusal is not None or split is None:
        findings = [untested(OneRunAudit.name, c, f"nothing measured it: {refusal}") for c in claims]
        return MembershipResults(findings=findings, not_tested=[f"membership: {refusal}"])
    return _Membership(system, canaries, split, sealed).results(attacks)


@dataclass(frozen=True, eq=False)
class _Membership:
    """Guesses about the membership canaries of one recording."""

    system: RecordedSystem
    canaries: MemberCanaries
    split: Split
    sealed: Sealed

    def results(self, attacks: Sequence[FeatureAttack]) -> MembershipResults:
        """All attempts, and a test of each claim whose unit is that of the canaries."""
        attempts, scores = [], dict[tuple[Adversary, str], Floats]()
        for adversary in self._adversaries():
            view = queries(_asking_view(self.system, adversary, self.sealed), self.canaries)
            for attack in attacks:
                attempt = self._attempt(attack, self._computable(view))
                attempts.append(attempt)
                score = None if attempt.guess is None else self._by_canary(attempt.guess)
                scores |= {} if score is None else {(adversary, attack.name): score}
            learned = learned_membership(self.canaries, view, self.split, count=self.system.recording.head.records)
            scores |= {} if learned is None else {(adversary, LEARNED): learned}
        findings = [self._finding(claim, scores) for claim in self.system.claims if claim.unit in _UNITS]
        lines = [f"claim {f.claim} ({f.adversary}): {f.sentence}" for f in findings if f.is_untested]
        cells = [self._cell(attempt) for attempt in attempts]
        return MembershipResults(cells=cells, findings=findings, not_tested=lines)

    def _adversaries(self) -> list[Adversary]:
        """The usual ones, and those of the claims, of "any device" the first few."""
        devices = self.system.schedule.devices
        claimed = [c.adversary for c in self.system.claims if c.unit in _UNITS]
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

    def _by_canary(self, guess: Guess) -> Floats | None:
        """The score of each canary, where the attack has one of all candidates: positive where the first candidate
        looks trained on, rather than the second, or not."""
        table = torch.full((self.system.recording.head.records,), torch.nan, dtype=torch.float64)
        table[guess.records.cpu()] = guess.values[0].double().cpu()
        sides = table[self.canaries.candidates]
        scores = sides[:, 0] - sides[:, 1:].sum(1)
        return None if bool(scores.isnan().any()) else np.asarray(scores.numpy(), dtype=np.float64)

    def _computable(self, view: View) -> View:
        return replace(view, messages=tuple(readable(m, self.system.classes) for m in view.messages))

    def _cell(self, attempt: Attempt) -> FeatureCell:
        # Predictions are post-processing of the trained model: the budget of its holder bounds what they tell anyone.
        accountant, holder = self.system.config.accountant, Adversary("model")
        fields = budget_fields(accountant, self.system, holder, self.canaries.unit)
        return feature_cell({"system": self.system.key, "defence": NO_DEFENCE} | fields, attempt)

    def _finding(self, claim: Claim, scores: Mapping[tuple[Adversary, str], Floats]) -> Finding:
        """The test of one claim, or why there is none."""
        config, planted = self.system.config, self.canaries.unit
        if claim.unit is not planted:
            reason = f"the claim is about {claim.unit.description}, and coins decided about {planted.description}"
            return untested(OneRunAudit.name, claim, f"nothing measured it: {reason}; {_PLANT}")
        each = claim.adversary.each(self.system.schedule.devices)
        run = guess_members(self.canaries, self.split, {key: s for key, s in scores.items() if key[0] in each})
        if run is None:
            reason = f"{claim.adversary} sees no round that is about all canaries, those left out too"
            return untested(OneRunAudit.name, claim, f"nothing measured it: {reason}")
        context = AuditContext(confidence=config.confidence, verdict_confidence=config.verdict_confidence)
        return run.finding(claim, context)


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
