"""What a server makes of the features that devices have sent, before it learns: rows that depend on no other record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from vflpriv.common.lazy import torch
from vflpriv.errors import InputError
from vflpriv.training.mechanisms.base import shared
from vflpriv.training.models.features.scattering import Scattering
from vflpriv.training.models.remembered import Remembered

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["JointFeatures", "JointKind", "image_shape", "scaled_to_one"]

JointKind = Literal["none", "scattering"]

_SCATTERED = Remembered(2_000_000_000)
"""Scattering takes longer than a training on what it gives."""


class JointFeatures:
    """Features of all devices side by side, or the scattering of the image that their bands of rows make up."""

    def __init__(self, kind: JointKind, shapes: Sequence[Sequence[int]], *, grid: int) -> None:
        self._shapes = [tuple(shape) for shape in shapes]
        self._scattering = Scattering(*image_shape(shapes), grid=grid) if kind == "scattering" else None

    def size(self, widths: Sequence[int]) -> int:
        """The width of a row, of devices that send so much each."""
        return sum(widths) if self._scattering is None else self._scattering.size

    def __call__(self, parts: Sequence[Tensor]) -> Tensor:
        """(R or 1, B, width) of what each device sent, (R, B, …); 1 where replicas share it. Scattering has norm 1."""
        if all(shared(part) for part in parts):
            parts = [part[:1] for part in parts]
        if self._scattering is None:
            return torch.cat(list(parts), dim=2)
        bands = [part.unflatten(2, shape) for part, shape in zip(parts, self._shapes, strict=True)]
        return _SCATTERED(self._scattered, torch.cat(bands, dim=2), self._scattering.grid)

    def _scattered(self, images: Tensor) -> Tensor:
        assert self._scattering is not None
        return scaled_to_one(self._scattering(images.flatten(0, 1)).unflatten(0, images.shape[:2]))


def scaled_to_one(rows: Tensor) -> Tensor:
    """Rows of norm 1; zeros stay zeros."""
    lengths: Tensor = rows.norm(dim=-1, keepdim=True)
    return rows / lengths.clamp(min=1e-6)


def image_shape(shapes: Sequence[Sequence[int]]) -> tuple[int, int]:
    """The height and width of the image that bands of rows make up."""
    if any(len(shape) != 2 for shape in shapes) or len({shape[-1] for shape in shapes}) != 1:
        sizes = ", ".join("x".join(map(str, shape)) for shape in shapes)
        expected = 'bands of rows of grey images (data.partition = "rows", data.keep_shape = true), or none'
        raise InputError("joint_features", f"scattering of blocks of {sizes}", expected)
    return sum(shape[0] for shape in shapes), shapes[0][1]
