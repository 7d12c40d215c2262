"""Composition of privacy losses on a grid, in Fourier space and under an exponential tilt, with its error bounded.

The tilted mass e^{t l - K(t)} P(l), with K the logarithm of the moment, gathers around the epsilon that is asked for.
There the transform is exact to about 1e-16 of what decides delta, however small delta is, and a short window suffices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import brentq

from vflpriv.accountants._lattice import Lattice, grid
from vflpriv.common.numerics import Floats

__all__ = ["MAX_GRID_POINTS", "MAX_WORK", "Composition", "GridTooLargeError", "compose"]

MAX_GRID_POINTS = 2**21
"""The most points of one grid: about 200 MB and a second of transforms at this size."""

MAX_WORK = 2**25
"""The most points over all transforms of one composition."""

_OUTSIDE = 1e-13
_HALVINGS = 24
_UNIT_ROUNDOFF = 2.3e-16


class GridTooLargeError(Exception):
    """A grid with too many points; `factor` says how many times too many. Raised before anything is allocated."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        super().__init__(f"Expected a grid {factor:.3g} times smaller.")


@dataclass(frozen=True, eq=False)
class Composition:
    """The tilted masses of a sum of losses on a window, from which delta(epsilon) is read with its error."""

    losses: Floats
    tilted: Floats
    tilt: float
    log_moment: float
    infinite: float
    operations: float

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper values of delta(epsilon) = E[(1 - e^{epsilon - L})_+] of the lattices' sum.

        The error: the weight of a loss is at most its supremum W, so mass that the window folds costs at most its share
        of W; and the transforms' rounding is bounded in the 2-norm, by Cauchy-Schwarz.
        """
        start = int(np.searchsorted(self.losses, epsilon, side="right"))
        losses, tilted = self.losses[start:], self.tilted[start:]
        log_largest = self._log_largest_weight(epsilon)
        if log_largest > 300:
            return 0.0, 1.0
        weight = np.exp(self.log_moment - self.tilt * losses) * -np.expm1(epsilon - losses)
        value = float(np.sum(tilted * weight))
        norm = math.sqrt(float(np.sum(np.square(self.tilted))) * float(np.sum(np.square(weight))))
        error = _OUTSIDE * math.exp(log_largest) + self.operations * _UNIT_ROUNDOFF * norm
        return max(0.0, value - error), min(1.0, value + error + self.infinite)

    def _log_largest_weight(self, epsilon: float) -> float:
        # sup over u > 0 of e^{-t u} (1 - e^{-u}) = t^t / (1+t)^{1+t}
        t = self.tilt
        shape = t * math.log(t) - (1 + t) * math.log1p(t) if t > 0 else 0.0
        return self.log_moment - t * epsilon + shape

    def _values(self) -> Callable[[float], float]:
        """delta as a function of epsilon >= 0, without its error: P(L > epsilon) - e^epsilon Q(L > epsilon).

        Both tails are sums that are computed once, so that an epsilon costs next to nothing.
        """
        if self._log_largest_weight(0.0) > 300 or self.losses[-1] > 300:
            return lambda epsilon: sum(self.delta(epsilon)) / 2
        start = int(np.searchsorted(self.losses, 0.0, side="right"))
        losses = self.losses[start:]
        upper = self.tilted[start:] * np.exp(self.log_moment - self.tilt * losses)
        tails = [np.cumsum(masses[::-1])[::-1] for masses in (upper, upper * np.exp(-losses))]

        def value(epsilon: float) -> float:
            at = int(np.searchsorted(losses, epsilon, side="right"))
            tail = float(tails[0][at] - math.exp(epsilon) * tails[1][at]) if at < losses.size else 0.0
            return tail + self.infinite / 2

        return value

    def epsilon(self, delta: float, high: float, *, upper: bool) -> float:
        """An epsilon up to `high` whose certified upper delta is at most `delta`, close to the least; else inf.

        With `upper=False`, one whose certified lower delta is still above `delta`, close to the largest; else 0.
        """

        value = self._values()

        def excess(epsilon: float) -> float:
            return math.log(max(value(epsilon), 1e-320)) - math.log(delta)

        if excess(high) > 0:
            return math.inf if upper else high * float(self.delta(high)[0] > delta)
        root = 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, high, xtol=1e-13, rtol=1e-10))

        def certified(slack: float) -> bool:
            if upper:
                return self.delta(min(root + slack, high))[1] <= delta
            return slack >= root or self.delta(root - slack)[0] > delta

        slack = 0.0 if certified(0.0) else _least(certified, 1e-9 * root + 1e-13, high)
        if upper:
            return math.inf if math.isinf(slack) else min(root + slack, high)
        return max(root - slack, 0.0)


def _least(holds: Callable[[float], bool], first: float, last: float) -> float:
    """About the least value, from `first` on, for which a condition holds; inf if none up to `last` does.

    The condition fails near 0, where the error is larger than the slack.
    """
    low, high = 0.0, first
    while not holds(high):
        low, high = high, 4 * high
        if low > last:
            return math.inf
    while low > 0 and high > 1.1 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@dataclass(frozen=True, eq=False)
class _Tilted:
    lattice: Lattice
    count: int
    masses: Floats
    log_moment: float
    mean: float
    variance: float


def compose(parts: Sequence[tuple[Lattice, int]], tilt: float) -> Composition:
    """The sum of `count` independent losses of each lattice, all with the same step. Checks sizes before allocating."""
    tilted = [_tilt(lattice, count, tilt) for lattice, count in parts]
    step = parts[0][0].step
    low, high = _window(tilted)
    size = (high - low) / step + 2
    factor = max(size / MAX_GRID_POINTS, size * len(parts) / MAX_WORK)
    if not factor <= 1:
        raise GridTooLargeError(factor)
    points = next_fast_len(math.ceil(size), real=True)
    masses, shift = _convolve(tilted, points)
    offset = math.fsum(part.count * part.lattice.offset for part in tilted)
    # Grid index k of the sum lies at position (k - shift) modulo the number of points.
    first = math.floor((low - offset) / step)
    return Composition(
        losses=grid(offset, step, first, first + points),
        tilted=np.roll(masses, -((first - shift) % points)),
        tilt=tilt,
        log_moment=math.fsum(part.count * part.log_moment for part in tilted),
        infinite=-math.expm1(math.fsum(part.count * math.log1p(-part.lattice.infinite) for part in tilted)),
        # A power's relative error grows with the exponent; the transforms' with the logarithm of their length.
        operations=4.0 * sum(part.count for part in tilted) + 128.0,
    )


def _tilt(lattice: Lattice, count: int, tilt: float) -> _Tilted:
    losses = lattice.losses
    with np.errstate(divide="ignore"):
        exponent = np.log(lattice.masses) + tilt * losses
    top = float(exponent.max())
    masses = np.exp(exponent - top)
    total = float(masses.sum())
    masses /= total
    mean = float(np.sum(masses * losses))
    variance = float(np.sum(masses * np.square(losses - mean)))
    return _Tilted(lattice, count, masses, top + math.log(total), mean, variance)


def _window(tilted: Sequence[_Tilted]) -> tuple[float, float]:
    """Losses outside which the tilted sum has mass at most _OUTSIDE, by Chernoff's bound with a few exponents."""
    mean = math.fsum(part.count * part.mean for part in tilted)
    spread = math.sqrt(math.fsum(part.count * part.variance for part in tilted))
    if spread == 0:
        return mean, mean
    return mean - _deviation(tilted, -1.0 / spread), mean + _deviation(tilted, 1.0 / spread)


def _deviation(tilted: Sequence[_Tilted], unit: float) -> float:
    """A deviation from the mean, to one side, that has probability at most _OUTSIDE / 2.

    For a Gaussian the best exponent is about 8 units; a heavy tail needs a smaller one, found by halving. Rare losses
    that are many spreads away need one that is smaller still: there a unit is far too large.
    """
    budget, best = math.log(2 / _OUTSIDE), math.inf
    for halvings in range(_HALVINGS):
        size = 8.0 / 2**halvings
        growth = math.fsum(part.count * _log_mean_exp(part, size * unit) for part in tilted)
        deviation = (growth + budget) / (size * abs(unit))
        if deviation > best:
            break
        best = deviation
    return best


def _log_mean_exp(part: _Tilted, t: float) -> float:
    """log E e^{t (L - E L)} under the tilted masses, accurate near 0."""
    exponent = t * (part.lattice.losses - part.mean)
    top = float(exponent.max())
    if top > 1:
        with np.errstate(divide="ignore"):
            exponent = exponent + np.log(part.masses)
        top = float(exponent.max())
        return top + math.log(float(np.sum(np.exp(exponent - top))))
    return math.log1p(max(0.0, float(np.sum(part.masses * (np.expm1(exponent) - exponent)))))


def _convolve(tilted: Sequence[_Tilted], points: int) -> tuple[Floats, int]:
    """The masses of the sum modulo `points`, each part shifted by its mean so that phases stay small."""
    product = np.ones(points // 2 + 1, dtype=np.complex128)
    shift = 0
    for part in tilted:
        center = round((part.mean - part.lattice.offset) / part.lattice.step)
        index = np.arange(part.masses.size) + (part.lattice.first - center)
        folded = np.bincount(index % points, weights=part.masses, minlength=points)
        transform = rfft(folded)
        product *= _power(transform / transform[0].real, part.count)
        shift += part.count * center
    return np.maximum(irfft(product, points), 0.0), shift


def _power(base: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """By repeated squaring: faster than the complex power, and its error grows no faster than the exponent."""
    result: NDArray[np.complex128] | None = None
    while True:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if not exponent:
            return base if result is None else result
        base = base * base
