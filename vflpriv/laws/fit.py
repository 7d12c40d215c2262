"""Statistics of goodness of fit that laws and audits share: Anderson and Darling's, exact rates, Bonferroni's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import bdtr, bdtrc, log_ndtr

from vflpriv.common.numerics import Floats

__all__ = ["anderson_darling", "anderson_darling_limit", "rate_p_value", "smallest"]


def anderson_darling(z: Floats) -> float:
    """The p-value of "N(0, 1)", nothing estimated: A² with its limit law (Marsaglia, Marsaglia 2004)."""
    x, n = np.sort(z.ravel()), z.size
    odd = 2 * np.arange(1, n + 1) - 1
    statistic = -n - float(np.sum(odd * (log_ndtr(x) + log_ndtr(-x[::-1])))) / n
    return 1 - anderson_darling_limit(max(statistic, 1e-6))


def anderson_darling_limit(a: float) -> float:
    """P[A² < a] in the limit of infinitely many values (Marsaglia, Marsaglia 2004)."""
    if a < 2:
        inner = (0.0347962 - (0.011672 - 0.00168691 * a) * a) * a
        return math.exp(-1.2337141 / a) / math.sqrt(a) * (2.00012 + (0.247105 - (0.0649821 - inner) * a) * a)
    inner = (0.082433 - (0.008056 - 0.0003146 * a) * a) * a
    return math.exp(-math.exp(1.0776 - (2.30695 - (0.43424 - inner) * a) * a))


def rate_p_value(count: Any, number: Any, rate: Any) -> Floats:
    """Two-sided p-values of "so many of this number, at this rate", exact by the binomial law.

    >>> float(rate_p_value(50, 100, 0.5)), float(rate_p_value(0, 100, 0.5)) < 1e-29
    (1.0, True)
    """
    count, number, rate = np.broadcast_arrays(count, number, np.asarray(rate, dtype=np.float64))
    tails = np.minimum(bdtr(count, number, rate), bdtrc(count - 1, number, rate))
    return np.asarray(np.minimum(1.0, 2 * tails))


def smallest(p_values: Floats | Sequence[float]) -> float:
    """The smallest of several p-values after Bonferroni's correction; 1 of none.

    >>> smallest([0.5, 0.01]), smallest([])
    (0.02, 1.0)
    """
    array = np.asarray(p_values, dtype=np.float64)
    return min(1.0, array.size * float(array.min())) if array.size else 1.0
