"""Partitions: how the features of each record are divided among devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
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
    records: NDArray[Any],
    *,
    how: str,
    devices: int,
    keep_shape: bool = False,
    views: Sequence[int] | None = None,
    overlap: float = 0.0,
) -> tuple[NDArray[Any], ...]:
    """One block for each device, of (N, H, W) or (N, H, W, C) images, (N, F) flat records or (N, V, H, W) pictures.

    Every feature goes to exactly one device (`first-views` leaves some out). Parts are as equal as possible, the larger
    ones first, as with `numpy.array_split`. `views` says how many entries of the second axis each view has. Blocks are
    float32, or int64 for token ids; their shape is (N, features) or, with `keep_shape`, that of pieces of images,
    (N, h, w) or (N, h, w, C). With an `overlap` each device holds the beginning of the next device's part too, so large
    a share of it; the last one holds the end of the part before. A patch reaches to the right and down.

    >>> [block.shape for block in split(np.zeros((5, 8, 8)), how="rows", devices=3)]
    [(5, 24), (5, 24), (5, 16)]
    >>> [block.shape for block in split(np.zeros((5, 8, 8)), how="patches", devices=2, keep_shape=True)]
    [(5, 8, 4), (5, 8, 4)]
    >>> [block.shape for block in split(np.zeros((5, 9)), how="views", devices=2, views=(4, 1, 4))]
    [(5, 5), (5, 4)]
    >>> [block[0].tolist() for block in split(np.arange(6)[None, :], how="slices", devices=3, overlap=0.5)]
    [[0, 1, 2], [2, 3, 4], [3, 4, 5]]
    """
    _check(records, how, devices, keep_shape, views)
    if how == "slices":
        flat = records.reshape(len(records), -1)
        parts = [flat[:, own] for own in _ranges(_equal(flat.shape[1], devices), overlap)]
    elif how == "rows":
        parts = [records[:, own] for own in _ranges(_equal(records.shape[1], devices), overlap)]
    elif how == "segments":
        if overlap:
            raise InputError("data.overlap", overlap, "0, since segments of a text do not overlap")
        parts = _segments(records, devices)
    elif views is not None and how in _VIEWS:
        parts = [records[:, own] for own in _ranges(_widths(views, devices, spread=how == "views"), overlap)]
    else:
        rows, columns = (_ranges(_equal(n, d), overlap) for n, d in zip(records.shape[1:3], grid(devices), strict=True))
        parts = [records[:, row, column] for row in rows for column in columns]
    dtype = np.int64 if records.dtype == np.int64 else np.float32
    # A copy on purpose: a block that is a view would keep the other devices' features alive and share their memory.
    flat_or_not = parts if keep_shape else [part.reshape(len(part), -1) for part in parts]
    return tuple(np.array(part, dtype=dtype, order="C") for part in flat_or_not)


def _equal(size: int, parts: int) -> list[int]:
    """The sizes of so many parts, as equal as possible, the larger ones first."""
    return [size // parts + (place < size % parts) for place in range(parts)]


def _widths(views: Sequence[int], devices: int, *, spread: bool) -> list[int]:
    """The widths of whole views: all of them spread over the devices, or the first ones, one for each device."""
    numbers = _equal(len(views), devices) if spread else [1] * devices
    edges = list(accumulate(numbers, initial=0))
    return [sum(views[begin:end]) for begin, end in pairwise(edges)]


def _ranges(widths: Sequence[int], overlap: float) -> list[slice]:
    """Where each part begins and ends, with the share of its neighbour's part that it reaches into."""
    edges = list(accumulate(widths, initial=0))
    reach = [round(overlap * width) for width in widths]
    if overlap and len(widths) > 1 and not any(reach):
        raise InputError("data.overlap", overlap, "a share that gives at least one column or row of a device's part")
    ranges = [slice(edges[m], edges[m + 1] + reach[m + 1]) for m in range(len(widths) - 1)]
    before = reach[-2] if len(widths) > 1 else 0
    return [*ranges, slice(edges[-2] - before, edges[-1])]


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
