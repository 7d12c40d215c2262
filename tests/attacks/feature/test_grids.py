"""Columns with few values: which they are, and that a search misses none of a span and invents none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from vflpriv.attacks.feature._grids import Grid, Search, grid_of


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, 1, 0], Grid(first=0.0, step=1.0, size=2)),
        ([-1.5, 0.5, -1.5, 0.5, 0.5], Grid(first=-1.5, step=2.0, size=2)),
        ([0.0, 3 / 16, 5 / 16] * 4, Grid(first=0.0, step=1 / 16, size=6)),
        ([2.0, 4.0, 10.0] * 2, Grid(first=2.0, step=2.0, size=5)),
        ([1.0, 1.0, 1.0], None),
        ([0.0, 0.1, 0.37, 0.52, 0.9, 1.0], None),
        ([0.0, 1 / 17, 1.0] * 9, None),
        ([], None),
    ],
)
def test_a_grid_is_the_coarsest_that_fits(values, expected):
    found = grid_of(np.array(values, dtype=np.float64))
    if expected is None:
        assert found is None
    else:
        assert (found.first, found.step, found.size) == pytest.approx((expected.first, expected.step, expected.size))
        assert found.values(found.levels(np.array(values))) == pytest.approx(values)


def test_standardised_float32_values_are_on_a_grid_too():
    levels = np.random.default_rng(0).integers(0, 17, 200)
    column = ((levels / 16 - 0.37) / 0.29).astype(np.float32).astype(np.float64)
    grid = grid_of(column)
    assert grid.size == 17
    assert (grid.levels(column) == levels).all()


def mixed(sizes: list[int], real: int, *, rows: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Columns of whole numbers, and an orthonormal basis of their span, that of real columns and the constant."""
    rng = np.random.default_rng(seed)
    columns = np.stack([rng.integers(0, size, rows) for size in sizes], axis=1).astype(np.float64)
    everything = np.concatenate((columns, rng.random((rows, real)), np.ones((rows, 1))), axis=1)
    return columns, np.linalg.qr(everything @ rng.standard_normal((everything.shape[1],) * 2))[0]


@pytest.mark.parametrize("known", [[], [3], [0, 7, 11]])
def test_a_search_finds_what_trying_all_whole_combinations_finds(known):
    """Of three columns with three values and a real one, the coefficients of vectors that fit are within ±2."""
    columns, basis = mixed([3, 3, 3], 1)
    rows = np.array(known, dtype=np.int64)
    found = Search(basis, rows).vectors(columns[rows, 0], 3)
    expected = set()
    for coefficients in itertools.product((-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2), repeat=3):
        moved = columns @ coefficients
        for shift in np.arange(-8, 9, 0.5):
            vector = moved + shift
            whole = (vector == np.rint(vector)).all() and vector.min() >= 0 and vector.max() <= 2
            if whole and (vector[rows] == columns[rows, 0]).all():
                expected.add(tuple(vector))
    assert {tuple(v) for v in found} == expected
    assert len(expected) >= (9 if not known else 1)


def test_a_span_without_whole_vectors_holds_only_constants():
    _, basis = mixed([2], 5)
    real = np.linalg.qr(np.concatenate((np.random.default_rng(3).random((40, 6)), np.ones((40, 1))), axis=1))[0]
    assert basis.shape == real.shape
    found = Search(real, np.array([], dtype=np.int64)).vectors(np.array([]), 4)
    assert sorted({tuple(v) for v in found}) == [(float(c),) * 40 for c in range(4)]


def test_known_values_that_no_vector_has_give_none():
    columns, basis = mixed([2, 2], 0)
    rows = np.arange(12)
    flipped = columns[rows, 0].copy()
    flipped[0] = 1 - flipped[0]
    assert len(Search(basis, rows).vectors(columns[rows, 0], 2)) == 1
    assert len(Search(basis, rows).vectors(flipped, 2)) == 0


def test_a_column_with_a_value_that_no_known_record_has_is_not_found():
    columns, basis = mixed([3, 2], 0)
    rows = np.flatnonzero(columns[:, 0] < 2)[:10]
    search = Search(basis, rows)
    assert search.free == 0
    assert len(search.vectors(columns[rows, 0], 2)) == 0
    assert len(search.vectors(columns[rows, 0], 3)) == 1


def test_too_many_vectors_are_given_up():
    _, basis = mixed([17] * 8, 0)
    assert Search(basis, np.array([], dtype=np.int64)).vectors(np.array([]), 17) is None
