"""Budgets: conversions between mu, epsilon and delta, an accountant's bounds on epsilon, and what an accountant is.

A mechanism is mu-GDP when its outputs on neighbouring data sets are at least as hard to tell apart as N(0, 1)
and N(mu, 1). One Gaussian release of sensitivity s and noise std sigma has mu = s / sigma, and
the squares of mu add under composition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from vflpriv.core.ledger import Exposure

__all__ = [
    "Accountant",
    "Budget",
    "CurveExcess",
    "Tightness",
    "curve",
    "delta_of",
    "epsilon_of",
    "most_gain",
    "mu_of",
    "mu_of_pure",
    "quick_upper",
]

_NO_SQUARE = 1e150
"""Above this mu, epsilon, which is about half its square, is too large for a float."""
_MU_MAX = 1e8


def delta_of(mu: float, epsilon: float) -> float:
    """delta(epsilon) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2), the second term in logs.

    >>> round(delta_of(1.0, 4.3771812), 9), delta_of(1.0, 1e300)
    (1e-05, 0.0)
    """
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    first = log_ndtr(-epsilon / mu + mu / 2)
    if first == -math.inf:
        return 0.0
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


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Epsilon at `delta`: `upper` is certified, `lower` bounds the truth from below, `estimate` lies between.

    `mu` is given where the trade-off curve is exactly Gaussian. `approximations` holds named values that are not
    bounds (the central-limit value) and decide nothing.
    """

    accountant: str
    method: str
    delta: float
    lower: float
    estimate: float
    upper: float
    mu: float | None = None
    assumptions: tuple[str, ...] = ()
    approximations: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if math.isnan(self.lower + self.estimate + self.upper) and not math.isinf(self.upper):
            raise ValueError(f"Expected numbers in a budget, found {self.lower}, {self.estimate}, {self.upper}.")
        if not self.lower <= self.estimate <= self.upper:
            raise ValueError(f"Expected {self.lower} <= {self.estimate} <= {self.upper} in a budget.")


@dataclass(frozen=True, kw_only=True)
class CurveExcess:
    """A δ at which the accounted ε lies above that of the claimed trade-off curve."""

    delta: float
    accounted: float
    claimed: float


def most_gain(budget: Budget) -> float:
    """The most by which the adversary's view can raise the probability of guessing the unit's value correctly.

    No test tells two neighbouring data sets apart by more than the total variation of their outputs: 2Φ(μ/2) - 1 where
    the curve is Gaussian, (e^ε - 1 + 2δ) / (e^ε + 1) for any mechanism. It is a gain over the best guess without the
    view.

    >>> unbounded = Budget(accountant="", method="", delta=0.0, lower=0.0, estimate=math.inf, upper=math.inf)
    >>> most_gain(unbounded)
    1.0
    """
    e = math.exp(-budget.upper)
    gain = min(1.0, (1 - e + 2 * budget.delta * e) / (1 + e))
    return gain if budget.mu is None else min(gain, math.erf(budget.mu / math.sqrt(8)))


class Tightness(IntEnum):
    """How close an accountant's upper bounds are to the truth, on exposures that it supports."""

    LOOSE = 0
    """Valid, and possibly far above the truth."""
    TIGHT = 1
    """Usually within one per cent of the truth."""
    EXACT = 2
    """Equal to the truth up to rounding."""


class Accountant(Protocol):
    """Computes a budget from an exposure. The accountant `auto` chooses among all registered ones by `tightness`.

    It may have a method `upper(exposure, delta)` that computes a certified upper bound, not below that of its budget,
    faster than `budget` does: calibration asks it many times.
    """

    name: str
    summary: str
    tightness: Tightness

    def supports(self, exposure: Exposure) -> str | None:
        """`None` if it can bound epsilon for this exposure, otherwise the reason why not."""
        ...

    def budget(self, exposure: Exposure, delta: float) -> Budget:
        """The budget of one exposure at `delta`. Raises `ValueError` when `supports` gives a reason."""
        ...


def quick_upper(accountant: Accountant, exposure: Exposure, delta: float) -> float:
    """An accountant's upper bound, by its method `upper` where it has one."""
    upper = getattr(accountant, "upper", None)
    return accountant.budget(exposure, delta).upper if upper is None else float(upper(exposure, delta))
