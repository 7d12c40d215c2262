"""A test that may be looked at while it runs, and stopped as soon as it refutes a claim: valid at every look.

Trials come in pairs, one of each world, under a test fixed in advance. If every such test errs with mean rate p or more
(`_gdp`, `_bounds`: p = Phi(-mu/2), or (1 - delta) / (1 + e^eps)), a pair has 2p errors or more on average. Whoever bets
against that, staking a share κ of what loses at most everything, multiplies the capital by

    1 + κ (2p - errors) / (2 (1 - p))

a pair: at least 1 - κ, and 1 or less on average if the claim holds. The capital, averaged over several κ, then reaches
1/alpha at any time with probability at most alpha (Ville 1939), so that 1 / (largest capital so far) is a p-value
whenever one stops, and goes into Holm's procedure like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri

from vflpriv.audits.statistics.bounds import Floats, check_alpha, check_delta

__all__ = ["Looks", "look_times"]

_STAKES = np.array([0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.6, 0.95])
_PACE = 1.25


def look_times(trials: int, *, first: int = 32) -> tuple[int, ...]:
    """After how many pairs to look: first at `first`, then each time a quarter more has been seen, and at the end.

    >>> look_times(100)
    (32, 40, 50, 62, 78, 98, 100)
    """
    times, pairs = [], float(first)
    while round(pairs) < trials:
        times.append(round(pairs))
        pairs *= _PACE
    return (*times, trials)


class Looks:
    """The errors of pairs of trials (0, 1 or 2 each) at the times they were looked at."""

    def __init__(self, errors: NDArray[np.int64], times: Sequence[int]) -> None:
        if not len(times) or not 0 < times[0] <= times[-1] <= len(errors) or (np.diff(times) <= 0).any():
            raise ValueError(f"Expected rising looks={list(times)} within {len(errors)} pairs.")
        ends = np.asarray(times)
        starts = np.concatenate([[0], ends[:-1]])
        some = np.add.reduceat(errors[: ends[-1]], starts)
        both = np.add.reduceat(errors[: ends[-1]] == 2, starts, dtype=np.int64)
        steps = np.stack([ends - starts - some + both, some - 2 * both, both])
        self._counts: Floats = np.cumsum(steps, axis=1).astype(np.float64)

    def capital(self, rate: float) -> Floats:
        """The logarithm of the capital won against "every test errs with mean rate `rate` or more", at each look."""
        step = np.array([2 * rate - k for k in range(3)]) / (2 * (1 - rate))
        logs = np.log1p(_STAKES[:, None] * step) @ self._counts
        largest = logs.max(axis=0)
        return np.asarray(largest + np.log(np.exp(logs - largest).mean(axis=0)), dtype=np.float64)

    def p_value(self, rate: float) -> float:
        """1 / the largest capital at any look so far."""
        return float(min(1.0, np.exp(-self.capital(rate).max())))

    def p_value_gdp(self, mu: float) -> float:
        """Of "the mechanism is mu-GDP"."""
        return self.p_value(float(ndtr(-mu / 2)))

    def rate_upper(self, confidence: float) -> float:
        """The largest mean error rate that is not refuted: an upper bound, valid at all looks together."""
        alpha = 1 - confidence
        check_alpha(alpha)
        low, high = 0.0, 0.5
        if self.p_value(high) > alpha:
            return high
        while high - low > 1e-7 * high:
            # The capital rises in the rate, so the refuted rates are those above a point.
            middle = (low + high) / 2
            low, high = (low, middle) if self.p_value(middle) <= alpha else (middle, high)
        return high

    def mu_lower(self, confidence: float) -> float:
        """A lower bound on mu, valid at all looks together."""
        return max(0.0, -2 * float(ndtri(self.rate_upper(confidence))))

    def epsilon_lower(self, delta: float, confidence: float) -> float:
        """A lower bound on epsilon at `delta` of any mechanism, valid at all looks together."""
        check_delta(delta)
        rate = self.rate_upper(confidence) / (1 - delta)
        return 0.0 if rate >= 0.5 else float(-logit(rate))

    def p_value_dp(self, epsilon: float, delta: float) -> float:
        """Of "the mechanism is (epsilon, delta)-DP"."""
        check_delta(delta)
        return self.p_value((1 - delta) * float(expit(-epsilon)))
