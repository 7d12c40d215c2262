"""Closed forms of the Gaussian trade-off curve G_mu: conversions between mu, epsilon and delta.

A mechanism is mu-GDP when its outputs on neighbouring data sets are at least as hard to tell apart as N(0, 1)
and N(mu, 1). One Gaussian release of sensitivity s and noise std sigma has mu = s / sigma, and
the squares of mu add under composition.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

__all__ = ["curve", "delta_of", "epsilon_of", "mu_of", "mu_of_pure"]

_NO_SQUARE = 1e150
"""Above this mu, epsilon, which is about half its square, is too large for a float."""
_MU_MAX = 1e8


def delta_of(mu: float, epsilon: float) -> float:
    """delta(epsilon) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2), the second term in logs.

    >>> round(delta_of(1.0, 4.3771812), 9)
    1e-05
    """
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    first = log_ndtr(-epsilon / mu + mu / 2)
    second = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return float(max(0.0, -math.exp(first) * math.expm1(min(0.0, second - first))))


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 with delta(epsilon) <= delta.

    >>> round(epsilon_of(1.0, 1e-5), 4), epsilon_of(1e300, 1e-5)
    (4.3772, inf)
    """
    if mu == 0 or delta_of(mu, 0.0) <= delta:
        return 0.0
    if mu > _NO_SQUARE or delta <= 0:
        return math.inf
    # Dropping the (negative) second term bounds the root from above.
    high = mu * mu / 2 - mu * float(ndtri(delta)) + 1e-9
    while delta_of(mu, high) > delta:
        high *= 1 + 1e-9
    return float(brentq(lambda e: delta_of(mu, e) - delta, 0.0, high, xtol=1e-13, rtol=1e-13))


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu whose epsilon at this delta is at most `epsilon`.

    >>> [round(mu_of(e, d), 6) for e, d in [(1, 1e-3), (10, 1e-3), (1, 1e-5), (8, 1e-5)]]
    [0.388401, 2.462693, 0.268051, 1.666031]
    """
    if math.isinf(epsilon) or delta >= 1:
        return math.inf
    if delta <= 0:
        return 0.0
    high = 1.0
    while delta_of(high, epsilon) < delta and high < _MU_MAX:
        high *= 2
    if delta_of(high, epsilon) < delta:
        return high  # epsilon is too large to solve for mu; a smaller mu is on the safe side
    return float(brentq(lambda m: delta_of(m, epsilon) - delta, 0.0, high, xtol=1e-14, rtol=1e-13))


def mu_of_pure(epsilon: float) -> float:
    """The least mu for which every epsilon-DP mechanism (delta = 0) is mu-GDP.

    Its curve consists of two lines that meet at the rate 1/(1 + e^eps) of both errors; G_mu is convex and passes
    through that corner and both ends, hence lies below.

    >>> round(mu_of_pure(math.log(3)), 6) == round(-2 * float(ndtri(0.25)), 6)
    True
    """
    return -2 * float(ndtri_exp(-np.logaddexp(0.0, epsilon)))


def curve(mu: float, false_positive_rate: ArrayLike) -> NDArray[np.float64]:
    """G_mu(alpha): the least false-negative rate any test can have at these false-positive rates."""
    alpha = np.asarray(false_positive_rate, dtype=np.float64)
    if math.isinf(mu):
        return np.zeros_like(alpha)
    return np.asarray(ndtr(-ndtri(alpha) - mu), dtype=np.float64)
