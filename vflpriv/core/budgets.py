"""Budgets: an accountant's bounds on epsilon with their assumptions, and the protocol of an accountant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from vflpriv.core.ledger import Exposure

__all__ = ["Accountant", "Budget", "CurveExcess", "Tightness", "most_gain", "quick_upper"]


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
