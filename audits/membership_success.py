"""How well members were told from others: the area under the ROC curve, the advantage, and the rate at few errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm
from torch import Tensor

from vflpriv.audits._bounds import interval
from vflpriv.audits._resampling import auc_interval
from vflpriv.audits.attack_success import mean_error, mean_interval

__all__ = [
    "FEW_ERRORS",
    "Figure",
    "MembershipLeak",
    "MembershipScore",
    "found_at_few_errors",
    "membership_leak",
    "membership_score",
]

FEW_ERRORS = 0.01
"""The false-positive rate at which the rate of found members is reported."""


@dataclass(frozen=True)
class Figure:
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class MembershipScore:
    """One seed; intervals are over candidates. `found` needs enough others to tell an error rate of 1 % at all."""

    auc: Figure
    advantage: Figure
    found: Figure | None
    records: int


@dataclass(frozen=True, kw_only=True)
class MembershipLeak:
    """Means over seeds. With one seed intervals are over candidates; with several they are the wider of Student's over
    the seeds, which is nothing where all agree, and the mean of the seeds' own."""

    auc: Figure
    advantage: Figure
    found: Figure | None
    auc_error: float
    """The standard error of the AUC: over seeds, but no less than over candidates."""
    records: int

    @property
    def chance(self) -> float:
        """The AUC of a coin."""
        return 0.5


def membership_score(scores: Tensor, inside: Tensor, *, confidence: float) -> MembershipScore:
    """Scores (n,) of candidates, against whether each was trained on."""
    members, others = scores[inside], scores[~inside]
    return MembershipScore(
        auc=Figure(*auc_interval(others, members, confidence)),
        advantage=_advantage(members, others, confidence),
        found=found_at_few_errors(members.double().cpu().numpy(), others.double().cpu().numpy(), confidence=confidence),
        records=len(scores),
    )


def membership_leak(scores: Sequence[MembershipScore], *, confidence: float) -> MembershipLeak:
    """The seeds' scores together."""
    found = [s.found for s in scores if s.found is not None]
    return MembershipLeak(
        auc=_mean([s.auc for s in scores], confidence, (0.0, 1.0)),
        advantage=_mean([s.advantage for s in scores], confidence, (-1.0, 1.0)),
        found=_mean(found, confidence, (0.0, 1.0)) if len(found) == len(scores) else None,
        auc_error=max(mean_error([s.auc.value for s in scores]) or 0.0, _error([s.auc for s in scores], confidence)),
        records=min(s.records for s in scores),
    )


def _error(figures: Sequence[Figure], confidence: float) -> float:
    """The mean standard error of figures, from the lengths of their intervals: seeds share their candidates."""
    return sum(f.high - f.low for f in figures) / (2 * float(norm.ppf(0.5 + confidence / 2)) * len(figures))


def _mean(figures: Sequence[Figure], confidence: float, limits: tuple[float, float]) -> Figure:
    if len(figures) == 1:
        return figures[0]
    mean, low, high = mean_interval([f.value for f in figures], confidence, limits)
    ends = [sum(end) / len(figures) for end in zip(*((f.low, f.high) for f in figures), strict=True)]
    return Figure(mean, min(low, ends[0]), max(high, ends[1]))


def _advantage(members: Tensor, others: Tensor, confidence: float) -> Figure:
    """Members above 0 less others above 0, each a share of its own; Newcombe's interval from two Clopper-Pearson's."""
    right, wrong = int((members > 0).sum()), int((others > 0).sum())
    p, q = right / len(members), wrong / len(others)
    (p_low, p_high), (q_low, q_high) = (
        interval(k, n, confidence) for k, n in ((right, len(members)), (wrong, len(others)))
    )
    low, high = math.hypot(p - p_low, q_high - q), math.hypot(p_high - p, q - q_low)
    return Figure(p - q, max(-1.0, p - q - low), min(1.0, p - q + high))


def found_at_few_errors(
    members: NDArray[np.float64], others: NDArray[np.float64], *, confidence: float
) -> Figure | None:
    """The share of members above a score that others exceed at a rate of `FEW_ERRORS`.

    The k-th highest of n others is exceeded at a rate of k/(n + 1) on average; with fewer than 99 others no k fits. For
    the interval, two ranks enclose the true quantile, and the shares above either have Clopper-Pearson bounds; each of
    the two steps may fail in half of the cases that the confidence allows.
    """
    count = len(others)
    k = int(FEW_ERRORS * (count + 1))
    if k < 1:
        return None
    falling, doubt = np.sort(others)[::-1], (1 - confidence) / 4
    # How many others exceed the quantile is Binomial(n, 1 %): it lies below the `before`-th and above the `after`-th.
    after, before = int(binom.ppf(1 - doubt, count, FEW_ERRORS)) + 1, int(binom.ppf(doubt, count, FEW_ERRORS))
    below = falling[after - 1] if after <= count else -np.inf
    above = falling[before - 1] if before >= 1 else np.inf
    low, high = (interval(int((members > cut).sum()), len(members), 1 - 2 * doubt) for cut in (above, below))
    return Figure(float((members > falling[k - 1]).mean()), low[0], high[1])
