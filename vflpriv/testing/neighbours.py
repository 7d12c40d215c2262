"""Hypothesis strategies: pairs of data sets that are neighbours under each unit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from vflpriv.common.numerics import Floats
from vflpriv.core.units import Unit

__all__ = ["Records", "neighbouring_data", "neighbouring_rows"]


@dataclass(frozen=True, eq=False)
class Records:
    """A small vertical data set: one block of features per device, (n, width) each, and the labels (n,)."""

    blocks: tuple[Floats, ...]
    labels: NDArray[np.int64]


def _numbers(limit: float) -> st.SearchStrategy[float]:
    return st.floats(-limit, limit, allow_nan=False, allow_infinity=False)


@st.composite
def neighbouring_rows(
    draw: st.DrawFn, unit: Unit | str, *, rows: int = 6, width: int = 3, limit: float = 1e3
) -> tuple[Floats, Floats]:
    """Two matrices with one row per record: one device's features, or each record's contribution to a release.

    For units of one record one row is replaced (`add-remove` removes it); for `client-zero` the second matrix is zero,
    for `client` it is arbitrary. There are 1 to `rows` rows of `width` numbers within ±`limit`.

    >>> from hypothesis import find
    >>> one, other = find(neighbouring_rows("record", rows=2, width=1), lambda pair: pair[0].sum() > pair[1].sum() + 5)
    >>> int((one != other).any(axis=1).sum())
    1
    """
    unit, count = Unit(unit), draw(st.integers(1, rows))
    numbers = _numbers(limit)
    mine = draw(arrays(np.float64, (count, width), elements=numbers))
    if unit is Unit.CLIENT_ZERO:
        return mine, np.zeros_like(mine)
    if unit is Unit.CLIENT:
        return mine, draw(arrays(np.float64, mine.shape, elements=numbers))
    place = draw(st.integers(0, count - 1))
    if unit is Unit.ADD_REMOVE:
        return mine, np.delete(mine, place, axis=0)
    other = mine.copy()
    other[place] = draw(arrays(np.float64, width, elements=numbers))
    return mine, other


@st.composite
def neighbouring_data(
    draw: st.DrawFn,
    unit: Unit | str,
    *,
    rows: int = 5,
    devices: int = 2,
    width: int = 2,
    classes: int = 3,
    limit: float = 1e3,
) -> tuple[Records, Records]:
    """Two small vertical data sets that differ in one unit, and in nothing else.

    >>> from hypothesis import find
    >>> one, other = find(neighbouring_data("label"), lambda pair: (pair[0].labels != pair[1].labels).any())
    >>> int((one.labels != other.labels).sum()), all((a == b).all() for a, b in zip(one.blocks, other.blocks))
    (1, True)
    """
    unit, count = Unit(unit), draw(st.integers(1, rows))
    block = arrays(np.float64, (count, width), elements=_numbers(limit))
    label = st.integers(0, classes - 1)
    mine = Records(
        blocks=tuple(draw(block) for _ in range(devices)), labels=draw(arrays(np.int64, count, elements=label))
    )
    device, place = draw(st.integers(0, devices - 1)), draw(st.integers(0, count - 1))
    if unit is Unit.ADD_REMOVE:
        kept = tuple(np.delete(b, place, axis=0) for b in mine.blocks)
        return mine, Records(blocks=kept, labels=np.delete(mine.labels, place))
    blocks, labels = [b.copy() for b in mine.blocks], mine.labels.copy()
    if unit is Unit.CLIENT_ZERO:
        blocks[device][:] = 0.0
    elif unit is Unit.CLIENT:
        blocks[device] = draw(block)
    for m in {Unit.FEATURES: [device], Unit.RECORD: range(devices)}.get(unit, ()):
        blocks[m][place] = draw(arrays(np.float64, width, elements=_numbers(limit)))
    if unit in (Unit.LABEL, Unit.RECORD):
        labels[place] = draw(label)
    return mine, replace(mine, blocks=tuple(blocks), labels=labels)
