"""Rows in coordinates that are easy to learn from: centred, along their principal axes, of size one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch
from vflpriv.training.models.remembered import Remembered

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["fitted", "in_coordinates", "shape_of"]

_ENOUGH = 10_000
"""Records from which axes are taken, spread evenly over all of them."""
_FLAT = 1e-6
"""Of the largest variance: smaller ones are taken to be this large."""
_KNOWN = Remembered(100_000_000)


def fitted(rows: Tensor, components: int) -> Tensor:
    """(R or 1, 1 + width, k) the coordinates of rows (R or 1, N, width): an offset, and below it k axes.

    Along a principal axis of variance v, rows are multiplied by a number that is proportional to v^(-1/4): half of what
    would make variances equal, since the smallest ones are mostly noise. With 0 components rows are centred and scaled
    alone: (R or 1, 2, width), an offset and a factor for each entry. The mean square of all entries is then 1.
    """

    def of_each(replicas: Tensor) -> Tensor:
        return torch.stack([_of(own, components) for own in replicas.unbind(0)])

    return _KNOWN(of_each, rows, components) if len(rows) == 1 else of_each(rows)


def in_coordinates(rows: Tensor, coordinates: Tensor, components: int) -> Tensor:
    """(R or 1, N, k) these rows (R or 1, N, width) in coordinates that were `fitted` with so many components."""
    offset, axes = coordinates[:, :1], coordinates[:, 1:]
    return (torch.matmul(rows, axes) if components else rows * axes) + offset


def shape_of(width: int, components: int) -> tuple[int, int]:
    """Of the coordinates of one replica."""
    return (1 + width, components) if components else (2, width)


def _of(rows: Tensor, components: int) -> Tensor:
    """The coordinates of rows (N, width)."""
    mean = rows.mean(0, keepdim=True)
    sample = rows[:: -(-len(rows) // _ENOUGH)] - mean
    axes = _axes(sample, components) if components else torch.ones_like(mean)
    entries = sample @ axes if components else sample
    axes = axes / entries.square().mean().sqrt().clamp(min=1e-6)
    return torch.cat((-(mean @ axes if components else mean * axes), axes))


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
