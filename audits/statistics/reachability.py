"""Whether a released number can be a given noiseless value plus any noise at all, in floating-point arithmetic.

Noise of few bits that is added in few bits reaches only some of the numbers around a value, and other ones around a
neighbour's ("On Significance of the Least Significant Bits for Differential Privacy", Mironov, CCS 2012). A number that
one world's value can become, and the other's cannot, proves in which world it was released.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = ["reachable"]

_NEAR = 4
"""How many neighbours of the draw that fits best are tried on either side."""


def reachable(
    released: ArrayLike, noiseless: ArrayLike, scale: float, *, dtype: DTypeLike = np.float32, step: float = 0.0
) -> NDArray[np.bool_]:
    """Of each entry, whether some draw z makes the released number out of the noiseless one.

    Without a `step` noise is added as programs usually do: fl(noiseless + fl(scale · z)) with z any number of `dtype`,
    and fl rounding to it. A draw within a few units in the last place of (released - noiseless) / scale then fits if
    any does: where the sum is finer than the noise only one noise fits, and where it is coarser those in the middle of
    the fitting ones do. With a `step` noiseless value and noise are whole numbers of steps, whose exact sum is rounded
    to `dtype`: all multiples of the step that `dtype` holds can then be reached, whatever the value.

    >>> near = np.array([0.1, 0.10000001], dtype=np.float32)
    >>> reachable(near, 0.1, 1.0).tolist(), reachable([0.1, 0.125], 7.3, 1.0, step=2.0**-12).tolist()
    ([True, True], [False, True])
    """
    kind: type[Any] = np.dtype(dtype).type
    wanted = np.asarray(released, dtype=np.float64)
    if step:
        return np.asarray(np.isfinite(wanted) & (np.rint(wanted / step) * step == wanted) & _held(wanted, kind))
    if not scale:
        return np.asarray(np.asarray(noiseless, dtype=kind) == wanted)
    wanted, base = np.broadcast_arrays(wanted, np.asarray(noiseless).astype(kind))
    factor, possible = kind(scale), np.zeros(wanted.shape, dtype=np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):
        best = ((wanted - base.astype(np.float64)) / float(factor)).astype(kind)
        for towards in (math.inf, -math.inf):
            draw = best
            for _ in range(_NEAR + 1):
                possible |= (base + factor * draw).astype(np.float64) == wanted
                draw = np.nextafter(draw, kind(towards))
    return possible


def _held(values: NDArray[np.float64], kind: type[Any]) -> NDArray[np.bool_]:
    """Whether numbers are exactly those of a type."""
    with np.errstate(over="ignore"):
        return np.asarray(values.astype(kind).astype(np.float64) == values)
