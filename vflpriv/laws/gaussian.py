"""Gaussian noise: independent normal draws on every entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammainc, ndtri

from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.law import Law, Pair
from vflpriv.laws.continuous import Continuous, Standard
from vflpriv.laws.pairs import normal_masses, ratio
from vflpriv.laws.sampled import SampledGaussianPair, SampledReplacementPair, WithoutReplacementPair

__all__ = ["Gaussian", "GaussianPair"]

_SAMPLED_REPLACEMENT = (
    "a record's own contribution is at most half the sensitivity and nothing outside the batch: the replace-one pair "
    "(1-q) N(0) + q N(±sensitivity/2)"
)
_SAMPLED_REMOVAL = (
    "a record outside the batch contributes nothing: the add-remove pair (1-q) N(0) + q N(sensitivity) against N(0)"
)
_WITHOUT_REPLACEMENT = (
    "batches of a fixed size without replacement: the replace-one bound of Zhu, Dong and Wang (2022, Theorem 11), "
    "composed from the larger of its two directions at every epsilon, which is conservative"
)


@dataclass(frozen=True)
class GaussianPair(Pair):
    """N(mu, 1) against N(0, 1): any number of Gaussian releases without secret sampling.

    With `bound` no two neighbours are known to be as far apart.
    """

    mu: float
    bound: bool = False
    described = "Gaussian noise"

    def masses(self, edges: Floats) -> tuple[Floats, Floats]:
        mu = self.mu
        return normal_masses(edges / mu - mu / 2), normal_masses(edges / mu + mu / 2)

    def reach(self, tail: float) -> tuple[float, float]:
        z = -float(ndtri(tail))
        return self.mu**2 / 2 - z * self.mu, self.mu**2 / 2 + z * self.mu

    def usual(self) -> float:
        return self.mu**2 / 2

    def moments(self, orders: tuple[float, ...], *, fast: bool) -> Floats:
        a = np.array(orders)
        return np.asarray(a * (a - 1) * (self.mu * self.mu / 2))

    def attained(self) -> Pair | None:
        return None if self.bound else self

    @property
    def unsampled_mu(self) -> float:
        return self.mu

    @property
    def sampled_gaussian(self) -> tuple[float, float] | None:
        return 1 / self.mu, 1.0

    def in_dp_accounting(self, interval: float) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_gaussian_mechanism(1 / self.mu, value_discretization_interval=interval)


@register("law")
@dataclass(frozen=True)
class Gaussian(Continuous):
    """Independent N(0, std²) on every entry; sensitivities are in L2.

    Two neighbours at distance s are N(0) and N(s/std) along the line between them, and equal across it: the curve is
    that of mu = s/std, and k independent releases have mu = √k s/std ("Gaussian Differential Privacy", Dong, Roth, Su).
    """

    std: float
    step: float = 0.0
    entries: int = 1
    name = "gaussian"
    standard = Standard.GAUSSIAN
    sized_by = "std"
    summary = "independent normal noise on every entry, of this std"
    norm = 2
    gaussian = True
    bounds_size = True

    def __str__(self) -> str:
        return f"Gaussian(std={self.std:.6g})"

    def strength(self, sensitivity: float) -> float:
        return ratio(self.apart(sensitivity), self.std)

    def pair(self, sensitivity: float) -> Pair:
        return GaussianPair(self.strength(sensitivity))

    def sampled_pair(self, sensitivity: float, rate: float, *, fixed: bool, one_sided: bool) -> tuple[Pair, str] | None:
        # A record is rounded in either world, with and without the batches that hide it.
        mu = self.strength(sensitivity + self.rounding)
        if fixed:
            return WithoutReplacementPair(mu, rate), _WITHOUT_REPLACEMENT
        if one_sided:
            return SampledGaussianPair(mu, rate), _SAMPLED_REMOVAL
        return SampledReplacementPair(mu, rate), _SAMPLED_REPLACEMENT

    @property
    def joint(self) -> Law | None:
        return Gaussian(1.0)

    @property
    def deviation(self) -> float:
        return self.std

    def scores(self, noise: Floats, signal: Floats, random: np.random.Generator) -> Floats | None:
        return noise / self.std

    def sizes(self, values: Floats) -> Floats:
        return np.square(values / self.std) / 2

    def lower_tail(self, totals: Floats | float, counts: Floats | float) -> Floats:
        """Σ x²/2σ² of n normals is Gamma(n/2)."""
        return np.asarray(gammainc(0.5 * np.asarray(counts), totals))
