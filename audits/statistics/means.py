"""Bounds on the mean of independent values between 0 and 1, such as an attack's success in several trainings.

Values of one training may depend on each other in any way; the trainings are what is independent. If the mean is at
most m, a bet on each value x with the stake κ multiplies the capital by 1 - κ + κ x / m, which is at most 1 on average.
So is the average of the capitals of several stakes, and one over it is a p-value (Markov; Waudby-Smith and Ramdas 2024
have the general form). Values that hardly differ from training to training gain as much as this allows, unlike with
Hoeffding's bound, which counts on the worst.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vflpriv.audits.statistics.bounds import check_alpha
from vflpriv.common.numerics import Floats

__all__ = ["FINE", "mean_bounds", "p_value_mean"]

_STAKES = np.array([0.2, 0.6, 1.0])
"""The stakes κ whose capitals are averaged."""
FINE = np.array([2.0**-k for k in range(12)])
"""Stakes for values that are nearly all zero, of which a large stake loses nearly all."""
_PARTS, _STEPS = 16, 15
"""A bound is looked for among 16¹⁵ places between 0 and 1, in a sixteenth of what is left at each step."""


def p_value_mean(values: Sequence[float], bound: float, stakes: Floats = _STAKES) -> float:
    """The p-value of "the expected value of each of these independent values in [0, 1] is at most `bound`".

    >>> p_value_mean([0.3, 0.31, 0.29], 0.3), p_value_mean([0.9] * 8, 0.1) < 1e-6, p_value_mean([0.9], 0.1) > 0.1
    (1.0, True, True)
    """
    x = _checked(values)
    if not 0 <= bound <= 1:
        raise ValueError(f"Expected a bound={bound} between 0 and 1.")
    if bound == 0:
        return 0.0 if x.any() else 1.0
    return float(_p_values(x, np.array([bound]), stakes)[0])


def _checked(values: Sequence[float]) -> Floats:
    x = np.asarray(values, dtype=np.float64)
    if not len(x) or not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"Expected values between 0 and 1, at least one, found {list(values)}.")
    return x


def _p_values(x: Floats, bounds: Floats, stakes: Floats = _STAKES) -> Floats:
    """Of each of several bounds, none of them zero."""
    with np.errstate(divide="ignore", over="ignore"):
        capital = np.log1p(stakes[:, None, None] * (x / bounds[:, None] - 1)).sum(axis=2)
        largest = capital.max(axis=0)
        p_values: Floats = np.minimum(1.0, np.exp(-largest) / np.exp(capital - largest).mean(axis=0))
    return p_values


def mean_bounds(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """The ends of an interval that holds the expected value with probability `confidence`, alpha / 2 on each side."""
    alpha = 1 - confidence
    check_alpha(alpha)
    x = _checked(values)
    return _lower(x, alpha / 2), 1 - _lower(1 - x, alpha / 2)


def _lower(x: Floats, alpha: float) -> float:
    """The largest mean that is refuted at this level, from below; 0 if there is none."""
    low, width, ends = 0.0, 1.0, np.arange(1, _PARTS, dtype=np.float64)
    for _ in range(_STEPS):
        # The p-value rises with the bound.
        width /= _PARTS
        low += width * int(np.count_nonzero(_p_values(x, low + width * ends) <= alpha))
    return low
