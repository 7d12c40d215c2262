"""The audit of claims about labels by the coins that decided the labels of canaries in one recorded training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from vflpriv.audits.learned.recorded import LEAST_CANARIES, Split, learned_scores
from vflpriv.audits.one_run import OneRunAudit, guess_coins
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.common.store import TensorForm
from vflpriv.core.attack import Guess
from vflpriv.core.audit import Audit, AuditContext, Finding, untested
from vflpriv.core.claims import Claim
from vflpriv.core.systems import Offer
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary, View

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LabelCoinAudit"]


@register("audit")
class LabelCoinAudit(Audit[Any]):
    """Guesses the coins by attacks on labels and by a learned score, and tests every claim about labels by them."""

    name = "label-coins"
    topic = OneRunAudit.name
    summary = "measures how many coins of canaries in the labels of a recorded training a view can guess"
    order = 51
    needs = frozenset({Offer.MESSAGES, Offer.LEDGER_FILE, Offer.LABEL_COINS})

    def refusal(self, source: Any, context: AuditContext) -> str | None:
        if _split(source, context) is not None:
            return None
        planted = len(source.answers.canaries.records)
        few = f"{planted} canaries were recorded, and fewer than {LEAST_CANARIES} say nothing"
        return "; ".join((few, *filter(None, [source.how_to_offer.get(Offer.LABEL_COINS)])))

    def work(self, source: Any, context: AuditContext) -> int:
        return 0 if self.refusal(source, context) else sum(len(v.messages) for v in _claimed_views(source, context))

    def run(self, source: Any, context: AuditContext) -> list[Finding]:
        """A test of each claim about labels; of every other claim, why the coins do not measure it."""
        canaries, split, devices = source.answers.canaries, _split(source, context), source.schedule.devices
        assert split is not None
        learned = {view.adversary: _learned(source, view, split, context) for view in _claimed_views(source, context)}
        scores = {adversary: score for adversary, score in learned.items() if score is not None}
        guesses = _guesses(context.attempts)
        findings = []
        for claim in context.claims:
            adversaries = claim.adversary.each(devices) if claim.unit.implies(Unit.LABEL) else ()
            own = {a: guesses[a] for a in adversaries if a in guesses}
            coins = guess_coins(canaries, split, own, {a: scores[a] for a in adversaries if a in scores})
            if coins is not None:
                findings.append(coins.finding(claim, context))
            elif not _said_elsewhere(source, claim):
                findings.append(untested(OneRunAudit.name, claim, _not_guessed(claim)))
        return findings


def _split(source: Any, context: AuditContext) -> Split | None:
    """Which canaries are set aside and which are counted; None where there are too few."""
    return Split.of(source.answers.canaries, source.answers.labels, seed=context.seed)


def _claimed_views(source: Any, context: AuditContext) -> list[View]:
    """The views of the adversaries of claims about labels."""
    about_labels = [claim for claim in context.claims if claim.unit.implies(Unit.LABEL)]
    claimed = {adversary for claim in about_labels for adversary in claim.adversary.each(source.schedule.devices)}
    return [view for view in context.views if view.adversary in claimed]


def _guesses(attempts: Sequence[Any]) -> Mapping[Adversary, Mapping[str, Guess]]:
    """What each attack on labels guessed, by adversary and name of the attack."""
    guesses: dict[Adversary, dict[str, Guess]] = {}
    for attempt in attempts:
        if attempt.guess is not None and attempt.target == "labels":
            guesses.setdefault(attempt.adversary, {})[attempt.attack] = attempt.guess
    return guesses


def _learned(source: Any, view: View, split: Split, context: AuditContext) -> Floats | None:
    """The learned score of each canary in a view, or None."""
    answers = source.answers

    def compute() -> dict[str, Tensor]:
        scores = learned_scores(answers.canaries, answers.labels, view, split, seed=context.seed)
        return {"scores": torch.empty(0) if scores is None else torch.from_numpy(scores)}

    name = f"score learned from canaries, {view.adversary}"
    scores = context.steps.result(name, TensorForm(), compute, work=len(view.messages))["scores"]
    return scores.numpy() if len(scores) else None


def _said_elsewhere(source: Any, claim: Claim) -> bool:
    """Whether another audit says of the claim what measured it, or why nothing did: trials, or coins of members."""
    members = Offer.MEMBER_COINS in source.offers and claim.unit in (Unit.RECORD, Unit.ADD_REMOVE)
    return members or Offer.WORLDS in source.offers


def _not_guessed(claim: Claim) -> str:
    """Why no coin was guessed about a claim, although there are canaries."""
    if not claim.unit.implies(Unit.LABEL):
        differs = f"the claim is about {claim.unit.description}, and the recorded canaries are in labels"
        members = ", and so do canaries of vflpriv.plant_members" if claim.unit is Unit.ADD_REMOVE else ""
        return f"nothing measured it: {differs}; `vflpriv audit --train` measures other units{members}"
    return f"nothing measured it: no message that {claim.adversary} sees says which records it is about"
