"""Numbers that several layers share: arrays of doubles, quantiles, the exact confidence interval of a rate.

Quantiles are taken from `scipy.special`: `scipy.stats` has the same, and takes half a second to load.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrik, betainccinv, betaincinv

__all__ = ["Floats", "binomial_quantile", "interval"]

Floats = NDArray[np.float64]
"""An array of double-precision numbers of any shape."""


def interval(k: int, n: int, confidence: float) -> tuple[float, float]:
    """The two-sided Clopper-Pearson interval of a rate that was met k times in n, alpha / 2 on each side.

    Its ends are the quantiles alpha / 2 of Beta(k, n - k + 1) and 1 - alpha / 2 of Beta(k + 1, n - k).

    >>> [round(end, 4) for end in interval(5, 100, 0.95)]
    [0.0164, 0.1128]
    """
    alpha = 1 - confidence
    if n < 1 or not 0 <= k <= n:
        raise ValueError(f"Expected 0 <= errors={k} <= trials={n} and trials >= 1.")
    if not 0 < alpha < 1:
        raise ValueError(f"Expected 0 < alpha={alpha:g} < 1.")
    low = float(betaincinv(k, n - k + 1, alpha / 2)) if k else 0.0
    high = float(betainccinv(k + 1, n - k, alpha / 2)) if k < n else 1.0
    return low, high


def binomial_quantile(share: float, n: int, rate: float) -> int:
    """The smallest number of n that at least this share of binomial draws does not exceed.

    >>> binomial_quantile(0.5, 10, 0.5), binomial_quantile(0.0001, 100, 0.01)
    (5, 0)
    """
    above: int = max(0, math.ceil(bdtrik(share, n, rate)))
    reached = above > 0 and bool(bdtr(above - 1, n, rate) >= share)
    return above - 1 if reached else above
