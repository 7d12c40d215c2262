"""Partitions: which device holds which part of every record."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflpriv.errors import InputError

__all__ = ["PARTITIONS", "grid", "split"]

PARTITIONS = {
    "rows": "bands of image rows, from top to bottom",
    "slices": "equal slices of the flat record; the columns of a table",
    "patches": "a grid of patches, as square as the number of devices allows",
}


def grid(devices: int) -> tuple[int, int]:
    """The most square grid (rows, columns) of that many patches, never taller than wide.

    >>> grid(4), grid(6), grid(7)
    ((2, 2), (2, 3), (1, 7))
    """
    rows = next(n for n in range(math.isqrt(devices), 0, -1) if devices % n == 0)
    return rows, devices // rows


def split(images: NDArray[Any], *, how: str, devices: int, keep_shape: bool = False) -> tuple[NDArray[np.float32], ...]:
    """One float32 block a device, of (N, H, W) or (N, H, W, C) images or (N, F) flat records.

    Every feature goes to exactly one device. What does not divide is spread as evenly as possible, the larger parts
    first, as `numpy.array_split` does. Blocks are (N, features) or, with `keep_shape`, pieces of images, (N, h, w) or
    (N, h, w, C).

    >>> [block.shape for block in split(np.zeros((5, 8, 8)), how="rows", devices=3)]
    [(5, 24), (5, 24), (5, 16)]
    >>> [block.shape for block in split(np.zeros((5, 8, 8)), how="patches", devices=2, keep_shape=True)]
    [(5, 8, 4), (5, 8, 4)]
    """
    _check(images, how, devices, keep_shape)
    if how == "slices":
        parts = np.array_split(images.reshape(len(images), -1), devices, axis=1)
    elif how == "rows":
        parts = np.array_split(images, devices, axis=1)
    else:
        rows, columns = grid(devices)
        bands = np.array_split(images, rows, axis=1)
        parts = [patch for band in bands for patch in np.array_split(band, columns, axis=2)]
    # A copy on purpose: a block that is a view would keep the other devices' features alive and share their memory.
    return tuple(
        np.array(part if keep_shape else part.reshape(len(part), -1), dtype=np.float32, order="C") for part in parts
    )


def _check(images: NDArray[Any], how: str, devices: int, keep_shape: bool) -> None:
    if how not in PARTITIONS:
        raise InputError("data.partition", how, f"one of {', '.join(PARTITIONS)}")
    if images.ndim not in (2, 3, 4) or images.size == 0:
        raise InputError("data", images.shape, "records of shape (N, F), (N, H, W) or (N, H, W, C), none of them 0")
    if devices < 1:
        raise InputError("data.devices", devices, "at least one device")
    if images.ndim == 2 and how != "slices":
        raise InputError("data.partition", how, "slices, since these records are not images")
    if images.ndim > 2 and how == "slices" and keep_shape:
        raise InputError("data.partition", how, "rows or patches, since a slice of the flat image has no image shape")
    if how == "patches":
        (rows, columns), (height, width) = grid(devices), images.shape[1:3]
        if rows > height or columns > width:
            raise InputError("data.devices", devices, f"a grid that fits {height}x{width} pixels, not {rows}x{columns}")
        return
    available = images.shape[1] if how == "rows" else math.prod(images.shape[1:])
    if devices > available:
        raise InputError("data.devices", devices, f"at most {available} for partition {how!r}")
