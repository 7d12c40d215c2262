"""Sequential tests of a claim: bounds and p-values that stay valid when trials are stopped as soon as they refute it.

Trials come in pairs, one of each world, under a test fixed in advance. If the claim holds, every test errs at a mean
rate of p or more (`bounds`: p = Phi(-mu/2) for mu-GDP, (1 - delta) / (1 + e^eps) for (eps, delta)-DP), so that a pair
has 2p errors or more on average. A bet against that with the stake κ multiplies the capital after each pair by

    1 + κ (2p - errors) / (2 (1 - p)),

which is at least 1 - κ, and at most 1 on average if the claim holds. The capital, averaged over several κ, then reaches
1/alpha at any time with probability at most alpha (Ville 1939), so that 1 / (largest capital so far) is a p-value
whenever the trials stop, and goes into Holm's procedure like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri

from vflpriv.audits.statistics.bounds import check_alpha, check_delta
from vflpriv.common.numerics import Floats

__all__ = ["Looks", "look_times"]

_STAKES = np.array([0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.6, 0.95])
"""The stakes κ whose capitals are averaged."""
_PACE = 1.25
"""By how much the number of pairs grows from one look to the next."""


def look_times(trials: int, *, first: int = 32) -> tuple[int, ...]:
    """After how many pairs to look at the trials: first after `first`, then after each quarter more, and at the end.

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
        total = np.add.reduceat(errors[: ends[-1]], starts)
        both = np.add.reduceat(errors[: ends[-1]] == 2, starts, dtype=np.int64)
        # Pairs with no error, one and two, between looks.
        steps = np.stack([ends - starts - total + both, total - 2 * both, both])
        self._counts: Floats = np.cumsum(steps, axis=1).astype(np.float64)
        self._rates: dict[float, float] = {}

    def capital(self, rate: float) -> Floats:
        """The logarithm of the capital won against "every test errs with mean rate `rate` or more", at each look."""
        step = np.array([2 * rate - k for k in range(3)]) / (2 * (1 - rate))
        logs = np.log1p(_STAKES[:, None] * step) @ self._counts
        largest = logs.max(axis=0)
        return np.asarray(largest + np.log(np.exp(logs - largest).mean(axis=0)), dtype=np.float64)

    def p_value(self, rate: float) -> float:
        """The p-value of "every test errs at a mean rate of `rate` or more": 1 / the largest capital so far."""
        return float(min(1.0, np.exp(-self.capital(rate).max())))

    def p_value_gdp(self, mu: float) -> float:
        """The p-value of "the mechanism is mu-GDP"."""
        return self.p_value(float(ndtr(-mu / 2)))

    def rate_upper(self, confidence: float) -> float:
        """The largest mean error rate that is not refuted: an upper bound, valid at all looks together."""
        if confidence not in self._rates:
            self._rates[confidence] = self._rate_upper(1 - confidence)
        return self._rates[confidence]

    def _rate_upper(self, alpha: float) -> float:
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
        """The p-value of "the mechanism is (epsilon, delta)-DP"."""
        check_delta(delta)
        return self.p_value((1 - delta) * float(expit(-epsilon)))
