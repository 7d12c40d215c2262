"""Membership as what attacks guess: scores of candidates, held against the coins that decided who was trained on.

An attack scores candidates; it is judged by the AUC, by the advantage of its yes-or-no answers, and by the share of
members it finds while 1 %, or 0.1 %, of the non-members are taken for members.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.scoring.attempts import Secret
from vflpriv.audits.scoring.score import MEMBERSHIP, Figure, Score, scored
from vflpriv.audits.statistics.bounds import interval
from vflpriv.audits.statistics.resampling import auc_interval
from vflpriv.common.numerics import Floats, binomial_quantile
from vflpriv.core.attack import FeatureAttack, Guess, MembershipAuxiliary, ShadowModels
from vflpriv.core.views import View

__all__ = ["FEW_ERRORS", "VERY_FEW_ERRORS", "Members", "found_at_few_errors", "membership_score"]

FEW_ERRORS, VERY_FEW_ERRORS = 0.01, 0.001
"""The false-positive rates at which the share of found members is reported."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Members(Secret):
    """Which candidates were trained on: `trained` (R, n), by the candidates' numbers, with their labels (n,).

    An attack that knows some memberships is told those of the candidates `known`, which are not scored for any attack;
    one that needs models of its own is given `shadows`.
    """

    trained: Tensor
    labels: Tensor
    known: Tensor
    shadows: ShadowModels | None = None

    nothing_to_score: ClassVar[str] = "no guess to score: all are about members, or none is"

    def auxiliary(self, attack: FeatureAttack, r: int) -> MembershipAuxiliary:
        told = self.known if "membership" in attack.knows else self.known[:0]
        shadows = self.shadows if "shadows" in attack.knows else None
        members = self.trained[r][told].long()
        return MembershipAuxiliary(labels=self.labels, records=told, members=members, shadows=shadows)

    def refusal(self, attack: FeatureAttack, view: View, auxiliaries: Sequence[MembershipAuxiliary]) -> str | None:
        refusals = (attack.refusal(view.replica(r), auxiliary) for r, auxiliary in enumerate(auxiliaries))
        return next((refusal for refusal in refusals if refusal is not None), None)

    def score(
        self, attack: FeatureAttack, guess: Guess, blind: Guess | None, auxiliary: MembershipAuxiliary, r: int
    ) -> Score | None:
        del attack, blind, auxiliary
        rows = ~torch.isin(guess.records, self.known)
        trained = self.trained[r][guess.records[rows]]
        if not len(trained) or bool((trained == trained[0]).all()):
            return None
        return membership_score(guess.values[0][rows], trained, confidence=self.confidence)


def membership_score(scores: Tensor, trained: Tensor, *, confidence: float) -> Score:
    """Scores (n,) of candidates, against whether each was trained on.

    There is no share found at 1 % errors, or at 0.1 %, with too few non-members for that rate.
    """
    members, others = scores[trained], scores[~trained]
    figures = {"advantage": _advantage(members, others, confidence)}
    ranked = [x.double().cpu().numpy() for x in (members, others)]
    for name, rate in (("found", FEW_ERRORS), ("rarely_found", VERY_FEW_ERRORS)):
        share = found_at_few_errors(ranked[0], ranked[1], confidence=confidence, rate=rate)
        figures |= {} if share is None else {name: share}
    success = auc_interval(others, members, confidence)
    return scored(MEMBERSHIP, success, chance=0.5, guesses=len(scores), figures=figures)


def _advantage(members: Tensor, others: Tensor, confidence: float) -> Figure:
    """The share of members above 0 less that of non-members; Newcombe's interval from two Clopper-Pearson intervals."""
    right, wrong = int((members > 0).sum()), int((others > 0).sum())
    p, q = right / len(members), wrong / len(others)
    (p_low, p_high), (q_low, q_high) = (
        interval(k, n, confidence) for k, n in ((right, len(members)), (wrong, len(others)))
    )
    low, high = math.hypot(p - p_low, q_high - q), math.hypot(p_high - p, q - q_low)
    return Figure(p - q, max(-1.0, p - q - low), min(1.0, p - q + high))


def found_at_few_errors(
    members: Floats, others: Floats, *, confidence: float, rate: float = FEW_ERRORS
) -> Figure | None:
    """The share of members above the score that non-members (`others`) exceed at this rate.

    The k-th highest of n others is exceeded at a rate of k/(n + 1) on average; with fewer than 99 others no k fits 1 %,
    with fewer than 999 none fits 0.1 %, and the answer is None. For the interval, two ranks enclose the true quantile,
    and the shares above each have Clopper-Pearson bounds; each of the two steps may fail in half of the cases that the
    confidence allows.
    """
    count = len(others)
    # A millionth of a rank, so that 0.01 · 700 is seven.
    k = int(rate * (count + 1) + 1e-6)
    if k < 1:
        return None
    falling, level = np.sort(others)[::-1], (1 - confidence) / 4
    # How many others exceed the quantile is Binomial(n, rate): it lies below the `before`-th and above the `after`-th.
    after, before = binomial_quantile(1 - level, count, rate) + 1, binomial_quantile(level, count, rate)
    below = falling[after - 1] if after <= count else -np.inf
    above = falling[before - 1] if before >= 1 else np.inf
    low, high = (interval(int((members > cut).sum()), len(members), 1 - 2 * level) for cut in (above, below))
    return Figure(float((members > falling[k - 1]).mean()), low[0], high[1])
