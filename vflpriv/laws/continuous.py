"""Continuous noise in floating point, on values of a grid, so that no bit of a release tells what it was made of.

Noise that is added in floating point reaches other numbers from one value than from its neighbour ("On Significance of
the Least Significant Bits for Differential Privacy", Mironov, CCS 2012). So the value is rounded to a whole number of
steps, the noise is one too, and their sum is exact: from every value every multiple of the step is reached. Only then
it is rounded to the type of the message, which is post-processing. Since round(k + z) = k + round(z) for whole k, all
of this is post-processing of the continuous noise on values of the grid, and costs what that does.

Random bits are int64 of 63 each, one row for each replica. The C extension makes draws of them on the CPU, tensor
operations where that was not built and on other devices. Both give the same bits on the CPU: logarithm, sine and cosine
are the sums and products of fdlibm, each rounded by itself; on other devices they are torch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from vflpriv.common import philox
from vflpriv.common.lazy import torch
from vflpriv.common.random import announced
from vflpriv.core.law import Draws, Law
from vflpriv.laws.grid import placed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Continuous", "Standard", "circle", "logarithm", "spread", "stepped"]

_OF_NOISE = 2.0**-12
"""A step is at most this share of the noise's scale."""
_OF_DISTANCE = 2.0**-26
"""Rounding adds at most this share to the distance of two neighbours, which is less than ε is computed to."""
_MOST_STEPS = 2.0**48
"""There are at most so many steps in the noise's scale: sums of steps are then exact in double precision."""
_SPREAD = 2.0**-4
"""The width of the uniform noise beside the continuous one, in units of its scale, is at most this, at least half."""


class Continuous(Law):
    """Noise with a density, `level` times what `unit` draws.

    A subclass is a frozen dataclass with the fields `step` and `entries`. Sensitivities are those of the values before
    they are rounded to steps. Rounding moves each entry by at most half a step, and two neighbours apart by at most
    `rounding` more: step·√entries in L2, step·entries in L1. With `step = 0`, as of a recorded system whose program
    adds noise its own way, nothing is counted for rounding; what is drawn here is then rounded to the noise's own grid.
    """

    step: float
    entries: int
    standard: ClassVar[Standard]
    """The law at level 1, unless `unit` and `in_steps` say otherwise."""

    def unit(self, source: Draws, count: int, *path: int) -> tuple[Tensor, Tensor]:
        """(R, count) float64 draws of the law at level 1, and as many times 63 further random bits."""
        return self.standard.unit(source.bits(self.standard.size(count), *path), count)

    def in_steps(self, source: Draws, count: int, steps: float, width: int, *path: int) -> Tensor:
        """The draws of `unit`, rounded to steps of which the level has so many, plus a number of such a window."""
        return stepped(self.standard, source, count, steps, width, *path)

    def parts(self, *path: int) -> Sequence[tuple[tuple[int, ...], float]]:
        """The independent draws that one is a sum of, by their paths, with a factor each; none where it is its own."""
        return ()

    def on_grid(self, distance: float, entries: int) -> Law:
        largest = self._size * _OF_NOISE
        if math.isfinite(distance):
            largest = min(largest, distance * _OF_DISTANCE / self._root(entries))
        return replace(self, step=_power_below(max(largest, self._size / _MOST_STEPS)), entries=entries)  # type: ignore[type-var]

    @property
    def rounding(self) -> float:
        """By how much rounding can move two neighbours apart, in the law's norm."""
        return self.step * self._root(self.entries)

    def apart(self, sensitivity: float) -> float:
        """The distance of two neighbours on the grid; values that are equal are rounded alike."""
        return sensitivity + self.rounding if sensitivity else 0.0

    @property
    def drawn(self) -> int:
        return self.entries if self.step else 0

    def draw(self, source: Draws, count: int, *path: int) -> Tensor:
        """Draws in units of the level, each a whole number of steps up to the rounding of a double.

        A whole number that is uniform within a small part of the scale is added, which is post-processing, too. Errors
        of a few units in the last place of the continuous draw then change the probability of each number of steps
        relative to that part, and not relative to a step, however small steps are (`accountants/_sampler.py`).
        """
        steps_of_level = self._size / self._own_step
        width = int(_power_below(steps_of_level * _SPREAD))
        drawn = self.in_steps(source, count, steps_of_level, width, *path)
        return announced(drawn, source, self.name, "noise", *path, step=1 / steps_of_level, parts=self.parts(*path))

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        """The noised value, of the type of the noiseless one.

        Draws of a device without float64 lie on the CPU: their steps are whole numbers there and here.
        """
        return placed(noiseless, draws, self._own_step, self._size / self._own_step)

    @property
    def _size(self) -> float:
        return float(self.level or 0.0)

    @property
    def _own_step(self) -> float:
        return self.step or _power_below(self._size * _OF_DISTANCE)

    def _root(self, entries: int) -> float:
        return float(entries ** (1 / (self.norm or 1)))


def _power_below(value: float) -> float:
    """The largest power of two that is not larger.

    >>> _power_below(0.3), _power_below(8.0)
    (0.25, 8.0)
    """
    return math.ldexp(1.0, math.frexp(value)[1] - 1)


class Standard(IntEnum):
    """A law that draws are made for, at level 1; its number is what the C extension knows it by."""

    GAUSSIAN = 0
    LAPLACE = 1

    def size(self, count: int) -> int:
        """How many numbers of 63 bits so many draws are made of: three a pair of normals or a Laplace draw,

        and one for each draw that is made. The last of a pair is made of them even where it is not drawn.
        """
        return 5 * -(-count // 2) if self is Standard.GAUSSIAN else 4 * count

    def unit(self, bits: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """(R, count) float64 draws, and as many random bits that are left."""
        part = -(-count // 2) if self is Standard.GAUSSIAN else count
        coarse, fine, third = bits[:, : 3 * part].unflatten(1, (3, part)).unbind(1)
        # All 53 digits of the uniform number are right, down to 2⁻¹²⁶.
        uniform = coarse.to(torch.float64).add_(fine.to(torch.float64).add_(0.5).mul_(2.0**-63)).mul_(2.0**-63)
        drawn = logarithm(uniform)
        if self is Standard.LAPLACE:
            drawn = drawn.mul_((third & 1).to(torch.float64).mul_(2.0).sub_(1.0))
        else:
            length = _root(drawn.mul_(-2.0))
            drawn = torch.cat([length * factor for factor in circle(third)], dim=1)[:, :count]
        return drawn, bits[:, 3 * part : 3 * part + count]


def _root(number: Tensor) -> Tensor:
    # On the CPU torch's own root of float64 is not always the nearest number.
    return torch.from_numpy(np.sqrt(number.numpy())) if number.is_cpu else number.sqrt_()


def logarithm(number: Tensor) -> Tensor:
    """The logarithm of normal float64 numbers: of 2ᵏ m with m in [√½, √2), by a series in (m - 1) / (m + 1)."""
    if not number.is_cpu:
        return number.log()
    bits = number.contiguous().view(torch.int64)
    exponent = (bits + 0x0009576200000000) >> 52
    f = (bits - (exponent << 52) + 0x3FF0000000000000).view(torch.float64) - 1.0
    k, half, s = exponent.to(torch.float64) - 1023.0, 0.5 * f * f, f / (2.0 + f)
    z = s * s
    w = z * z
    odd, even = z * _series(_LOG[0::2], w), w * _series(_LOG[1::2], w)
    return k * _LN2_HIGH - ((half - (s * (half + (odd + even)) + k * _LN2_LOW)) - f)


def circle(turns: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of `turns` / 2⁶² half turns, less one: those of what is left of the nearest quarter of a turn."""
    if not turns.is_cpu:
        # Angles around zero: their rounding errors are those of numbers up to π.
        angle = turns.to(torch.float64).mul_(2.0**-62).sub_(1.0).mul_(math.pi)
        return angle.cos(), angle.sin()
    # Whole numbers of 64 bits wrap around, so that the last quarter is the first one.
    quarter = ((turns + (1 << 60)) >> 61) & 7
    x = (turns - (quarter << 61)).to(torch.float64) * 2.0**-61 * _HALF_PI
    z = x * x
    w = z * z
    of_sine = _series(_SIN[1:4], z) + z * w * _series(_SIN[4:], z)
    of_cosine = z * _series(_COS[:3], z) + w * w * _series(_COS[3:], z)
    sine = x + z * x * (_SIN[0] + z * of_sine)
    half = 0.5 * z
    high = 1.0 - half
    cosine = high + (((1.0 - high) - half) + z * of_cosine)
    swapped = (quarter & 1).bool()
    first, second = torch.where(swapped, sine, cosine), torch.where(swapped, cosine, sine)
    return torch.where((quarter + 1) & 2 > 0, first, -first), torch.where(quarter & 2 > 0, second, -second)


def stepped(law: Standard, source: Draws, count: int, steps: float, width: int, *path: int) -> Tensor:
    """(R, count) draws of a law, rounded and spread as by `spread`."""
    keys = getattr(source, "precise_keys", None)
    if keys is not None and philox.native(keys):
        target = np.empty((len(keys), count))
        philox.extension.noise(law, steps, width, len(keys), target, *philox.arrays(keys, path))
        return torch.from_numpy(target)
    bits = source.bits(law.size(count), *path)
    if not philox.native(bits) or philox.watched():
        return spread(*law.unit(bits, count), steps, width)
    target = np.empty((len(bits), count))
    philox.extension.noise(law, steps, width, len(bits), target, bits.numpy())
    return torch.from_numpy(target)


def spread(drawn: Tensor, bits: Tensor, steps: float, width: int) -> Tensor:
    """Draws rounded to whole steps, of which 1 is so many, plus a whole number that is uniform in a window around 0.

    The window's width is a power of two.
    """
    return (drawn * steps).round_().add_((bits & (width - 1)).sub_(width // 2)).div_(steps)


def _series(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """c₀ + x (c₁ + x (c₂ + …))."""
    total = coefficients[-1] * x
    for coefficient in coefficients[-2:0:-1]:
        total = (total + coefficient) * x
    return total + coefficients[0]


# Of fdlibm, as in the C extension.
_LOG = (
    *(6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01),
    *(1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01),
)
_SIN = (
    *(-1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04),
    *(2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10),
)
_COS = (
    *(4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05),
    *(-2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11),
)
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_HALF_PI = math.pi / 2
