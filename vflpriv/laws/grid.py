"""What laws of noise on a grid share: rounding, sampling by tables of exact probabilities, and tests of observations.

Floating-point noise leaks through its last bits ("On Significance of the Least Significant Bits for Differential
Privacy", Mironov 2012). Noise that is a whole number of steps, on values that are, has no such bits.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from vflpriv.common import philox
from vflpriv.common.lazy import torch
from vflpriv.common.numerics import Floats
from vflpriv.common.random import announced
from vflpriv.core.law import Draws, Law, Pair

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GridLaw", "placed"]

_OFF = 1e-3
"""A share of a step by which values may be off the grid, by the rounding of floating-point numbers."""
_FAR = 40.0
"""The score of a value that the law never draws."""
_FINE = 13
"""A standard deviation has at least two to the power of one less steps, where only it is given."""
_TILTS = np.geomspace(1e-4, 1e6, 201)


def placed(values: Tensor, draws: Tensor, step: float, steps: float = 1.0) -> Tensor:
    """The values, rounded to whole steps, plus draws of which 1 is so many steps: the exact sum, of the values' type.

    Whole numbers are added in float64, where those of the sizes that occur are exact; on a device without it, to which
    the draws' steps are then brought from the CPU, as integers. The sums lie in memory as the values do, which
    layers compute transposed.
    """
    if (
        values.dtype == torch.float32
        and draws.dtype == torch.float64
        and values.shape == draws.shape
        and not (philox.watched() or values.requires_grad)
    ):
        turned = values.dim() > 1 and not values.is_contiguous()
        memory = values.transpose(-1, -2) if turned else values
        if philox.native(memory, draws):
            target = np.empty(memory.shape, dtype=np.float32)
            rows, columns = values.shape[-2:] if turned else (1, values.numel())
            philox.extension.placed(memory.numpy(), draws.numpy(), rows, columns, steps, step, target)
            sums = torch.from_numpy(target)
            return sums.transpose(-1, -2) if turned else sums
    whole = draws.to(torch.float64).mul(steps).round_()
    if whole.device != values.device:
        sums = torch.round(values / step).to(torch.int64) + whole.to(torch.int64).to(values.device)
        return sums.to(values.dtype) * step
    return torch.round(values.to(torch.float64) / step).add(whole).mul_(step).to(values.dtype)


class GridLaw(Law):
    """Symmetric noise of whole steps, falling on both sides of zero.

    A subclass is a frozen dataclass with the fields `step`, `entries` and `rounds`. Sensitivities are of the values
    before they are rounded to the grid. That moves the distance of two neighbours by at most a step in each of the
    `entries` that a unit can change; with `rounds = False` values lie on the grid already, and nothing is added.
    """

    step: float
    entries: int
    rounds: bool
    bounds_size = True

    @classmethod
    def of_deviation(cls, std: float) -> Law:
        """In steps so fine that rounding to them costs next to nothing, and no finer than exact accounting allows."""
        own: Any = super().of_deviation(std)
        step = math.ldexp(1.0, math.frexp(std)[1] - _FINE)
        law: Law = replace(own, step=step)
        return law.scaled(std / law.deviation)

    @abstractmethod
    def log_weights(self, steps: Floats) -> Floats:
        """The logarithm of the probability of noise of so many steps, up to a constant."""

    @abstractmethod
    def reach(self) -> int:
        """The number of steps beyond which there is less than 1e-25 of the probability, so that none is drawn."""

    @property
    def grid(self) -> float:
        return self.step

    def shift(self, sensitivity: float) -> float:
        """The distance between neighbours on the grid, in steps; whole for one entry."""
        steps = sensitivity / self.step
        if self.rounds and self.entries > 1:
            return steps + float(self.entries ** (1 / (self.norm or 1)))
        return float(math.ceil(steps - 1e-9)) if self.entries == 1 else steps

    @property
    def premises(self) -> tuple[str, ...]:
        if not self.rounds:
            return (f"values lie on a grid of step {self.step:g} before noise of whole steps is added",)
        moved = "entry" if self.entries == 1 else "entries"
        return (f"a unit moves at most {self.entries} {moved} of a release, rounded to steps of {self.step:g}",)

    @property
    def probabilities(self) -> Floats:
        """P[noise = 0], P[noise = 1 step], …, each of one sign."""
        return _probabilities(self)

    def pair_of(self, steps: int) -> Pair:
        """The pair of one entry on the grid in two worlds that are so many steps apart."""
        own: Any = self.scaled(1 / self.step)
        law: Law = replace(own, step=1.0, entries=1, rounds=False)
        return law.pair(float(steps))

    @property
    def deviation(self) -> float:
        mass = self.probabilities
        return self.step * math.sqrt(2 * float(np.sum(mass * np.square(np.arange(mass.size, dtype=np.float64)))))

    def draw(self, source: Draws, count: int, *path: int) -> Tensor:
        bits = source.bits(2 * count, *path).unflatten(1, (2, count))
        uniform = (bits[:, 0].to(torch.float64) + 0.5) * 2.0**-63
        mass = self.probabilities
        # P[|noise| > j]: uniform numbers are finest near 0, where the far tail lies.
        tails = torch.from_numpy(np.ascontiguousarray(2 * np.cumsum(mass[:0:-1]))).to(uniform.device)
        size = tails.numel() - torch.searchsorted(tails, uniform)
        steps = torch.where(bits[:, 1] & 1 > 0, size, -size).to(torch.float64)
        return announced(steps, source, self.name, "noise", *path, step=1.0, noise=self)

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        return placed(noiseless, draws, self.step)

    def scores(self, noise: Floats, signal: Floats, random: np.random.Generator) -> Floats | None:
        steps = (noise + signal) / self.step
        whole = np.rint(steps) - np.rint(signal / self.step)
        mass = self.probabilities
        size = np.minimum(np.abs(whole), mass.size).astype(np.int64)
        # The mass beyond each size on one side, and a place within that of the size itself.
        beyond = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        place = beyond[np.minimum(size + 1, mass.size)] + random.uniform(size=size.shape) * np.append(mass, 0.0)[size]
        side = np.where(whole == 0, np.where(random.uniform(size=size.shape) < 0.5, -1.0, 1.0), np.sign(whole))
        # Of noise 0 each sign has half of the mass, so that the nearer half of its interval ends at the median.
        place = np.where(whole == 0, beyond[1] + (place - beyond[1]) / 2, place)
        with np.errstate(divide="ignore"):
            scores = np.minimum(-ndtri(place), _FAR)
        off_grid = np.abs(steps - np.rint(steps)) > _OFF
        return np.where(off_grid | (size >= mass.size), _FAR, side * scores)

    def lower_tail(self, totals: Floats | float, counts: Floats | float) -> Floats:
        """Chernoff's bound: P[Σ sizes ≤ s] ≤ e^{ts} E[e^{-t size}]^n for every t > 0."""
        mass = self.probabilities
        weights, sizes = (
            np.append(mass[0], 2 * mass[1:]),
            self.sizes(self.step * np.arange(mass.size, dtype=np.float64)),
        )
        log_means = np.array([math.log(float(np.sum(weights * np.exp(-t * sizes)))) for t in _TILTS])
        exponents = np.multiply.outer(np.asarray(totals), _TILTS) + np.multiply.outer(np.asarray(counts), log_means)
        return np.asarray(np.exp(np.minimum(exponents.min(-1), 0.0)))


@lru_cache(maxsize=64)
def _probabilities(law: GridLaw) -> Floats:
    weights = law.log_weights(np.arange(law.reach() + 1, dtype=np.float64))
    mass = np.exp(weights - weights[0])
    return np.asarray(mass / (mass[0] + 2 * math.fsum(mass[1:])))
