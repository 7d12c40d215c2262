"""Every feature goes to exactly one device, in parts as even as possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from vflpriv.data.partitions import PARTITIONS, grid, split
from vflpriv.errors import InputError


def numbered(*shape: int) -> NDArray[np.float64]:
    """Values that are all different and exact in float32, so that a lost or doubled one shows."""
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape)


images = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)) | st.tuples(
    st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 3)
)


IMAGES = ("rows", "slices", "patches")


@given(shape=images, how=st.sampled_from(IMAGES), devices=st.integers(1, 12), keep=st.booleans())
def test_every_value_is_held_by_exactly_one_device(shape: tuple[int, ...], how: str, devices: int, keep: bool) -> None:
    data = numbered(*shape)
    try:
        blocks = split(data, how=how, devices=devices, keep_shape=keep)
    except InputError:
        fits = {"rows": shape[1] >= devices, "slices": np.prod(shape[1:]) >= devices and not keep}
        fits["patches"] = shape[1] >= grid(devices)[0] and shape[2] >= grid(devices)[1]
        assert not fits[how]
        return
    assert len(blocks) == devices
    assert all(block.dtype == np.float32 and block.size > 0 and len(block) == shape[0] for block in blocks)
    for record in range(shape[0]):
        held = np.concatenate([block[record].ravel() for block in blocks])
        assert sorted(held) == sorted(data[record].ravel())


@given(shape=images, devices=st.integers(1, 9))
def test_rows_and_slices_concatenate_back_to_the_original(shape: tuple[int, ...], devices: int) -> None:
    data = numbered(*shape)
    for how in ("rows", "slices"):
        if devices <= (shape[1] if how == "rows" else np.prod(shape[1:])):
            joined = np.concatenate(split(data, how=how, devices=devices), axis=1)
            assert np.array_equal(joined, data.reshape(shape[0], -1))


@given(height=st.integers(1, 12), width=st.integers(1, 12), devices=st.integers(1, 12))
def test_patches_put_together_again_are_the_image(height: int, width: int, devices: int) -> None:
    rows, columns = grid(devices)
    if rows > height or columns > width:
        return
    data = numbered(2, height, width)
    patches = split(data, how="patches", devices=devices, keep_shape=True)
    bands = [np.concatenate(patches[r * columns : (r + 1) * columns], axis=2) for r in range(rows)]
    assert np.array_equal(np.concatenate(bands, axis=1), data)


@given(features=st.integers(1, 40), devices=st.integers(1, 40))
def test_sizes_differ_by_one_at_most_larger_first(features: int, devices: int) -> None:
    if devices > features:
        with pytest.raises(InputError, match="at most"):
            split(numbered(2, features), how="slices", devices=devices)
        return
    sizes = [block.shape[1] for block in split(numbered(2, features), how="slices", devices=devices)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(devices=st.integers(1, 200))
def test_the_grid_is_the_most_square_one(devices: int) -> None:
    rows, columns = grid(devices)
    assert rows * columns == devices
    assert rows <= columns
    assert not any(devices % n == 0 for n in range(rows + 1, int(devices**0.5) + 1))


@pytest.mark.parametrize(
    ("shape", "how", "devices", "first", "last"),
    [
        ((2, 28, 28), "rows", 7, (2, 4, 28), (2, 4, 28)),
        ((2, 28, 28), "rows", 14, (2, 2, 28), (2, 2, 28)),
        ((2, 32, 32, 3), "patches", 4, (2, 16, 16, 3), (2, 16, 16, 3)),
        ((2, 32, 32, 3), "patches", 9, (2, 11, 11, 3), (2, 10, 10, 3)),
        ((2, 32, 32, 3), "patches", 2, (2, 32, 16, 3), (2, 32, 16, 3)),
    ],
)
def test_the_partitions_of_the_papers(
    shape: tuple[int, ...], how: str, devices: int, first: tuple[int, ...], last: tuple[int, ...]
) -> None:
    blocks = split(numbered(*shape), how=how, devices=devices, keep_shape=True)
    assert (blocks[0].shape, blocks[-1].shape) == (first, last)
    flat = split(numbered(*shape), how=how, devices=devices)
    assert [np.prod(block.shape[1:]) for block in blocks] == [block.shape[1] for block in flat]


def test_a_block_shares_no_memory_with_its_source() -> None:
    data = numbered(4, 6).astype(np.float32)
    for block in split(data, how="slices", devices=1):
        assert not np.shares_memory(block, data)
        assert block.flags.c_contiguous


@given(views=st.lists(st.integers(1, 5), min_size=1, max_size=7), devices=st.integers(1, 8))
def test_a_view_is_never_cut(views: list[int], devices: int) -> None:
    data = numbered(3, sum(views))
    if devices > len(views):
        for how in ("views", "first-views"):
            with pytest.raises(InputError, match=f"at most {len(views)} for partition '{how}'"):
                split(data, how=how, devices=devices, views=views)
        return
    blocks = split(data, how="views", devices=devices, views=views)
    assert np.array_equal(np.concatenate(blocks, axis=1), data)
    edges = set(np.cumsum(views).tolist())
    assert set(np.cumsum([block.shape[1] for block in blocks]).tolist()) <= edges
    first = split(data, how="first-views", devices=devices, views=views)
    assert [block.shape[1] for block in first] == views[:devices]
    assert np.array_equal(np.concatenate(first, axis=1), data[:, : sum(views[:devices])])


def test_views_that_are_pictures_go_whole_to_a_device() -> None:
    data = numbered(2, 12, 4, 5)
    blocks = split(data, how="views", devices=5, keep_shape=True, views=(1,) * 12)
    assert [block.shape for block in blocks] == [(2, 3, 4, 5)] * 2 + [(2, 2, 4, 5)] * 3
    assert np.array_equal(np.concatenate(blocks, axis=1), data)
    assert [b.shape for b in split(data, how="first-views", devices=2, views=(1,) * 12)] == [(2, 20)] * 2
    assert [b.shape for b in split(data, how="slices", devices=2, views=(1,) * 12)] == [(2, 120)] * 2


@given(
    lengths=st.lists(st.integers(0, 11), min_size=1, max_size=5), width=st.integers(11, 13), devices=st.integers(1, 11)
)
def test_segments_share_each_texts_tokens_evenly(lengths: list[int], width: int, devices: int) -> None:
    ids = np.where(np.arange(width) < np.array(lengths)[:, None], np.arange(1, width + 1), 0)
    blocks = split(ids, how="segments", devices=devices)
    assert all(block.dtype == np.int64 and block.shape[1] == -(-width // devices) for block in blocks)
    for record, length in enumerate(lengths):
        runs = [block[record][block[record] != 0].tolist() for block in blocks]
        assert [token for run in runs for token in run] == list(range(1, length + 1))
        sizes = [len(run) for run in runs]
        assert max(sizes) - min(sizes) <= 1
        for block, run in zip(blocks, runs, strict=True):
            assert block[record].tolist() == run + [0] * (block.shape[1] - len(run))


def test_only_token_ids_stay_whole_numbers() -> None:
    ids = np.arange(1, 13).reshape(2, 6)
    assert {block.dtype for block in split(ids, how="slices", devices=2)} == {np.dtype(np.int64)}
    for other in (ids.astype(np.uint8), ids.astype(np.float64)):
        assert {block.dtype for block in split(other, how="slices", devices=2)} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("data", "how", "views", "message"),
    [
        (np.zeros((3, 8)), "segments", None, "since these records are not token ids"),
        (np.zeros((3, 8, 8), np.int64), "segments", None, "since these records are not token ids"),
        (np.zeros((3, 8)), "views", None, "since these records have no views"),
        (np.zeros((3, 8)), "first-views", None, "since these records have no views"),
        (np.zeros((3, 8)), "views", (4, 5), "data.views = 9: expected 8"),
        (np.zeros((3, 8)), "rows", (4, 4), "since these records are not images"),
        (np.zeros((3, 8, 4, 4)), "patches", (4, 4), "since these records are several pictures each"),
        (np.zeros((3, 8), np.int64), "patches", None, "since these records are not images"),
    ],
)
def test_records_that_cannot_be_cut_this_way(
    data: NDArray[np.float64], how: str, views: tuple[int, ...] | None, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        split(data, how=how, devices=2, views=views)
    assert message in str(caught.value)


def test_every_partition_is_described() -> None:
    assert set(PARTITIONS) == {*IMAGES, "views", "first-views", "segments"}
    assert all(PARTITIONS.values())


@pytest.mark.parametrize(
    ("shape", "how", "devices", "keep", "message"),
    [
        ((3, 8, 8), "columns", 2, False, "data.partition = 'columns': expected one of rows, slices, patches"),
        ((3, 8, 8), "rows", 9, False, "data.devices = 9: expected at most 8 for partition 'rows'"),
        ((3, 8, 8), "slices", 65, False, "data.devices = 65: expected at most 64 for partition 'slices'"),
        ((3, 8, 8), "patches", 11, False, "data.devices = 11: expected a grid that fits 8x8 pixels, not 1x11"),
        ((3, 8, 8), "rows", 0, False, "data.devices = 0: expected at least one device"),
        ((3, 8), "rows", 2, False, "data.partition = 'rows': expected slices, since these records are not images"),
        ((3, 8, 8), "slices", 2, True, "expected rows or patches"),
        ((0, 8, 8), "rows", 2, False, "none of them 0"),
        ((3,), "slices", 1, False, "expected records of shape"),
    ],
)
def test_what_cannot_be_split_is_an_error_that_says_why(
    shape: tuple[int, ...], how: str, devices: int, keep: bool, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        split(np.zeros(shape), how=how, devices=devices, keep_shape=keep)
    assert message in str(caught.value)


@given(size=st.integers(2, 40), devices=st.integers(2, 8), overlap=st.floats(0.3, 1.0))
def test_with_an_overlap_devices_hold_runs_that_reach_into_their_neighbours(
    size: int, devices: int, overlap: float
) -> None:
    if devices > size:
        return
    records = np.arange(size)[None, :]
    plain = [block[0].tolist() for block in split(records, how="slices", devices=devices)]
    try:
        blocks = [block[0].tolist() for block in split(records, how="slices", devices=devices, overlap=overlap)]
    except InputError:
        assert max(round(overlap * len(part)) for part in plain) == 0
        return
    for m, block in enumerate(blocks):
        neighbour = plain[m + 1] if m < devices - 1 else plain[m - 1]
        count = round(overlap * len(neighbour))
        shared = neighbour[:count] if m < devices - 1 else neighbour[len(neighbour) - count :]
        assert block == sorted([*plain[m], *shared])


def test_overlapping_rows_patches_and_views() -> None:
    images = numbered(2, 8, 8)
    rows = split(images, how="rows", devices=4, overlap=0.5, keep_shape=True)
    assert [block.shape for block in rows] == [(2, 3, 8)] * 4
    assert np.array_equal(rows[0][:, 2], rows[1][:, 0])
    patches = split(images, how="patches", devices=4, overlap=0.25, keep_shape=True)
    assert [block.shape for block in patches] == [(2, 5, 5)] * 4
    assert np.array_equal(patches[0][:, 4, :4], patches[2][:, 1, :4])
    views = split(numbered(2, 9), how="views", devices=2, views=(4, 1, 4), overlap=0.5)
    assert [block.shape for block in views] == [(2, 7), (2, 6)]


@pytest.mark.parametrize(
    ("records", "how", "overlap", "expected"),
    [
        (np.ones((2, 8), np.int64), "segments", 0.5, "0, since segments of a text do not overlap"),
        (np.zeros((2, 8)), "slices", 0.1, "a share that gives at least one column or row of a device's part"),
    ],
)
def test_overlaps_that_are_not_possible(records: NDArray[Any], how: str, overlap: float, expected: str) -> None:
    with pytest.raises(InputError, match=rf"^data.overlap = {overlap}: expected {expected}$"):
        split(records, how=how, devices=4, overlap=overlap)
