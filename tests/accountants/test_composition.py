"""Sums of losses against sums that are added up one by one: masses, windows, errors and the epsilon read from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from vflpriv.accountants import _composition
from vflpriv.accountants._composition import (
    Composition,
    GridTooLargeError,
    _convolve,
    _deviation,
    _least,
    _log_mean_exp,
    _power,
    _tilt,
    _window,
    compose,
)
from vflpriv.accountants._lattice import Lattice, grid

SKEWED = Lattice(0.13, 0.5, -2, np.array([0.3, 0.05, 0.4, 0.0, 0.15]), 0.1)
OTHER = Lattice(-0.04, 0.5, 1, np.array([0.25, 0.6, 0.14]), 0.01)
UNIT_ROUNDOFF = 2.3e-16


def coin(p: float = 0.6, step: float = 0.01) -> Lattice:
    return Lattice(0.0, step, 0, np.array([1 - p, p]), 0.0)


def added_up(parts: list[tuple[Lattice, int]]) -> tuple[np.ndarray, np.ndarray, float]:
    """Losses and masses of the sum by plain convolution, and the mass with an infinite loss somewhere."""
    masses, first, offset, finite = np.ones(1), 0, 0.0, 1.0
    for lattice, count in parts:
        for _ in range(count):
            masses, first, offset = np.convolve(masses, lattice.masses), first + lattice.first, offset + lattice.offset
            finite *= 1 - lattice.infinite
    return grid(offset, parts[0][0].step, first, first + masses.size), masses, 1 - finite


def exact_delta(parts: list[tuple[Lattice, int]], epsilon: float) -> float:
    losses, masses, infinite = added_up(parts)
    return float(np.sum(masses * np.maximum(0.0, -np.expm1(epsilon - losses)))) + infinite


PARTS = [[(SKEWED, 1)], [(SKEWED, 6)], [(SKEWED, 3), (OTHER, 5)], [(OTHER, 2), (coin(0.3, 0.5), 7), (SKEWED, 2)]]


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("tilt", [0.0, 0.4, 2.5])
def test_sums_are_those_of_plain_convolution(parts: list[tuple[Lattice, int]], tilt: float) -> None:
    losses, masses, infinite = added_up(parts)
    found = compose(parts, tilt)
    assert found.infinite == pytest.approx(infinite, rel=1e-12)
    assert found.operations == 4 * sum(count for _, count in parts) + 128
    assert found.tilt == tilt
    moment = float(np.sum(masses * np.exp(tilt * losses)))
    assert found.log_moment == pytest.approx(math.log(moment), rel=1e-12)
    # The window may be wider than the sum, and places beyond it are empty.
    at = np.rint((losses - found.losses[0]) / 0.5).astype(int)
    inside = (at >= 0) & (at < found.losses.size)
    np.testing.assert_allclose(found.losses[at[inside]], losses[inside], atol=1e-12)
    tilted = np.zeros(found.losses.size)
    tilted[at[inside]] = (masses * np.exp(tilt * losses) / moment)[inside]
    np.testing.assert_allclose(found.tilted, tilted, atol=1e-13)
    for epsilon in (0.0, 0.2, 0.63, 1.7):
        low, high = found.delta(epsilon)
        truth = exact_delta(parts, epsilon)
        assert low <= truth - infinite + 1e-15
        assert truth - 1e-15 <= high <= truth + 1e-6
        assert found._values()(epsilon) == pytest.approx(truth - infinite / 2, abs=1e-9)


def test_a_loss_exactly_at_epsilon_adds_nothing_and_all_that_fits_in_one_bit_is_certain() -> None:
    single = compose([(Lattice(0.5, 0.25, 0, np.array([1.0]), 0.0), 3)], 0.3)
    assert single.delta(1.5) == (0.0, pytest.approx(0.0, abs=1e-12))
    low, high = single.delta(1.0)
    assert low < -math.expm1(-0.5) < high < low + 1e-10


# The error of a composition -----------------------------------------------------------------------------------------


def given(**changes: Any) -> Composition:
    parts: dict[str, Any] = {
        "losses": np.array([-0.5, 0.0, 0.5, 1.0]),
        "tilted": np.array([0.4, 0.3, 0.2, 0.1]),
        "tilt": 0.8,
        "log_moment": 0.7,
        "infinite": 1e-5,
        "operations": 1e9,
    }
    return Composition(**{**parts, **changes})


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 0.5, 0.9])
def test_both_errors_of_a_composition_are_counted(epsilon: float) -> None:
    """Mass outside the window costs at most the largest weight, and rounding the product of two norms."""
    found, t = given(), 0.8
    distances = np.linspace(1e-4, 10, 100_001)
    largest = float((np.exp(-t * distances) * -np.expm1(-distances)).max()) * math.exp(0.7 - t * epsilon)
    assert found._log_largest_weight(epsilon) == pytest.approx(math.log(largest), abs=1e-7)
    above = found.losses > epsilon
    weight = np.exp(0.7 - t * found.losses[above]) * -np.expm1(epsilon - found.losses[above])
    value = float(np.sum(found.tilted[above] * weight))
    norms = math.sqrt(float(np.sum(found.tilted**2) * np.sum(weight**2)))
    error = 1e-13 * largest + 1e9 * UNIT_ROUNDOFF * norms
    low, high = found.delta(epsilon)
    assert value - low == pytest.approx(error, rel=1e-6)
    assert high - value == pytest.approx(error + 1e-5, rel=1e-6)


def test_without_a_tilt_no_weight_is_above_one() -> None:
    assert given(tilt=0.0)._log_largest_weight(3.0) == 0.7
    assert given(log_moment=1e4).delta(0.0) == (0.0, 1.0)
    # e^300 is still computed, with an error that decides nothing.
    low, high = given(tilt=0.0, log_moment=299.9).delta(0.0)
    assert (low, high) == (pytest.approx(math.exp(299.9) * (0.2 * -math.expm1(-0.5) + 0.1 * -math.expm1(-1))), 1.0)
    assert given(tilt=0.0, log_moment=300.1).delta(0.0) == (0.0, 1.0)
    assert given(operations=1e20).delta(0.0) == (0.0, 1.0)


@pytest.mark.parametrize("shift", [0.0, 299.5, 600.0])
def test_tails_that_are_summed_once_give_the_value_in_the_middle(shift: float) -> None:
    """Losses above 300, whose exponentials are too large, are added up for each epsilon anew."""
    found = given(operations=0.0, losses=np.array([-0.5, 0.0, 0.5, 1.0]) + shift, log_moment=0.7 + 0.8 * shift)
    values = found._values()
    for epsilon in (0.0, 0.25 + shift, 0.5 + shift, 2.0 + shift):
        assert values(epsilon) == pytest.approx(sum(found.delta(epsilon)) / 2, abs=2e-13)


def test_epsilon_is_read_on_the_safe_side() -> None:
    parts = [(Lattice(0.13, 0.5, -2, np.array([0.3, 0.2, 0.4, 0.0, 0.1]), 1e-9), 4), (coin(0.3, 0.5), 5)]
    infinite = added_up(parts)[2]
    found = compose(parts, 0.4)
    for delta in (infinite + 0.02, infinite + 0.2):
        above, below = found.epsilon(delta, 20.0, upper=True), found.epsilon(delta - infinite, 20.0, upper=False)
        assert exact_delta(parts, above) <= delta <= exact_delta(parts, above - 1e-5)
        assert exact_delta(parts, below) - infinite >= delta - infinite >= exact_delta(parts, below + 1e-5) - infinite
    # Where an infinite loss alone has more, no epsilon does.
    assert found.epsilon(0.9 * infinite, 20.0, upper=True) == math.inf
    # At `high` delta is still too large: the largest epsilon is at least that, and the least one is unknown.
    plain = compose([(coin(0.6, 0.5), 9)], 0.2)
    truth = exact_delta([(coin(0.6, 0.5), 9)], 1.0)
    assert plain.epsilon(0.9 * truth, 1.0, upper=True) == math.inf
    assert plain.epsilon(0.9 * truth, 1.0, upper=False) == 1.0
    # With an error that is larger than the difference nothing is certain from below.
    unsure = given(operations=0.02 / UNIT_ROUNDOFF)
    low, high = unsure.delta(0.2)
    assert low < 0.98 * (low + high) / 2
    assert unsure.epsilon(0.98 * (low + high) / 2, 0.2, upper=False) == 0.0
    assert unsure.epsilon(0.98 * low, 0.2, upper=False) == 0.2
    # Everything is allowed: nothing is spent.
    assert plain.epsilon(0.999, 1.0, upper=True) == plain.epsilon(0.999, 1.0, upper=False) == 0.0


def test_an_error_moves_epsilon_outwards() -> None:
    """With rounding errors of 1e-4 the two readings are apart by the error over the slope, and no farther."""
    values = given(operations=1e-4 / UNIT_ROUNDOFF / 0.5)
    delta = 0.1
    above, below = (values.epsilon(delta, 2.0, upper=upper) for upper in (True, False))
    assert values.delta(above)[1] <= delta < values.delta(above - 0.2 * (above - below))[1]
    assert values.delta(below)[0] > delta >= values.delta(below + 0.2 * (above - below))[0]
    blind = given(operations=1e20)
    assert blind.epsilon(delta, 0.9, upper=True) == math.inf
    assert 1.0 <= blind.epsilon(delta, 2.0, upper=True) < 1.2, "beyond the largest loss nothing is left to be wrong"
    assert blind.epsilon(delta, 2.0, upper=False) == 0.0


@pytest.mark.parametrize("least", [1e-3, 0.9, 1.7, 55.0])
def test_the_least_value_that_holds_is_found_to_a_tenth(least: float) -> None:
    asked: list[float] = []

    def holds(x: float) -> bool:
        asked.append(x)
        return x >= least

    found = _least(holds, 1e-2, 100.0)
    assert max(least, 1e-2) <= found <= max(1.1 * least, 1e-2)
    assert len(asked) <= 13
    assert _least(lambda x: x > 30.0, 1.0, 10.0) == math.inf
    assert _least(lambda x: True, 5.0, 10.0) == 5.0
    assert _least(lambda x: x > 30.0, 1.0, 16.1) <= 33.0
    assert _least(lambda x: x > 3.0, 1.0, 1.0) <= 3.3, "the first value beyond the last one is tried, too"


# Windows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "count", "tilt"), [(0.5, 1000, 0.0), (0.02, 300, 0.0), (0.3, 50, 40.0), (1e-5, 1000, 3.0)]
)
def test_a_window_leaves_less_than_it_may_outside_and_is_no_wider_than_it_has_to_be(
    p: float, count: int, tilt: float
) -> None:
    part = _tilt(coin(p), count, tilt)
    tilted = p * math.exp(0.01 * tilt) / (1 - p + p * math.exp(0.01 * tilt))
    np.testing.assert_allclose(part.masses, [1 - tilted, tilted], rtol=1e-12)
    assert part.mean == pytest.approx(0.01 * tilted)
    assert part.variance == pytest.approx(1e-4 * tilted * (1 - tilted))
    assert part.log_moment == pytest.approx(math.log(1 - p + p * math.exp(0.01 * tilt)), abs=1e-12)
    low, high = _window([part])
    law = binom(count, tilted)
    assert law.cdf(math.ceil(low / 0.01) - 1) + law.sf(math.floor(high / 0.01)) <= 1e-13
    mean, far = law.mean() * 0.01, law.isf(0.5e-13) * 0.01
    assert high - mean <= 1.45 * (far - mean) + 0.01
    assert mean - low <= 1.45 * max(mean - law.ppf(0.5e-13) * 0.01, 8 * law.std() * 0.01)


def test_a_single_loss_needs_no_window() -> None:
    part = _tilt(Lattice(0.5, 0.25, 3, np.array([0.4]), 0.6), 3, 1.0)
    assert _window([part]) == (pytest.approx(3.75), pytest.approx(3.75))
    assert part.log_moment == pytest.approx(math.log(0.4) + 1.25)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_deviations_are_those_of_the_best_of_a_few_exponents(sign: float) -> None:
    """Chernoff: P[S - E S >= d] <= e^{K(t) - t d} is half of 1e-13 at d = (K(t) + log(2 / 1e-13)) / t."""
    part = _tilt(coin(0.1), 40, 0.0)
    spread = math.sqrt(40 * part.variance)
    expected = []
    for halvings in range(24):
        t = 8 / 2**halvings / spread
        growth = 40 * (math.log(0.9 * math.exp(-sign * t * 0.001) + 0.1 * math.exp(sign * t * 0.009)))
        expected.append((growth + math.log(2e13)) / t)
    assert _deviation([part], sign / spread) == pytest.approx(min(expected), rel=1e-9)


@pytest.mark.parametrize("t", [1e-9, 1e-4, 0.3, 60.0, 200.0, 5000.0, -30.0, -5000.0])
def test_the_moment_around_the_mean_is_exact_for_small_and_large_exponents(t: float) -> None:
    part = _tilt(coin(0.3), 1, 0.0)
    low, high = -0.003 * t, 0.007 * t
    exact = np.logaddexp(math.log(0.7) + low, math.log(0.3) + high)
    small = 0.5 * 0.21e-4 * t * t * (1 + t * (0.7 - 0.3) * 0.01 / 3)
    assert _log_mean_exp(part, t) == pytest.approx(float(exact) if abs(t) > 1 else small, rel=1e-5)
    empty = _tilt(Lattice(0.0, 0.01, 0, np.array([0.7, 0.0, 0.3]), 0.0), 1, 0.0)
    assert math.isfinite(_log_mean_exp(empty, t))


# Transforms ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [1, 2, 3, 12, 37, 64])
def test_powers_are_repeated_squares(exponent: int) -> None:
    base = np.array([0.9 + 0.1j, 0.3 - 0.2j, 1.0])
    np.testing.assert_allclose(_power(base, exponent), base**exponent, rtol=1e-12)


def test_sums_that_are_longer_than_the_window_are_folded() -> None:
    parts = [_tilt(SKEWED, 2, 0.4), _tilt(OTHER, 3, 0.4)]
    whole, shift = _convolve(parts, 40)
    folded, same = _convolve(parts, 8)
    assert shift == same
    assert folded.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(folded, whole.reshape(5, 8).sum(0), atol=1e-14)
    assert folded.min() >= 0.0


@pytest.mark.parametrize(("parts", "most"), [(1, 2**21), (16, 2**21), (20, 2**25 / 20)])
def test_grids_have_two_million_points_and_all_transforms_together_sixteen_times_as_many(
    parts: int, most: float
) -> None:
    many = [(coin(0.5, 1e-7), 10**15)] * parts
    low, high = _window([_tilt(lattice, count, 0.0) for lattice, count in many])
    with pytest.raises(GridTooLargeError) as error:
        compose(many, 0.0)
    assert error.value.factor == pytest.approx(((high - low) / 1e-7 + 2) / most)


def test_what_does_not_fit_says_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [(coin(0.5), 1000)]
    low, high = _window([_tilt(coin(0.5), 1000, 0.0)])
    size = (high - low) / 0.01 + 2
    for points, work, factor in ((size / 3, 1e9, 3.0), (1e9, size / 4, 4.0)):
        monkeypatch.setattr(_composition, "MAX_GRID_POINTS", points)
        monkeypatch.setattr(_composition, "MAX_WORK", work)
        with pytest.raises(GridTooLargeError) as error:
            compose(parts, 0.0)
        assert error.value.factor == pytest.approx(factor)
    two = [(coin(0.5), 500), (coin(0.4), 500)]
    low, high = _window([_tilt(lattice, count, 0.0) for lattice, count in two])
    size = (high - low) / 0.01 + 2
    monkeypatch.setattr(_composition, "MAX_GRID_POINTS", 1e9)
    monkeypatch.setattr(_composition, "MAX_WORK", size)
    with pytest.raises(GridTooLargeError) as error:
        compose(two, 0.0)
    assert error.value.factor == pytest.approx(2.0)
    monkeypatch.setattr(_composition, "MAX_WORK", 2 * size)
    assert compose(two, 0.0).losses.size >= size
