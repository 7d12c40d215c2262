"""Whether noise shows coarse steps of its own in the last bits of what it was added to, beyond chance.

Noise of few bits reaches only some of the numbers around a value. That a number is one of these says little: another
would have been, too, by chance. But noise that is fine enough makes a released number and its close neighbours equally
likely, whatever the noiseless value. So a *model* of the noise, such as "any number of single precision", is
established where all released numbers agree with it although their neighbours do not: if a share f of the numbers
around a release agrees, fine noise agrees with probability f, and with all releases with the product of their shares.
Noise that is rounded, cast, scaled or clamped afterwards, and double noise that is rounded once, agrees by chance, and
sooner or later does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vflpriv.audits.statistics.reachability import reachable

__all__ = ["Model", "established", "settled"]

Floats = NDArray[np.float64]
Agrees = Callable[[Floats, Floats], NDArray[np.bool_]]
"""Whether released numbers can be these noiseless values plus the noise of a model, entry by entry."""

_CHANCE = 1e-9
"""The chance, over all models together, that noise without steps seems to have some."""
_AROUND = 8
"""Neighbours on either side of a released number."""
_FINEST, _COARSEST = -34, -5
"""Steps of noise that are tried, as powers of two beside its std: a density is even over the coarsest."""
_OFTEN = 0.01
"""A number that returns in a larger share of all releases was clamped or rounded: its neighbours are not as likely."""
_SLACK = 4
"""Units in the last place of all three numbers by which a sum of steps may be off."""


@dataclass(frozen=True)
class Model:
    """Noise with steps: what it is, in words, and which released numbers agree with it."""

    what: str
    agrees: Agrees
    width: float = 0.0
    """The numbers within this distance are neighbours, at least `_AROUND` on either side."""


def settled(released: Floats) -> NDArray[np.bool_]:
    """Which released numbers were neither clamped nor rounded to few values: they do not return."""
    _, place, times = np.unique(released, return_inverse=True, return_counts=True)
    often = times[place] > max(2.0, _OFTEN * len(released))
    return np.asarray(np.isfinite(released) & (released != 0) & ~often)


def established(released: Floats, noiseless: Floats, std: float, kind: np.dtype[np.floating]) -> list[Model]:
    """The models that the noise keeps to beyond chance, of numbers of this type.

    The numbers are `settled` ones, with the noiseless values that they were made of.
    """
    models, kept = list(_models(std, kind)), []
    bound = math.log(_CHANCE / len(models))
    unit = np.maximum(_last_place(released, kind), _common_step(released))
    for model in models:
        if not model.agrees(released, noiseless).all():
            continue
        if float(np.log(_shares(model, released, noiseless, unit)).sum()) < bound:
            kept.append(model)
    return kept


def _models(std: float, kind: np.dtype[np.floating]) -> Iterator[Model]:
    digits = np.finfo(kind).nmant + 1
    yield Model(f"{digits} binary digits", partial(_as_added, scale=1.0, kind=kind))
    yield Model(f"{digits} binary digits before it is scaled to its std", partial(_as_added, scale=std, kind=kind))
    if kind.itemsize < np.dtype(np.float64).itemsize:
        yield Model(
            f"{digits} binary digits before it is scaled and added in one", partial(_fused, scale=std, kind=kind)
        )
    exponent = math.frexp(std)[1]
    for power in range(_COARSEST, _FINEST - 1, -1):
        step = math.ldexp(1.0, exponent + power)
        what = f"steps of 2^{exponent + power}, which the values that it hides have not"
        yield Model(what, partial(_in_steps, step=step, kind=kind), width=step / 2)


def _as_added(released: Floats, noiseless: Floats, *, scale: float, kind: np.dtype[np.floating]) -> NDArray[np.bool_]:
    return reachable(released, noiseless, scale, dtype=kind)


def _fused(released: Floats, noiseless: Floats, *, scale: float, kind: np.dtype[np.floating]) -> NDArray[np.bool_]:
    """Value and scaled draw are summed before anything is rounded: exact in double precision."""
    factor = float(kind.type(scale))
    if not factor:
        return np.asarray(noiseless.astype(kind).astype(np.float64) == released)
    possible = np.zeros(released.shape, dtype=np.bool_)
    with np.errstate(over="ignore"):
        best = ((released - noiseless) / factor).astype(kind)
        for towards in (-math.inf, math.inf):
            draw = best
            for _ in range(_SLACK):
                possible |= (noiseless + factor * draw.astype(np.float64)).astype(kind).astype(np.float64) == released
                draw = np.nextafter(draw, kind.type(towards))
    return possible


def _in_steps(released: Floats, noiseless: Floats, *, step: float, kind: np.dtype[np.floating]) -> NDArray[np.bool_]:
    noise = released - noiseless
    off = np.abs(noise - np.rint(noise / step) * step)
    errors = sum(_last_place(values, kind) for values in (released, noiseless, noise))
    return np.asarray(off <= _SLACK * errors)


def _shares(model: Model, released: Floats, noiseless: Floats, unit: Floats) -> Floats:
    """Of each released number, the share of itself and its neighbours that agrees with the model."""
    apart = np.maximum(1.0, np.floor(model.width / (_AROUND * unit))) * unit
    neighbours = [k for k in range(-_AROUND, _AROUND + 1) if k]
    agreeing = sum(model.agrees(released + k * apart, noiseless).astype(np.float64) for k in neighbours)
    return np.asarray((1 + agreeing) / (1 + len(neighbours)))


def _last_place(values: Floats, kind: np.dtype[np.floating]) -> Floats:
    """The unit in the last place of numbers of a type."""
    information = np.finfo(kind)
    sizes = np.maximum(np.abs(values), float(information.tiny))
    return np.asarray(np.ldexp(float(information.eps), np.frexp(sizes)[1] - 1))


def _common_step(released: Floats) -> float:
    """The largest power of two of which all these numbers are multiples."""
    mantissa, exponent = np.frexp(released)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1 + exponent - 53
    return math.ldexp(1.0, int(lowest.min()))
