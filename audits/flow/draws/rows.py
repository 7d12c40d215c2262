"""Noise as a linear function of draws: for each element of a storage, which draws reach it and with which factor.

A row has up to K terms, padded with column -1. Nearly all noise has K = 1: a fresh draw, scaled by entry. The matrix J
of a whole run is these rows, one storage after another; it is never built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

__all__ = ["MOST_TERMS", "Rows", "fineness", "joined", "no_columns"]

MOST_TERMS = 1 << 21
"""Rows with more terms than this in one tensor are not followed."""


def no_columns() -> Tensor:
    """No draw."""
    return torch.empty(0, dtype=torch.int64)


def fineness(dtype: torch.dtype) -> float:
    """The machine epsilon of a number format; 0 of whole numbers, which are not rounded."""
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


@dataclass(frozen=True, eq=False)
class Rows:
    """The terms of each element: `columns` and `scales`, (elements, K).

    `precision` is the machine epsilon of the coarsest number format that the noise went through: below it the noise
    hides nothing.
    """

    columns: Tensor
    scales: Tensor
    precision: float

    @classmethod
    def empty(cls, elements: int) -> Rows:
        """No noise on any element."""
        columns = torch.full((elements, 1), -1, dtype=torch.int64)
        return cls(columns, torch.zeros(elements, 1, dtype=torch.float64), 0.0)

    @property
    def covered(self) -> Tensor:
        """Which elements some draw reaches."""
        return ((self.columns >= 0) & (self.scales != 0)).any(1)

    @property
    def used(self) -> Tensor:
        """All columns that reach some element, once each."""
        columns: Tensor = torch.unique(self.columns[(self.columns >= 0) & (self.scales != 0)])
        return columns

    def at(self, elements: Tensor) -> Rows:
        """The rows of some elements, in this order; element -1 has none."""
        columns, scales = self.columns[elements], self.scales[elements]
        absent = elements < 0
        if bool(absent.any()):
            columns, scales = columns.clone(), scales.clone()
            columns[absent], scales[absent] = -1, 0.0
        return replace(self, columns=columns, scales=scales)

    def times(self, factors: Tensor) -> Rows:
        """Each row times its factor."""
        return replace(self, scales=self.scales * factors[:, None])

    def put(self, elements: Tensor, rows: Rows) -> Rows:
        """With other rows at some elements."""
        width = max(self.columns.shape[1], rows.columns.shape[1])
        columns, scales = _padded(self, width)
        columns[elements], scales[elements] = _padded(rows, width)
        return Rows(columns, scales, max(self.precision, rows.precision))

    def coarsened(self, precision: float) -> Rows:
        """After it went through a number format."""
        return self if precision <= self.precision else replace(self, precision=precision)

    def merged(self) -> tuple[Rows, Tensor]:
        """One term for each draw of a row; and which rows lost all their noise by that."""
        if self.columns.shape[1] == 1:
            return self, torch.zeros(len(self.columns), dtype=torch.bool)
        before, size = self.covered, self.scales.abs().amax(1, keepdim=True)
        columns, order = self.columns.sort(dim=1, descending=True)
        scales = self.scales.gather(1, order)
        if bool((columns[:, 1:] == columns[:, :-1])[columns[:, 1:] >= 0].any()):
            first = torch.ones_like(columns, dtype=torch.bool)
            first[:, 1:] = columns[:, 1:] != columns[:, :-1]
            place = first.cumsum(1) - 1
            scales = torch.zeros_like(scales).scatter_add_(1, place, scales)
            columns = torch.full_like(columns, -1).scatter_(1, place, columns)
        # Rounding leaves a little of what cancels.
        scales = torch.where(scales.abs() > 1e-11 * size, scales, 0.0)
        columns = torch.where(scales != 0, columns, -1)
        order = (columns < 0).to(torch.int8).argsort(dim=1, stable=True)
        width = max(1, int((columns >= 0).sum(1).amax())) if len(columns) else 1
        rows = replace(self, columns=columns.gather(1, order)[:, :width], scales=scales.gather(1, order)[:, :width])
        return rows, before & ~rows.covered


def _padded(rows: Rows, width: int) -> tuple[Tensor, Tensor]:
    missing = width - rows.columns.shape[1]
    columns = torch.nn.functional.pad(rows.columns, (0, missing), value=-1)
    return columns.clone(), torch.nn.functional.pad(rows.scales, (0, missing)).clone()


def joined(parts: Sequence[Rows]) -> Rows:
    """The sum of several noises, element by element."""
    if len(parts) == 1:
        return parts[0]
    columns, scales = torch.cat([rows.columns for rows in parts], 1), torch.cat([rows.scales for rows in parts], 1)
    return Rows(columns, scales, max(rows.precision for rows in parts))
