"""Discrete Laplace noise, also called geometric: whole steps of a grid, with exponentially falling weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.law import Pair
from vflpriv.laws.grid import GridLaw
from vflpriv.laws.pairs import AtomicPair, PurePair, ratio

__all__ = ["DiscreteLaplace", "DiscreteLaplacePair"]

_MOST_LOSSES = 1_000_000


@dataclass(frozen=True)
class DiscreteLaplacePair(AtomicPair):
    """Weights e^{-rate |x|} around 0, against the same around `shift`: the loss of x is rate (|x - shift| - |x|).

    A shift of the same L1 length that is spread over several entries is harder to tell (`tests/laws/test_discrete.py`).
    """

    shift: int
    rate: float
    described = "discrete Laplace noise"

    def atoms(self) -> tuple[Floats, Floats, Floats]:
        return _losses(self.shift, self.rate)

    @property
    def pure_epsilon(self) -> float:
        return self.shift * self.rate

    def in_dp_accounting(self, interval: float) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_discrete_laplace_mechanism(
            self.rate, sensitivity=self.shift, value_discretization_interval=interval
        )


@lru_cache(maxsize=64)
def _losses(shift: int, rate: float) -> tuple[Floats, Floats, Floats]:
    """All outcomes up to 0 have one loss, and all from `shift` on; those between have one each."""
    between = np.arange(1, shift, dtype=np.float64)
    ends, inside = 1 / (1 + math.exp(-rate)), math.tanh(rate / 2)
    falling = np.concatenate([[ends], inside * np.exp(-rate * between), [math.exp(-rate * shift) * ends]])
    losses = rate * np.linspace(-shift, shift, shift + 1)
    return losses, falling[::-1].copy(), falling


@register("law")
@dataclass(frozen=True)
class DiscreteLaplace(GridLaw):
    """Whole steps k with probability ∝ e^{-|k| step/scale}, independent on every entry; sensitivities are in L1.

    "Universally Utility-Maximizing Privacy Mechanisms" (Ghosh, Roughgarden, Sundararajan, STOC 2009): ε is the distance
    of the neighbours over the scale.
    """

    scale: float
    step: float = 1.0
    entries: int = 1
    rounds: bool = True
    name = "discrete-laplace"
    sized_by = "scale"
    summary = "whole steps of a grid with exponentially falling weights, of this scale"
    norm = 1

    def __str__(self) -> str:
        return f"DiscreteLaplace(scale={self.scale:.6g}, step={self.step:.6g})"

    def strength(self, sensitivity: float) -> float:
        return ratio(self._shift(sensitivity) * self.step, self.scale) if sensitivity else 0.0

    def _shift(self, sensitivity: float) -> int:
        """In L1 neighbours on the grid are a whole number of steps apart, in any number of entries."""
        return math.ceil(self.shift(sensitivity) - 1e-9)

    def pair(self, sensitivity: float) -> Pair:
        shift = self._shift(sensitivity)
        if shift > _MOST_LOSSES:
            return PurePair(self.strength(sensitivity))
        return DiscreteLaplacePair(shift, self.step / self.scale)

    def log_weights(self, steps: Floats) -> Floats:
        return -steps * (self.step / self.scale)

    def reach(self) -> int:
        return math.ceil(60.0 * self.scale / self.step)

    def sizes(self, values: Floats) -> Floats:
        return np.asarray(np.abs(values / self.scale))
