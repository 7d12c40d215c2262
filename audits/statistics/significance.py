"""Means over seeds with their intervals, p-values of means above a bound, and corrections for several tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, stdtr, stdtrit

from vflpriv.common.numerics import Floats

__all__ = ["holm_adjusted", "mean_error", "mean_interval", "p_value_above", "smallest"]


def mean_interval(
    values: Sequence[float], confidence: float, limits: tuple[float, float], *, grain: float = 0.0
) -> tuple[float, float, float]:
    """The mean and the ends of Student's interval for it, cut off at the limits; for a single value, the limits.

    >>> [round(x, 3) for x in mean_interval([0.4, 0.5, 0.6], 0.95, (0.0, 1.0))]
    [0.5, 0.252, 0.748]
    """
    mean, error = sum(values) / len(values), mean_error(values, grain=grain)
    if error is None:
        return mean, *limits
    reach = float(stdtrit(len(values) - 1, 0.5 + confidence / 2)) * error
    return mean, max(limits[0], mean - reach), min(limits[1], mean + reach)


def mean_error(values: Sequence[float], *, grain: float = 0.0) -> float | None:
    """The standard error of the mean; None for a single value.

    Values that are multiples of `grain` may be equal by chance: their variance is taken to be at least that of rounding
    to a multiple, grain² / 12.

    >>> mean_error([1.0, 3.0]), mean_error([1.0]), mean_error([1.0, 1.0, 1.0], grain=0.06)
    (1.0, None, 0.01)
    """
    count, mean = len(values), sum(values) / len(values)
    if count == 1:
        return None
    variance = max(sum((v - mean) ** 2 for v in values) / (count - 1), grain**2 / 12)
    return math.sqrt(variance / count)


def p_value_above(mean: float, error: float | None, bound: float, count: int) -> float:
    """The p-value of "the expected mean of `count` values is at most `bound`".

    Two-sided Student's, so that it is at most alpha exactly where the interval of `mean_interval` at confidence
    1 - alpha lies above the bound; normal for one value that has a standard error of its own.

    >>> round(p_value_above(0.5, 0.0577350, 0.252, 3), 3), p_value_above(0.5, None, 0.1, 1)
    (0.05, 1.0)
    """
    if error is None or mean <= bound:
        return 1.0
    if error == 0:
        return 0.0
    distance = (mean - bound) / error
    return 2 * float(stdtr(count - 1, -distance) if count > 1 else ndtr(-distance))


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values, in the order given: reject at alpha those that are at most alpha.

    The probability of one wrong rejection or more is then at most alpha, however the tests depend on each other.

    >>> [round(p, 3) for p in holm_adjusted([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError(f"Expected p-values between 0 and 1, found {list(p_values)}.")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return [float(a) for a in adjusted]


def smallest(p_values: Floats | Sequence[float]) -> float:
    """The smallest of several p-values after Bonferroni's correction; 1 of none.

    >>> smallest([0.5, 0.01]), smallest([])
    (0.02, 1.0)
    """
    array = np.asarray(p_values, dtype=np.float64)
    return min(1.0, array.size * float(array.min())) if array.size else 1.0
