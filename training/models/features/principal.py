"""Rows in coordinates that are easy to learn from: centred, along their principal axes, of size one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch
from vflpriv.training.models.remembered import Remembered

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Coordinates"]

_ENOUGH = 10_000
"""Records from which axes are taken, spread evenly over all of them."""
_FLAT = 1e-6
"""Of the largest variance: smaller ones are taken to be this large."""
_KNOWN = Remembered(100_000_000)


@dataclass(frozen=True, eq=False, kw_only=True)
class Coordinates:
    """x becomes (x - mean) axes, in each replica, or in all where they share rows.

    `affine` is (R or 1, 1 + width, k): -mean axes, and below it the axes. Along a principal axis of variance v, rows
    are multiplied by a number that is proportional to v^(-1/4): half of what would make variances equal, since the
    smallest ones are mostly noise. The mean square of all entries is 1.
    """

    affine: Tensor

    @classmethod
    def of(cls, rows: Tensor, components: int) -> Coordinates:
        """Those of rows (R or 1, N, width); with 0 components rows are centred and scaled alone."""

        def fitted(each: Tensor) -> Tensor:
            return torch.stack([_fitted(own, components) for own in each.unbind(0)])

        return cls(affine=_KNOWN(fitted, rows, components) if len(rows) == 1 else fitted(rows))

    def __call__(self, rows: Tensor) -> Tensor:
        """(R or 1, N, k), of as many replicas as there are rows of."""
        affine = self.affine[: len(rows)] if len(rows) > 1 else self.affine
        return torch.matmul(rows, affine[:, 1:]).add_(affine[:, :1])


def _fitted(rows: Tensor, components: int) -> Tensor:
    """(1 + width, k) of rows (N, width)."""
    mean = rows.mean(0)
    sample = rows[:: -(-len(rows) // _ENOUGH)] - mean
    axes = _axes(sample, components) if components else torch.eye(rows.shape[1], device=rows.device)
    axes = axes / (sample @ axes).square().mean().sqrt().clamp(min=1e-6)
    return torch.cat((-mean.unsqueeze(0) @ axes, axes))


def _axes(sample: Tensor, components: int) -> Tensor:
    """(width, k) the principal axes of centred rows, each divided by the fourth root of its variance."""
    wide = sample.shape[1] > len(sample)
    products = (sample @ sample.T if wide else sample.T @ sample) / len(sample)
    variances, vectors = torch.linalg.eigh(products)
    # Ascending; the last ones are the largest.
    variances, vectors = variances[-components:], vectors[:, -components:]
    variances = variances.clamp(min=(variances[-1] * _FLAT).clamp(min=1e-12))
    if wide:
        vectors = sample.T @ vectors / (variances * len(sample)).sqrt()
    axes: Tensor = vectors / variances.sqrt().sqrt()
    return axes
