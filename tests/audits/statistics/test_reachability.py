"""Reachability against every draw that there is: in half precision all 63,488 of them can be tried."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflpriv.audits.statistics.reachability import reachable

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = HALVES[np.isfinite(HALVES)]


@pytest.mark.parametrize("scale", [1.0, 0.3, 7.7, 0.011, 97.0])
@pytest.mark.parametrize("noiseless", [0.0, 0.1, -3.3, 812.0])
def test_it_finds_what_trying_every_draw_finds(scale: float, noiseless: float) -> None:
    value = np.float16(noiseless)
    with np.errstate(over="ignore"):
        sums = value + np.float16(scale) * FINITE
    possible = np.isin(FINITE, sums)
    assert 0.01 < possible.mean() < 1 or (noiseless, scale) == (0.0, 1.0)
    np.testing.assert_array_equal(reachable(FINITE, value, scale, dtype=np.float16), possible)


@given(
    scale=st.floats(1e-6, 1e6),
    size=st.floats(1e-6, 1e6),
    seed=st.integers(0, 1 << 30),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_what_was_released_can_be_reached(scale: float, size: float, seed: int, dtype: type) -> None:
    random = np.random.default_rng(seed)
    noiseless, draws = (random.normal(size=50) * size).astype(dtype), random.normal(size=50).astype(dtype)
    assert reachable(noiseless + dtype(scale) * draws, noiseless, scale, dtype=dtype).all()


def test_a_neighbours_value_often_cannot_reach_it_in_single_precision() -> None:
    random = np.random.default_rng(0)
    noiseless, draws = random.normal(size=2_000).astype(np.float32), random.normal(size=2_000).astype(np.float32)
    released = noiseless + np.float32(7.7) * draws
    assert not reachable(released, noiseless + np.float32(0.5), 7.7).all()


def test_on_a_grid_every_multiple_is_reached_from_everywhere_and_nothing_else_is() -> None:
    step = 2.0**-10
    multiples = np.arange(-5_000, 5_000) * step
    for noiseless in (0.0, 0.37, -1e4):
        assert reachable(multiples, noiseless, 1.0, step=step).all()
        assert not reachable(multiples + step / 2, noiseless, 1.0, step=step).any()
    # A multiple that the type does not hold was not rounded to it.
    assert reachable([2.0**14], 0.0, 1.0, step=step).all()
    assert not reachable([2.0**14 + step], 0.0, 1.0, step=step).any()


def test_without_noise_a_value_reaches_itself() -> None:
    assert reachable([0.5, 0.25], 0.5, 0.0).tolist() == [True, False]
