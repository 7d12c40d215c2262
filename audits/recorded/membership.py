"""The audit of claims about records by the coins that decided which records one recorded training was trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vflpriv.audits.learned.recorded import LEAST_CANARIES, Split, learned_membership
from vflpriv.audits.one_run import LEARNED, OneRunAudit, guess_members
from vflpriv.audits.scoring.queries import training_refusal
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.attack import Guess
from vflpriv.core.audit import Audit, AuditContext, Finding, untested
from vflpriv.core.canaries import MemberCanaries
from vflpriv.core.claims import Claim
from vflpriv.core.systems import Offer
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

__all__ = ["HOW_TO_PLANT", "MEMBER_UNITS", "MembershipAudit", "member_split", "membership_refusal"]

MEMBER_UNITS = (Unit.RECORD, Unit.ADD_REMOVE)
"""The units whose claims coins about records can test."""
HOW_TO_PLANT = (
    "members, canaries = vflpriv.plant_members(records=…, canaries=200, seed=…, unit=…) before training on `members`, "
    "wire.members(canaries) while recording, and predictions of canaries.records after the training measure claims "
    "about records"
)


@register("audit")
class MembershipAudit(Audit[Any]):
    """Guesses the coins by attacks on membership and by a learned score, and tests claims about records by them."""

    name = "membership"
    topic = OneRunAudit.name
    summary = "measures how many coins that decided who is trained on a view of a recorded training can guess"
    order = 52
    needs = frozenset({Offer.MESSAGES, Offer.LEDGER_FILE, Offer.MEMBER_COINS})

    def refusal(self, source: Any, context: AuditContext) -> str | None:
        reason = membership_refusal(source, context.seed)
        others = [claim for claim in context.claims if _is_ours(source, claim) and claim.unit not in MEMBER_UNITS]
        return reason and "; ".join((reason, *dict.fromkeys(_instead(source, claim) for claim in others)))

    def run(self, source: Any, context: AuditContext) -> list[Finding]:
        """A test of each claim whose unit is that of the canaries; of the others, why there is none."""
        split = member_split(source, context.seed)
        assert split is not None
        scores = _scores(source, split, context)
        findings = []
        for claim in context.claims:
            adversaries = claim.adversary.each(source.schedule.devices)
            own = {key: score for key, score in scores.items() if key[0] in adversaries}
            coins = guess_members(source.members, split, own) if claim.unit is source.members.unit else None
            if coins is not None:
                findings.append(coins.finding(claim, context))
            elif _is_ours(source, claim):
                findings.append(untested(OneRunAudit.name, claim, f"nothing measured it: {_reason(source, claim)}"))
        return findings


def _is_ours(source: Any, claim: Claim) -> bool:
    """Whether no other audit says what measured the claim, or why nothing did: trials, or coins of labels."""
    others_say = Offer.LABEL_COINS in source.offers and claim.unit not in MEMBER_UNITS
    return Offer.WORLDS not in source.offers and not others_say


def _reason(source: Any, claim: Claim) -> str:
    """Why the coins do not measure a claim."""
    planted = source.members.unit
    if claim.unit is planted:
        return f"{claim.adversary} sees no round that is about all canaries, those left out too"
    differs = f"the claim is about {claim.unit.description}, and coins decided about {planted.description}"
    return f"{differs}; {_instead(source, claim)}"


def _instead(source: Any, claim: Claim) -> str:
    """What would measure a claim about another unit."""
    if claim.unit in MEMBER_UNITS:
        return HOW_TO_PLANT
    if claim.unit.implies(Unit.LABEL):
        return str(source.how_to_offer[Offer.LABEL_COINS])
    return "`vflpriv audit --train` measures other units"


def member_split(source: Any, seed: int) -> Split | None:
    """Which canaries are set aside and which are counted; None where there are too few."""
    return Split.of_members(source.members, seed=seed)


def membership_refusal(source: Any, seed: int) -> str | None:
    """Why the coins of a recorded training cannot be guessed, or None."""
    if member_split(source, seed) is not None:
        return training_refusal(source.messages, source.members)
    few = f"{len(source.members.worlds)} membership canaries were recorded"
    return f"{few}, and fewer than {LEAST_CANARIES} say nothing"


def _scores(source: Any, split: Split, context: AuditContext) -> dict[tuple[Adversary, str], Floats]:
    """The scores of each canary by adversary and by what made them: each attack, and the score that is learned."""
    canaries, records = source.members, source.recording.head.records
    scores: dict[tuple[Adversary, str], Floats] = {}
    for view in context.asked_views:
        for attempt in context.attempts:
            if attempt.target == "membership" and attempt.adversary == view.adversary and attempt.guess is not None:
                score = _by_canary(canaries, attempt.guess, records)
                scores |= {} if score is None else {(view.adversary, attempt.attack): score}
        learned = learned_membership(canaries, view, split, count=records)
        scores |= {} if learned is None else {(view.adversary, LEARNED): learned}
    return scores


def _by_canary(canaries: MemberCanaries, guess: Guess, records: int) -> Floats | None:
    """The score of each canary, where the attack has one of all candidates: positive where the first candidate
    looks trained on, rather than the second, or not."""
    table = torch.full((records,), torch.nan, dtype=torch.float64)
    table[guess.records.cpu()] = guess.values[0].double().cpu()
    sides = table[canaries.candidates]
    scores = sides[:, 0] - sides[:, 1:].sum(1)
    return None if bool(scores.isnan().any()) else np.asarray(scores.numpy(), dtype=np.float64)
