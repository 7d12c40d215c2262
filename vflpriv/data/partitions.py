"""Partitions: how the features of each record are divided among devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflpriv.errors import InputError

__all__ = ["PARTITIONS", "grid", "split"]

PARTITIONS = {
    "rows": "bands of image rows, from top to bottom",
    "slices": "equal slices of the flat record; the columns of a table",
    "patches": "a grid of patches, as square as the number of devices allows",
    "views": "whole views: attributes of a table, sets of features, pictures of one object",
    "first-views": "one view for each device; views beyond the last device are not used",
    "segments": "consecutive segments of a text, each with the same number of tokens",
}
_VIEWS = ("views", "first-views")


def grid(devices: int) -> tuple[int, int]:
    """The most square grid (rows, columns) of that many patches, never taller than wide.

    >>> grid(4), grid(6), grid(7)
    ((2, 2), (2, 3), (1, 7))
    """
    rows = next(n for n in range(math.isqrt(devices), 0, -1) if devices % n == 0)
    return rows, devices // rows


def split(
    records: NDArray[Any], *, how: str, devices: int, keep_shape: bool = False, views: Sequence[int] | None = None
) -> tuple[NDArray[Any], ...]:
    """One block for each device, of (N, H, W) or (N, H, W, C) images, (N, F) flat records or (N, V, H, W) pictures.

    Every feature goes to exactly one device (`first-views` leaves some out). Parts are as equal as possible, the larger
    ones first, as with `numpy.array_split`. `views` says how many entries of the second axis each view has. Blocks are
    float32, or int64 for token ids; their shape is (N, features) or, with `keep_shape`, that of pieces of images,
    (N, h, w) or (N, h, w, C).

    >>> [block.shape for block in split(np.zeros((5, 8, 8)), how="rows", devices=3)]
    [(5, 24), (5, 24), (5, 16)]
    >>> [block.shape for block in split(np.zeros((5, 8, 8)), how="patches", devices=2, keep_shape=True)]
    [(5, 8, 4), (5, 8, 4)]
    >>> [block.shape for block in split(np.zeros((5, 9)), how="views", devices=2, views=(4, 1, 4))]
    [(5, 5), (5, 4)]
    """
    _check(records, how, devices, keep_shape, views)
    if how == "slices":
        parts = np.array_split(records.reshape(len(records), -1), devices, axis=1)
    elif how == "rows":
        parts = np.array_split(records, devices, axis=1)
    elif how == "segments":
        parts = _segments(records, devices)
    elif views is not None and how in _VIEWS:
        parts = _by_view(records, views, devices, spread=how == "views")
    else:
        rows, columns = grid(devices)
        bands = np.array_split(records, rows, axis=1)
        parts = [patch for band in bands for patch in np.array_split(band, columns, axis=2)]
    dtype = np.int64 if records.dtype == np.int64 else np.float32
    # A copy on purpose: a block that is a view would keep the other devices' features alive and share their memory.
    flat_or_not = parts if keep_shape else [part.reshape(len(part), -1) for part in parts]
    return tuple(np.array(part, dtype=dtype, order="C") for part in flat_or_not)


def _by_view(records: NDArray[Any], views: Sequence[int], devices: int, *, spread: bool) -> list[NDArray[Any]]:
    edges = list(accumulate(views, initial=0))
    views_of = np.array_split(np.arange(len(views)), devices) if spread else np.arange(devices)[:, None]
    return [records[:, edges[own[0]] : edges[own[-1] + 1]] for own in views_of]


def _segments(ids: NDArray[np.int64], devices: int) -> list[NDArray[Any]]:
    """Each record's tokens in consecutive runs, one for each device, whose lengths differ by at most one, padded."""
    lengths, width = (ids != 0).sum(axis=1, keepdims=True), -(-ids.shape[1] // devices)
    edges = -(-np.arange(devices + 1) * lengths // devices)  # rounded up: the longer runs first
    parts = []
    for m in range(devices):
        position = edges[:, m : m + 1] + np.arange(width)
        token = np.take_along_axis(ids, np.minimum(position, ids.shape[1] - 1), axis=1)
        parts.append(np.where(position < edges[:, m + 1 : m + 2], token, 0))
    return parts


def _check(records: NDArray[Any], how: str, devices: int, keep_shape: bool, views: Sequence[int] | None) -> None:
    if how not in PARTITIONS:
        raise InputError("data.partition", how, f"one of {', '.join(PARTITIONS)}")
    if records.ndim not in (2, 3, 4) or records.size == 0:
        raise InputError("data", records.shape, "records of shape (N, F), (N, H, W) or (N, H, W, C), none of them 0")
    if devices < 1:
        raise InputError("data.devices", devices, "at least one device")
    _check_kind(records, how, keep_shape, views)
    if how == "patches":
        (rows, columns), (height, width) = grid(devices), records.shape[1:3]
        if rows > height or columns > width:
            raise InputError("data.devices", devices, f"a grid that fits {height}x{width} pixels, not {rows}x{columns}")
        return
    available = records.shape[1] if how in ("rows", "segments") else math.prod(records.shape[1:])
    if how in _VIEWS and views is not None:
        available = len(views)
    if devices > available:
        raise InputError("data.devices", devices, f"at most {available} for partition {how!r}")


def _check_kind(records: NDArray[Any], how: str, keep_shape: bool, views: Sequence[int] | None) -> None:
    """Whether records of this kind can be divided in this way."""
    text = records.ndim == 2 and records.dtype == np.int64
    if how == "segments" and not text:
        raise InputError("data.partition", how, "another one, since these records are not token ids")
    if how in _VIEWS and views is None:
        raise InputError("data.partition", how, "another one, since these records have no views")
    if views is not None and sum(views) != records.shape[1]:
        raise InputError("data.views", sum(views), f"{records.shape[1]}, the size of the records' second axis")
    if records.ndim == 2 and how in ("rows", "patches"):
        raise InputError("data.partition", how, "slices, since these records are not images")
    if views is not None and records.ndim > 2 and how in ("rows", "patches"):
        raise InputError("data.partition", how, "views or slices, since these records are several pictures each")
    if records.ndim > 2 and how == "slices" and keep_shape:
        raise InputError("data.partition", how, "rows or patches, since a slice of the flat image has no image shape")
