"""Every feature goes to exactly one device, in parts as even as possible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from vflpriv.errors import InputError
from vflpriv.partitions import PARTITIONS, grid, split


def numbered(*shape: int) -> NDArray[np.float64]:
    """Values that are all different and exact in float32, so that a lost or doubled one shows."""
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape)


images = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)) | st.tuples(
    st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 3)
)


@given(shape=images, how=st.sampled_from(sorted(PARTITIONS)), devices=st.integers(1, 12), keep=st.booleans())
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
