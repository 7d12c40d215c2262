"""Power of tests that count errors: how likely a broken claim is called violated with so many trials."""

from __future__ import annotations

import math
from bisect import bisect_right

from scipy.special import bdtr, expit, ndtr, ndtri

from vflpriv.audits.statistics.bounds import check_alpha, check_delta, tail

__all__ = ["EXCESS", "power_dp", "power_gdp", "power_of_rates", "trials_for_ratio"]

EXCESS = 1.2
"""The broken mechanism whose detection reports quote: its μ, or ε, is this many times the claimed one."""


def power_of_rates(claimed: float, actual: float, trials: int, level: float) -> float:
    """P[the test refutes at `level`] if the mean error rate is `actual`, and the claim says at least `claimed`.

    The test has `trials` in each world, and refutes if P[Bin(2 trials, claimed) <= errors] is at most the level. The
    errors are taken as Bin(2 trials, actual), which is exact where both worlds have the same rate.
    """
    check_alpha(level)
    n = 2 * trials
    # The p-value rises with the number of errors.
    most = bisect_right(range(n + 1), level, key=lambda errors: float(tail(errors, n, claimed))) - 1
    return float(bdtr(most, n, actual)) if most >= 0 else 0.0


def power_gdp(mu: float, trials: int, level: float, *, excess: float = EXCESS) -> float:
    """The power against a mechanism of `excess` times the claimed mu, if the canary and the score are the best ones.

    >>> round(power_gdp(1.0, 400, 0.001), 2), round(power_gdp(1.0, 400, 0.001, excess=2.0), 2)
    (0.15, 1.0)
    """
    return power_of_rates(float(ndtr(-mu / 2)), float(ndtr(-excess * mu / 2)), trials, level)


def power_dp(epsilon: float, delta: float, trials: int, level: float, *, excess: float = EXCESS) -> float:
    """The power against randomised response of `excess` times the claimed epsilon, the easiest to tell apart."""
    check_delta(delta)
    claimed, actual = (float((1 - delta) * expit(-e)) for e in (epsilon, excess * epsilon))
    return power_of_rates(claimed, actual, trials, level)


def trials_for_ratio(mu: float, ratio: float, confidence: float) -> int:
    """Trials in each world with which the lower bound on mu by the mean error rate is `ratio` times mu on average.

    The rate Φ(-μ/2) falls by φ(μ/2)/2 with μ, and is known up to z √(p(1 - p)/2n).

    >>> trials_for_ratio(1.0, 0.9, 0.95)
    932
    """
    rate, slope = float(ndtr(-mu / 2)), math.exp(-(mu**2) / 8) / math.sqrt(2 * math.pi) / 2
    spread = float(ndtri(confidence)) / (slope * (1 - ratio) * mu)
    return math.ceil(rate * (1 - rate) / 2 * spread**2)
