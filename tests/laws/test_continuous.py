"""Noise on a grid: whole steps are released, from every value, and neighbours are no farther apart than is counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vflpriv.common.random import Stream
from vflpriv.laws import CorrelatedGaussian, Gaussian, Laplace
from vflpriv.laws.continuous import Continuous
from vflpriv.laws.correlated import tree_encoder
from vflpriv.laws.grid import placed

LAWS: list[Continuous] = [Gaussian(1.0), Laplace(1.0), CorrelatedGaussian(1.0, tree_encoder(2))]
SCALES = st.floats(1e-6, 1e6)
ENTRIES = st.sampled_from([1, 100, 1 << 24])


def gridded(law: Continuous, scale: float, distance: float, entries: int) -> Continuous:
    placed_law = law.scaled(scale).on_grid(distance, entries)
    assert isinstance(placed_law, Continuous)
    return placed_law


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@given(scale=SCALES, distance=SCALES | st.just(math.inf), entries=ENTRIES, seed=st.integers(0, 1000))
def test_released_values_are_whole_steps(
    law: Continuous, scale: float, distance: float, entries: int, seed: int
) -> None:
    on_grid = gridded(law, scale, distance, entries)
    assert math.frexp(on_grid.step)[0] == 0.5
    assert on_grid.step <= scale * 2.0**-12
    values = scale * torch.randn(1, 20, generator=torch.Generator().manual_seed(seed))
    draws = on_grid.draw(Stream.of(seed, "noise", [0], torch.device("cpu")), 20, 1, 1)
    released = on_grid.release(values, draws)
    assert released.dtype == torch.float32
    steps = released.double() / on_grid.step
    assert torch.equal(steps, steps.round())
    # Before the type of the message cuts digits off, exactly the steps of the noise lie between value and release.
    exact = on_grid.release(values.double(), draws) / on_grid.step
    noise = (draws * (scale / on_grid.step)).round()
    assert torch.equal(exact - (values.double() / on_grid.step).round(), noise)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@given(scale=SCALES, distance=SCALES, entries=st.sampled_from([1, 7, 200]), seed=st.integers(0, 1000))
def test_neighbours_are_moved_apart_by_no_more_than_is_counted(
    law: Continuous, scale: float, distance: float, entries: int, seed: int
) -> None:
    """Margin: what is counted is rounded up, and compared with what double precision adds up to 1e-12 of it."""
    on_grid = gridded(law, scale, distance, entries)
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(1, entries, generator=generator, dtype=torch.float64) * distance
    shift = torch.randn(1, entries, generator=generator, dtype=torch.float64)
    second = first + shift * (distance / torch.linalg.vector_norm(shift, law.norm or 2))
    rounded = [placed(values, torch.zeros_like(values), on_grid.step) for values in (first, second)]
    apart = float(torch.linalg.vector_norm(rounded[0] - rounded[1], law.norm or 2))
    assert apart <= on_grid.apart(distance) * (1 + 1e-12)
    assert on_grid.strength(distance) >= law.scaled(scale).strength(distance)
    if scale <= 100 * distance:
        assert on_grid.apart(distance) <= distance * (1 + 2.0**-20)


def test_the_worst_rounding_is_counted_exactly() -> None:
    """Two values just above and below half a step in every entry end a whole step apart."""
    law = Gaussian(1.0, step=2.0**-10, entries=64)
    low, high = torch.full((1, 64), 2.0**-11 * (1 - 1e-6)), torch.full((1, 64), 2.0**-11 * (1 + 1e-6))
    ends = [placed(values.double(), torch.zeros(1, 64, dtype=torch.float64), law.step) for values in (low, high)]
    apart = float(torch.linalg.vector_norm(ends[0] - ends[1]))
    before = float(torch.linalg.vector_norm(high.double() - low.double()))
    assert 0.99 * law.rounding < apart <= before + law.rounding
    assert law.apart(0.0) == 0.0


def test_steps_do_not_depend_on_the_value() -> None:
    law = Gaussian(0.3).on_grid(1.0, 1)
    draws = law.draw(Stream.of(1, "noise", [0], torch.device("cpu")), 1000, 0, 1)
    near, far = (law.release(torch.full((1, 1000), value, dtype=torch.float64), draws) for value in (0.0, 0.1))
    shift = round(0.1 / law.step) * law.step  # type: ignore[attr-defined]
    np.testing.assert_array_equal((far - near).numpy(), np.full((1, 1000), shift))
