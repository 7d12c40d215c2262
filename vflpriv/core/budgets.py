"""Budgets: an accountant's answer, with the assumptions it rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from vflpriv.core.ledger import Exposure

__all__ = ["Accountant", "Budget", "most_gain"]


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


def most_gain(budget: Budget) -> float:
    """By how much, at most, the view can raise the chance of a right guess of what differs between the worlds.

    No test tells two worlds apart by more than their total variation: 2Φ(μ/2) - 1 where the curve is Gaussian,
    (e^ε - 1 + 2δ) / (e^ε + 1) for any mechanism. Beyond the best guess without the view, nothing gains more.

    >>> none = Budget(accountant="", method="", delta=0.0, lower=0.0, estimate=math.inf, upper=math.inf)
    >>> most_gain(none)
    1.0
    """
    e = math.exp(-budget.upper)
    found = min(1.0, (1 - e + 2 * budget.delta * e) / (1 + e))
    return found if budget.mu is None else min(found, math.erf(budget.mu / math.sqrt(8)))


class Accountant(Protocol):
    """Turns an exposure into a budget."""

    name: str
    summary: str

    def supports(self, exposure: Exposure) -> str | None:
        """`None` if it can account for this exposure, otherwise the reason why not."""
        ...

    def budget(self, exposure: Exposure, delta: float) -> Budget:
        """The budget of one exposure at `delta`. Raises `ValueError` when `supports` gives a reason."""
        ...
