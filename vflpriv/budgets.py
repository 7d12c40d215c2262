"""Budgets: an accountant's answer, with the assumptions it rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from vflpriv.ledger import Exposure

__all__ = ["Accountant", "Budget"]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Epsilon at `delta`: `upper` is certified, `lower` bounds the truth from below, `estimate` lies between.

    `mu` is given where the trade-off curve is exactly Gaussian. `approximations` holds named values that are not
    bounds (the central-limit value), `checks` other methods' upper bounds; neither decides anything.
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
    checks: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if math.isnan(self.lower + self.estimate + self.upper) and not math.isinf(self.upper):
            raise ValueError(f"Expected numbers in a budget, found {self.lower}, {self.estimate}, {self.upper}.")
        if not self.lower <= self.estimate <= self.upper:
            raise ValueError(f"Expected {self.lower} <= {self.estimate} <= {self.upper} in a budget.")


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
