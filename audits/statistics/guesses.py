"""A lower bound on epsilon of any mechanism from the most confident guesses among independent trials.

Errors away from the tails of the scores say little about epsilon: e^eps bounds a ratio of rates, which is largest where
both are small. So a guess is made only for the trials with the strongest evidence, in both tails; the others are left
out.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, betaincinv, expit, logit

from vflpriv.audits.statistics.bounds import check_alpha, check_delta
from vflpriv.audits.statistics.pilot import Pilot, pilot_size
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import host_generator

__all__ = ["epsilon_guesses"]

_BINS = 128
"""Bins of the evidence's strength, by which the number of guesses is chosen."""
_PIECE = 1 << 13
"""Scores that are binned at a time, so that they stay in the processor's cache."""
_SPARE = 3.0
"""Standard deviations of the number of heads that are kept in reserve (step 1 of the proof)."""
_DELTA_SHARE = 0.05
"""Share of alpha that is spent on delta (step 2 of the proof)."""


def epsilon_guesses(
    inside: Floats, outside: Floats, delta: float, confidence: float, *, seed: int, calibrated: bool = False
) -> float:
    """A lower bound on epsilon at `delta` from the scores of both worlds; 0 where nothing can be said.

    The higher a score, the likelier is world 0 (`inside`). `calibrated` scores are log-likelihood ratios; of others a
    few are set aside to learn the scale (`Pilot`).

    Guarantee: if every trial is (eps, delta)-DP and trials are independent, this exceeds eps with probability at most
    alpha = 1 - confidence, whatever the scores are. Proof.

    1. Trials of both worlds are put in the order of m fair coins, by which alone a trial's world is decided; a sequence
       of coins that needs more trials of one world than there are gives 0. This changes the probability of no outcome
       outside that event, in which nothing is claimed.
    2. The output of an (eps, delta)-DP pair of worlds is post-processing of the following: with probability delta the
       coin itself, otherwise a bit that equals the coin with probability q = e^eps / (1 + e^eps) (Kairouz, Oh,
       Viswanath 2015). Let F of the m trials reveal the coin itself: F ~ Bin(m, delta), and P[F > f] <= alpha / 20 for
       the f that is used.
    3. Given all outputs, and which trials reveal their coin, the other coins are independent, each equal to any guess
       with probability at most q. For which trials a guess is made, and for how many, r, is a function of the scores
       alone and of trials set aside. So the number right is at most f + Bin(r - f, q), but for probability alpha / 20.
    4. The Clopper-Pearson lower bound of q from v - f right of r - f guesses, at 19 alpha / 20, is logit-transformed.
    """
    check_delta(delta)
    alpha = 1 - confidence
    check_alpha(alpha)
    inside, outside = (np.asarray(s, dtype=np.float64) for s in (inside, outside))
    count = min(len(inside), len(outside))
    aside = 0 if calibrated else pilot_size(count)
    left = count - aside
    trials = math.floor(2 * left - _SPARE * math.sqrt(2 * left))
    if trials < 1:
        return 0.0
    pilot = Pilot.of_ratios() if calibrated else Pilot.of(inside[:aside], outside[:aside])
    heads = int(host_generator(seed, "search", count).binomial(trials, 0.5))
    if max(heads, trials - heads) > left:
        return 0.0
    revealed, level = _revealed(trials, delta, alpha)
    tested = inside[aside : aside + heads], outside[aside : aside + trials - heads]
    made, right = _most_confident(*tested, pilot, revealed, level)
    if right <= revealed:
        return 0.0
    return max(0.0, float(logit(betaincinv(right - revealed, made - right + 1, level))))


def _revealed(trials: int, delta: float, alpha: float) -> tuple[int, float]:
    """f of step 2, the most trials that are taken to reveal their coin, and the level that is left."""
    if delta == 0:
        return 0, alpha
    spent = _DELTA_SHARE * alpha
    most = bisect_left(range(trials), True, key=lambda revealed: bool(bdtrc(revealed, trials, delta) <= spent))
    return most, alpha - spent


def _most_confident(inside: Floats, outside: Floats, pilot: Pilot, revealed: int, level: float) -> tuple[int, int]:
    """Guesses made and right. How many are made depends on the strengths of the evidence, not on the worlds."""
    ends = np.array([end for s in (inside, outside) if len(s) for end in (s.min(), s.max())])
    top = float(np.abs(pilot.evidence(ends)).max())
    if not 0 < top < math.inf:
        return 0, 0
    plus, minus = (_histogram(s, pilot, top) for s in (inside, outside))
    right = plus[_BINS:] + minus[_BINS - 1 :: -1]
    made = right + plus[_BINS - 1 :: -1] + minus[_BINS:]
    middle = (np.arange(_BINS) + 0.5) * (top / _BINS)
    made_above, right_above = (np.cumsum(x[::-1]) for x in (made, right))
    expected_right = np.maximum(np.cumsum((made * expit(middle))[::-1]) - revealed, 1e-3)
    expected_bound = betaincinv(expected_right, np.maximum(made_above - revealed - expected_right, 0) + 1, level)
    best = int(np.argmax(np.where(made_above > revealed, expected_bound, 0.0)))
    return int(made_above[best]), int(right_above[best])


def _histogram(scores: Floats, pilot: Pilot, top: float) -> NDArray[np.int64]:
    """Counts of the evidence in 2 x _BINS equal bins of [-top, top]."""
    stretch = _BINS / top
    counts = np.zeros(2 * _BINS, dtype=np.int64)
    for start in range(0, len(scores), _PIECE):
        place = scores[start : start + _PIECE] * (pilot.slope * stretch)
        place += _BINS - pilot.centre * pilot.slope * stretch
        np.clip(place, 0, 2 * _BINS - 0.5, out=place)
        counts += np.bincount(place.astype(np.int64), minlength=2 * _BINS)
    return counts
