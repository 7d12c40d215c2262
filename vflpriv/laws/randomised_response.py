"""Randomised response: a label that is kept or replaced at random."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.law import Law, Pair
from vflpriv.laws.pairs import PurePair

__all__ = ["RandomizedResponse", "kept_share"]


def kept_share(classes: int, epsilon: float) -> float:
    """The probability e^ε/(e^ε + C - 1) with which randomised response keeps a label.

    >>> round(kept_share(2, 1.0), 3)
    0.731
    """
    return 1 / (1 + (classes - 1) * math.exp(-epsilon))


@register("law")
@dataclass(frozen=True)
class RandomizedResponse(Law):
    """A label kept or replaced at random: epsilon-DP whatever the sensitivity."""

    epsilon: float
    name = "rr"
    summary = "randomised response: a label is kept or replaced at random, with this ε"

    def __str__(self) -> str:
        return f"RandomizedResponse(epsilon={self.epsilon:.6g})"

    def strength(self, sensitivity: float) -> float:
        return self.epsilon

    def pair(self, sensitivity: float) -> Pair:
        return PurePair(self.epsilon)

    def table(self, inputs: int) -> Floats | None:
        kept = kept_share(inputs, self.epsilon)
        changed = np.full((inputs, inputs), kept * math.exp(-self.epsilon))
        np.fill_diagonal(changed, kept)
        return changed
