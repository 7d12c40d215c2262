"""Arithmetic of noise in whole steps: from random bits to draws, and from draws to the numbers that are released.

The C extension computes it on the CPU, tensor operations where that was not built and on other devices. Both give the
same bits on the CPU: logarithm, sine and cosine are the sums and products of fdlibm, each rounded by itself; on other
devices they are torch's. Random bits are int64 of 63 each, one row for each replica.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from vflpriv.common import philox
from vflpriv.common.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Standard", "circle", "logarithm", "placed", "spread", "stepped"]


class Bits(Protocol):
    """A stream, seeded or secret."""

    def bits(self, count: int, *path: int) -> Tensor:
        """(R, count) random bits."""
        ...


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
    rest = 1.0 - half
    cosine = rest + (((1.0 - rest) - half) + z * of_cosine)
    swapped = (quarter & 1).bool()
    first, second = torch.where(swapped, sine, cosine), torch.where(swapped, cosine, sine)
    return torch.where((quarter + 1) & 2 > 0, first, -first), torch.where(quarter & 2 > 0, second, -second)


def stepped(law: Standard, source: Bits, count: int, steps: float, width: int, *path: int) -> Tensor:
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


def placed(values: Tensor, draws: Tensor, step: float, steps: float = 1.0) -> Tensor:
    """The values, rounded to whole steps, plus draws of which 1 is so many steps: the exact sum, of the values' type.

    Whole numbers are added in float64, where those of the sizes that occur are exact; on a device without it, to which
    the draws' steps are then brought from the CPU, as integers.
    """
    if (
        values.dtype == torch.float32
        and draws.dtype == torch.float64
        and values.shape == draws.shape
        and philox.native(values, draws)
        and not (philox.watched() or values.requires_grad)
    ):
        target = np.empty(values.shape, dtype=np.float32)
        philox.extension.placed(values.numpy(), draws.numpy(), steps, step, target)
        return torch.from_numpy(target)
    whole = draws.to(torch.float64).mul(steps).round_()
    if whole.device != values.device:
        sums = torch.round(values / step).to(torch.int64) + whole.to(torch.int64).to(values.device)
        return sums.to(values.dtype) * step
    return torch.round(values.to(torch.float64) / step).add(whole).mul_(step).to(values.dtype)


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
