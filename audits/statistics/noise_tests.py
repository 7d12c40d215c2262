"""Statistical tests of noise: is it standard normal, and independent between releases and of public values?

All p-values are exact or, where noted, asymptotic. Several comparisons within one test are corrected by Bonferroni, so
that the test enters Holm's procedure as one.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, ndtr
from scipy.stats import chi2

from vflpriv.common.numerics import Floats

__all__ = ["anderson_darling", "anderson_darling_limit", "correlation", "distinct_pairs", "like_pairs", "scale"]


def scale(z: Floats, confidence: float) -> tuple[float, tuple[float, float]]:
    """The p-value of "std 1" and an interval for the std, by the chi-square law of the sum of squares."""
    n, total = z.size, float(np.square(z).sum())
    p = min(1.0, 2 * min(float(chi2.cdf(total, n)), float(chi2.sf(total, n))))
    tail = (1 - confidence) / 2
    low, high = (math.sqrt(total / float(chi2.ppf(q, n))) for q in (1 - tail, tail))
    return p, (low, high)


def anderson_darling(z: Floats) -> float:
    """The p-value of "N(0, 1)", nothing estimated: A² with its limit law (Marsaglia, Marsaglia 2004)."""
    x, n = np.sort(z.ravel()), z.size
    odd = 2 * np.arange(1, n + 1) - 1
    statistic = -n - float(np.sum(odd * (log_ndtr(x) + log_ndtr(-x[::-1])))) / n
    return max(0.0, 1 - anderson_darling_limit(max(statistic, 1e-6)))


def anderson_darling_limit(a: float) -> float:
    """P[A² < a] in the limit of infinitely many values (Marsaglia, Marsaglia 2004)."""
    if a < 2:
        inner = (0.0347962 - (0.011672 - 0.00168691 * a) * a) * a
        return math.exp(-1.2337141 / a) / math.sqrt(a) * (2.00012 + (0.247105 - (0.0649821 - inner) * a) * a)
    if a > 30:
        return 1.0
    inner = (0.082433 - (0.008056 - 0.0003146 * a) * a) * a
    return math.exp(-math.exp(1.0776 - (2.30695 - (0.43424 - inner) * a) * a))


def correlation(z: Floats, public: Floats) -> float:
    """The p-value of "the noise z, (n,), is independent of each of the public vectors", (candidates, n).

    Given a vector c, z·c / ‖c‖ of independent standard normals z is standard normal: exact for every candidate.
    """
    norms = np.linalg.norm(public, axis=1)
    used = norms > 0
    return _bonferroni(public[used] @ z / norms[used], int(used.sum()))


def distinct_pairs(rows: Floats) -> float:
    """The p-value of "no two of these rows, (k, n), are correlated"."""
    gram = rows @ rows.T / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    upper = np.triu_indices(len(rows), 1)
    return _bonferroni(gram[upper], len(upper[0]))


def like_pairs(rows: Floats, others: Floats) -> float:
    """The p-value of "no row of the first, (k, n), is correlated with any row of the second", (l, n)."""
    gram = rows @ others.T / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    return _bonferroni(gram.ravel(), gram.size)


def _bonferroni(standard: Floats, tests: int) -> float:
    """The two-sided p-value of the largest of these standard normal statistics, corrected for the number of tests."""
    return min(1.0, 2 * tests * float(ndtr(-np.abs(standard).max()))) if standard.size else 1.0
