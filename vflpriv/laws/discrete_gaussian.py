"""Discrete Gaussian noise: whole steps of a grid, with the weights of a normal density."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.law import Pair
from vflpriv.laws.gaussian import GaussianPair
from vflpriv.laws.grid import GridLaw
from vflpriv.laws.pairs import AtomicPair, ratio

__all__ = ["DiscreteGaussian", "DiscreteGaussianPair", "MomentsOfGaussian"]

_REACH = 38.0
"""Standard deviations beyond which there is less than 1e-300 of the probability."""
_FINEST = 20_000.0
"""Standard deviations of more steps have too many losses to list: their moments alone are used."""


@dataclass(frozen=True)
class DiscreteGaussianPair(AtomicPair):
    """Discrete Gaussians of `std` steps at a distance of `shift` steps: the loss of x is (2 x shift - shift²) / 2 std².

    A larger shift is easier to tell, since the weights are log-concave.
    """

    shift: int
    std: float
    described = "discrete Gaussian noise"

    def atoms(self) -> tuple[Floats, Floats, Floats]:
        return _losses(self.shift, self.std)

    def moments(self, orders: tuple[float, ...], *, fast: bool) -> Floats:
        return GaussianPair(self.shift / self.std).moments(orders, fast=fast)

    def in_dp_accounting(self, interval: float) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_discrete_gaussian_mechanism(
            self.std, sensitivity=self.shift, value_discretization_interval=interval
        )


@lru_cache(maxsize=64)
def _losses(shift: int, std: float) -> tuple[Floats, Floats, Floats]:
    most = math.ceil(_REACH * std)
    x = np.arange(-most, most + shift + 1, dtype=np.float64)
    upper, lower = (np.exp(-np.square(x - centre) / (2 * std * std)) for centre in (shift, 0))
    return (2 * x * shift - shift * shift) / (2 * std * std), upper / math.fsum(upper), lower / math.fsum(lower)


@dataclass(frozen=True)
class MomentsOfGaussian(GaussianPair):
    """Any release whose Rényi divergences are at most a Gaussian's; nothing is known of its losses.

    Its masses are not used: `by_moments` refuses accountants that need them.
    """

    described = "noise of which only Rényi moments are known"
    by_moments = True

    def attained(self) -> Pair | None:
        return None

    @property
    def unsampled_mu(self) -> float:
        return math.inf

    @property
    def sampled_gaussian(self) -> tuple[float, float] | None:
        return None

    def in_dp_accounting(self, interval: float) -> Any:
        return None


@register("law")
@dataclass(frozen=True)
class DiscreteGaussian(GridLaw):
    """Whole steps k with probability ∝ e^{-(k step)²/2 std²}, independent on every entry; sensitivities are in L2.

    "The Discrete Gaussian for Differential Privacy" (Canonne, Kamath, Steinke, NeurIPS 2020). Its Rényi divergences
    are at most those of a Gaussian of the same std (Proposition 5), in any number of entries; where a unit moves one
    entry, its privacy loss is known exactly.
    """

    std: float
    step: float = 1.0
    entries: int = 1
    rounds: bool = True
    name = "discrete-gaussian"
    sized_by = "std"
    summary = "whole steps of a grid with the weights of a normal density of this std"
    norm = 2

    def __str__(self) -> str:
        return f"DiscreteGaussian(std={self.std:.6g}, step={self.step:.6g})"

    def strength(self, sensitivity: float) -> float:
        return ratio(self.shift(sensitivity) * self.step, self.std) if sensitivity else 0.0

    def pair(self, sensitivity: float) -> Pair:
        std = self.std / self.step
        if self.entries > 1 or std > _FINEST:
            return MomentsOfGaussian(self.strength(sensitivity))
        return DiscreteGaussianPair(int(self.shift(sensitivity)), std)

    def log_weights(self, steps: Floats) -> Floats:
        return -np.square(steps * (self.step / self.std)) / 2

    def reach(self) -> int:
        return math.ceil(12.0 * self.std / self.step)

    def sizes(self, values: Floats) -> Floats:
        return np.square(values / self.std) / 2
