"""Columns with few, equally spaced values: which columns these are, and all such vectors in a subspace.

With its first value and its step taken off, such a column is a vector of whole numbers from 0 to `size - 1`. Where the
subspace holds the constant vector, too, it holds this vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space, qr

from vflpriv.common.numerics import Floats

__all__ = ["LARGEST", "MOST", "Grid", "Search", "grid_of"]

LARGEST = 17
"""The most values that a column may have, those of digits' pixels."""
MOST = 1 << 16
"""The most partial vectors that a search keeps; a search with more is given up."""
_SAME = 1e-4
"""Values that differ by less than this share of a column's range are the same."""
_WHOLE = 0.05
"""How far from whole numbers a vector of rounded float32 embeddings may lie."""
_INDEPENDENT = 1e-3
"""Known rows with a smaller singular value than this say nothing new of the subspace."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The values `first`, `first + step`, … of a column, `size` in number."""

    first: float
    step: float
    size: int

    def levels(self, values: Floats) -> Floats:
        """The place of each value in the grid, from 0."""
        return np.asarray(np.rint((values - self.first) / self.step), dtype=np.float64)

    def values(self, levels: Floats) -> Floats:
        """The value at each place."""
        return self.first + self.step * levels


def grid_of(values: Floats) -> Grid | None:
    """The coarsest grid that all these values of a column lie on.

    None if it has more than `LARGEST` values or only one, and if the column shows so many different ones that more
    records might show further ones.

    >>> grid_of(np.array([0.0, 1.0, 0.25, 0.0, 0.75, 0.25, 0.0, 1.0]))
    Grid(first=0.0, step=0.25, size=5)
    >>> grid_of(np.array([0.0, 0.1, 0.2718, 0.3141])) is None
    True
    """
    distinct = np.unique(values)
    span = float(distinct[-1] - distinct[0]) if len(distinct) else 0.0
    if not span:
        return None
    distinct = distinct[np.concatenate(([True], np.diff(distinct) > _SAME * span))]
    if 2 * len(distinct) > len(values):
        return None
    step = 0.0
    for difference in np.diff(distinct).tolist():
        step = _common_divisor(step, difference, _SAME * span)
    size = round(span / step) + 1
    return Grid(first=float(distinct[0]), step=span / (size - 1), size=size) if size <= LARGEST else None


def _common_divisor(a: float, b: float, tolerance: float) -> float:
    """Euclid's algorithm on lengths that are known up to a tolerance."""
    while b > tolerance:
        a, b = b, abs(a - b * round(a / b)) if a else 0.0
    return a


class Search:
    """All vectors of whole numbers in a subspace, given by an orthonormal basis (n, r), that agree with known rows.

    A vector of the subspace is determined by as many of its entries as the known rows leave dimensions free (`free`).
    The entries are tried one after another; partial vectors that leave the grid whatever the others are, are dropped.
    So the search is complete: a vector that it does not find is not in the subspace.
    """

    def __init__(self, basis: Floats, known_rows: NDArray[np.int64]) -> None:
        self.rows, self._basis = known_rows, basis
        known = basis[known_rows]
        self._inverse = np.linalg.pinv(known, rcond=_INDEPENDENT) if len(known_rows) else np.zeros((basis.shape[1], 0))
        unknown = null_space(known, rcond=_INDEPENDENT) if len(known_rows) else np.eye(basis.shape[1])
        directions = basis @ unknown
        self.free = directions.shape[1]
        _, _, order = qr(directions.T, pivoting=True, mode="economic")
        self._pivots = order[: self.free]
        self._by_pivot = directions @ np.linalg.inv(directions[self._pivots])

    def vectors(self, levels: Floats, size: int) -> Floats | None:
        """(k, n) the vectors with entries from 0 to `size - 1` and these levels at the known rows.

        None where there are too many to try.
        """
        base = self._basis @ (self._inverse @ levels)
        if np.abs(base[self.rows] - levels).max(initial=0.0) > _WHOLE:
            return np.zeros((0, len(base)))
        partial = (base - self._by_pivot @ base[self._pivots])[None, :]
        entries = np.arange(size)
        # What the entries that are not yet tried can add to each row, at least and at most.
        added = self._by_pivot * (size - 1)
        least, most = (np.cumsum(clipped(added, 0)[:, ::-1], axis=1)[:, ::-1] for clipped in (np.minimum, np.maximum))
        for k in range(self.free):
            partial = (partial[:, None, :] + entries[None, :, None] * self._by_pivot[:, k]).reshape(-1, len(base))
            after = (least[:, k + 1], most[:, k + 1]) if k + 1 < self.free else (0.0, 0.0)
            possible = (partial + after[1] > -_WHOLE) & (partial + after[0] < size - 1 + _WHOLE)
            partial = partial[possible.all(1)]
            if len(partial) * (size if k + 1 < self.free else 1) > MOST:
                return None
        rounded = np.rint(partial)
        fits = (np.abs(partial - rounded) < _WHOLE) & (rounded >= 0) & (rounded < size)
        return np.asarray(rounded[fits.all(1)])
