"""No noise: a value that leaves as it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vflpriv.common.registry import register
from vflpriv.core.law import Draws, Law, Pair

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Exact"]


@register("law")
@dataclass(frozen=True)
class Exact(Law):
    """No noise: whatever a unit changes shows, and no ε bounds it."""

    name = "none"
    summary = "no noise: the value leaves as it is"
    exact = True

    def __str__(self) -> str:
        return "no noise"

    def strength(self, sensitivity: float) -> float:
        return math.inf if sensitivity else 0.0

    def pair(self, sensitivity: float) -> Pair:
        raise ValueError("Expected noise, found none: no pair of distributions dominates an exact value.")

    def draw(self, source: Draws, count: int, *path: int) -> Tensor:
        return source.normal(count, *path)

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        return noiseless
