"""Laplace noise: independent double-exponential draws on every entry."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammainc, ndtri_exp

from vflpriv.common.lazy import torch
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.law import Pair
from vflpriv.laws.continuous import Continuous, Standard
from vflpriv.laws.pairs import holds, ratio

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Laplace", "LaplacePair", "standard_laplace"]


def standard_laplace(uniform: Tensor) -> Tensor:
    """The quantiles of Laplace noise of scale 1 at these places in (0, 1], cut off at 15.4."""
    centred = (uniform - 0.5).clamp(-0.4999999, 0.4999999)
    return -centred.sign() * torch.log1p(-2 * centred.abs())


@dataclass(frozen=True)
class LaplacePair(Pair):
    """Laplace(0, 1) against Laplace(shift, 1): its loss has an atom at each end, -shift and shift.

    A shift of the same L1 length that is spread over several entries is harder to tell.
    """

    shift: float
    described = "Laplace noise"

    def masses(self, edges: Floats) -> tuple[Floats, Floats]:
        s, inner = self.shift, np.clip(edges, -self.shift, self.shift)
        top, bottom = holds(edges, s) / 2, holds(edges, -s) / 2
        upper = np.diff(np.exp((inner - s) / 2)) / 2 + top + bottom * math.exp(-s)
        lower = -np.diff(np.exp(-(inner + s) / 2)) / 2 + top * math.exp(-s) + bottom
        return upper, lower

    def reach(self, tail: float) -> tuple[float, float]:
        return -self.shift, self.shift

    def usual(self) -> float:
        return self.shift

    def moments(self, orders: tuple[float, ...], *, fast: bool) -> Floats:
        # Mironov 2017, Table II.
        a = np.array(orders)
        grow, shrink = np.log(a / (2 * a - 1)), np.log((a - 1) / (2 * a - 1))
        return np.asarray(np.logaddexp(grow + (a - 1) * self.shift, shrink - a * self.shift))

    @property
    def pure_epsilon(self) -> float:
        return self.shift

    def in_dp_accounting(self, interval: float) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_laplace_mechanism(1 / self.shift, value_discretization_interval=interval)


@register("law")
@dataclass(frozen=True)
class Laplace(Continuous):
    """Independent Laplace(scale) on every entry; sensitivities are in L1.

    The density at x is e^{-|x|/scale}/(2 scale), so that a shift of length s changes it by at most the factor
    e^{s/scale}: ε = s/scale ("Calibrating Noise to Sensitivity in Private Data Analysis", Dwork et al. 2006).
    """

    scale: float
    step: float = 0.0
    entries: int = 1
    name = "laplace"
    standard = Standard.LAPLACE
    sized_by = "scale"
    summary = "independent Laplace noise on every entry, of this scale"
    norm = 1
    bounds_size = True

    def __str__(self) -> str:
        return f"Laplace(scale={self.scale:.6g})"

    def strength(self, sensitivity: float) -> float:
        return ratio(self.apart(sensitivity), self.scale)

    def pair(self, sensitivity: float) -> Pair:
        return LaplacePair(self.strength(sensitivity))

    @property
    def deviation(self) -> float:
        return math.sqrt(2) * self.scale

    def scores(self, noise: Floats, signal: Floats, random: np.random.Generator) -> Floats | None:
        noise = noise / self.scale
        # The tail beyond |x| is e^{-|x|}/2: its logarithm keeps the precision of the farthest values.
        return np.asarray(-np.sign(noise) * ndtri_exp(-np.abs(noise) - math.log(2)))

    def sizes(self, values: Floats) -> Floats:
        return np.asarray(np.abs(values / self.scale))

    def lower_tail(self, totals: Floats | float, counts: Floats | float) -> Floats:
        """Σ|x|/b of n Laplace noises is Gamma(n)."""
        return np.asarray(gammainc(np.asarray(counts), totals))
