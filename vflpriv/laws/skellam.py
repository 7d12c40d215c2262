"""Skellam noise: the difference of two Poisson numbers, in whole steps of a grid. Its sums are Skellam noise, too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ive

from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.law import Pair
from vflpriv.laws.grid import GridLaw
from vflpriv.laws.pairs import AtomicPair

__all__ = ["Skellam", "SkellamMoments", "SkellamPair", "log_masses"]

_FINEST = 20_000.0
"""Standard deviations of more steps have too many losses to list: their moments alone are used."""
_NEGLIGIBLE = 60.0
"""Noise beyond the reach has a probability below e to the power of minus this, on each side."""
_UNDERFLOW = 1e-290


def log_masses(steps: Floats, variance: float) -> Floats:
    """log P[noise = k] = log(e^{-v} I_k(v)) for whole k ≥ 0, also where P itself is too small for a floating number."""
    masses = np.asarray(ive(steps, variance), dtype=np.float64)
    far = masses < _UNDERFLOW
    with np.errstate(divide="ignore"):
        logs = np.log(masses)
    logs[far] = _debye(np.maximum(steps[far], 1.0), variance)
    return logs


def _debye(order: Floats, variance: float) -> Floats:
    """The uniform expansion of log(e^{-v} I_k(v)) for large k (DLMF 10.41.3), its first two corrections included."""
    root = np.hypot(order, variance)
    t = order / root
    exponent = root - variance - order * np.arcsinh(order / variance)
    first = (3 * t - 5 * t**3) / 24 / order
    second = (81 * t**2 - 462 * t**4 + 385 * t**6) / 1152 / order**2
    return np.asarray(exponent - np.log(2 * math.pi * root) / 2 + np.log1p(first + second))


@dataclass(frozen=True)
class SkellamMoments(Pair):
    """Noise on several entries, of which a bound on Rényi divergences is known at whole orders a > 1:

        R_a ≤ a D₂²/2v + min(((2a - 1) D₂² + 6 D₁)/4v², 3 D₁/2v)

    for neighbours D₁ and D₂ steps apart in L1 and L2, and noise of v steps of variance ("The Skellam Mechanism for
    Differentially Private Federated Learning", Agarwal, Kairouz, Liu, NeurIPS 2021, Corollary 3.6). Between whole
    orders (a - 1) R_a lies below its chords, since it is convex and 0 at a = 1.
    """

    absolute: float
    euclidean: float
    variance: float
    described = "Skellam noise on several entries"
    by_moments = True

    def masses(self, edges: Floats) -> tuple[Floats, Floats]:
        raise NotImplementedError("only moments of Skellam noise on several entries are known")

    def reach(self, tail: float) -> tuple[float, float]:
        raise NotImplementedError("only moments of Skellam noise on several entries are known")

    def usual(self) -> float:
        return self.euclidean**2 / (2 * self.variance)

    def moments(self, orders: tuple[float, ...], *, fast: bool) -> Floats:
        a = np.array(orders)
        low, high = self._at_whole(np.floor(a)), self._at_whole(np.floor(a) + 1)
        return np.asarray(low + (a - np.floor(a)) * (high - low))

    def _at_whole(self, a: Floats) -> Floats:
        square, v = self.euclidean**2, self.variance
        correction = np.minimum(((2 * a - 1) * square + 6 * self.absolute) / (4 * v * v), 1.5 * self.absolute / v)
        return np.asarray((a - 1) * (a * square / (2 * v) + correction))

    def attained(self) -> Pair | None:
        return None


@dataclass(frozen=True)
class SkellamPair(AtomicPair):
    """Skellam noise of so many steps of `variance`, against the same noise `shift` steps further.

    A larger shift is easier to tell, since the weights are log-concave, as those of all sums of Poisson numbers.
    """

    shift: int
    variance: float
    described = "Skellam noise"

    def atoms(self) -> tuple[Floats, Floats, Floats]:
        return _losses(self.shift, self.variance)

    def moments(self, orders: tuple[float, ...], *, fast: bool) -> Floats:
        """From the list of losses while that reaches far enough for an order, and by their bound for larger ones."""
        bounds = SkellamMoments(self.shift, self.shift, self.variance).moments(orders, fast=fast)
        listed = [a for a in orders if a * self.shift <= _reach(self.variance)]
        exact = dict(zip(listed, super().moments(tuple(listed), fast=fast), strict=True))
        return np.array([exact.get(a, bound) for a, bound in zip(orders, bounds, strict=True)])

    def in_dp_accounting(self, interval: float) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        _, upper, lower = self.atoms()
        log_upper, log_lower = (
            {k: math.log(p) for k, p in enumerate(side) if p > 0} for side in (upper.tolist(), lower.tolist())
        )
        return pld.from_two_probability_mass_functions(log_lower, log_upper, value_discretization_interval=interval)


@lru_cache(maxsize=64)
def _reach(variance: float) -> int:
    """The first k with P[noise > k] < e^{-_NEGLIGIBLE}, by Chernoff: log P ≤ √(k² + v²) - v - k asinh(k/v)."""

    def negligible(k: int) -> bool:
        return math.hypot(k, variance) - variance - k * math.asinh(k / variance) < -_NEGLIGIBLE

    high = 1
    while not negligible(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if negligible(middle) else (middle, high)
    return high


@lru_cache(maxsize=64)
def _losses(shift: int, variance: float) -> tuple[Floats, Floats, Floats]:
    """The loss of every outcome from one reach below the first noise to two reaches above the second."""
    reach = _reach(variance)
    logs = log_masses(np.arange(2 * reach + shift + 1, dtype=np.float64), variance)
    x = np.arange(-reach, 2 * reach + shift + 1)
    upper, lower = logs[np.abs(x - shift)], logs[np.abs(x)]
    return upper - lower, np.exp(upper), np.exp(lower)


@register("law")
@dataclass(frozen=True)
class Skellam(GridLaw):
    """Whole steps k with probability e^{-v} I_k(v), v = (std/step)², independent on every entry; L2 sensitivities.

    It is the difference of two Poisson numbers of mean v/2. Parties that each add Skellam noise have added noise of
    the sum of their variances, which makes it the noise of sums that are computed on ciphertext: in vertical federated
    learning that of SQM ("SQM: Skellam Quantization Mechanism", Bao et al., ICDE 2025). Where a unit moves one entry,
    its privacy loss is known exactly; of several entries, a bound on its moments (`SkellamMoments`).
    """

    std: float
    step: float = 1.0
    entries: int = 1
    rounds: bool = True
    name = "skellam"
    sized_by = "std"
    summary = "whole steps of a grid, as the difference of two Poisson numbers, of this std"
    norm = 2

    def __str__(self) -> str:
        return f"Skellam(std={self.std:.6g}, step={self.step:.6g})"

    @property
    def variance(self) -> float:
        """In steps, squared."""
        return (self.std / self.step) ** 2

    def strength(self, sensitivity: float) -> float:
        """The mu of the Gaussian whose Rényi divergences bound it at whole orders."""
        if not sensitivity:
            return 0.0
        if not self.std:
            return math.inf
        square, v = self.shift(sensitivity) ** 2, self.variance
        beyond = max(0.0, 6 * self._absolute(sensitivity) - square) / (2 * v * v)
        return math.sqrt(square / v * (1 + 1 / v) + beyond)

    def _absolute(self, sensitivity: float) -> float:
        """The distance in L1 of neighbours that are `shift` apart in L2, in whole steps of so many entries."""
        shift = self.shift(sensitivity)
        return shift * min(math.sqrt(self.entries), shift)

    def pair(self, sensitivity: float) -> Pair:
        shift = self.shift(sensitivity)
        if self.entries > 1 or self.std / self.step > _FINEST:
            return SkellamMoments(self._absolute(sensitivity), shift, self.variance)
        return SkellamPair(int(shift), self.variance)

    def log_weights(self, steps: Floats) -> Floats:
        return log_masses(steps, self.variance)

    def reach(self) -> int:
        return _reach(self.variance)

    def sizes(self, values: Floats) -> Floats:
        return np.square(values / self.std) / 2
