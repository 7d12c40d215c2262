"""Means over seeds, p-values of means above a bound, and Holm's correction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t, ttest_1samp

from vflpriv.audits.statistics.significance import holm_adjusted, mean_error, mean_interval, p_value_above, smallest

BOUND = 0.05


def test_one_seed_bounds_nothing():
    assert mean_interval([0.3], 0.95, (0.0, 1.0)) == (0.3, 0.0, 1.0)


@pytest.mark.parametrize("seeds", [3, 5])
def test_the_interval_over_seeds_covers_the_mean(seeds):
    """Seeds whose success scatters around 0.6, each measured on 500 records."""
    generator = np.random.default_rng(0)
    rates = generator.binomial(500, generator.normal(0.6, 0.05, size=(2000, seeds)).clip(0, 1)) / 500
    inside = [low <= 0.6 <= high for _, low, high in (mean_interval(list(r), 0.95, (0.0, 1.0)) for r in rates)]
    assert 0.935 < np.mean(inside) < 0.965
    # A normal quantile in Student's place is caught.
    reach = 1.96 * rates.std(1, ddof=1) / np.sqrt(seeds)
    # Margin: NumPy draws the same from its seeds on every CPU.
    assert np.mean(np.abs(rates.mean(1) - 0.6) <= reach) < 0.93


def test_p_values_at_the_edges() -> None:
    assert p_value_above(0.04, 0.001, BOUND, 5) == 1
    assert p_value_above(0.06, None, BOUND, 1) == 1, "a single seed bounds nothing"
    assert p_value_above(0.06, 0.0, BOUND, 5) == 0
    assert p_value_above(0.05 + 1.959964 * 0.01, 0.01, BOUND, 1) == pytest.approx(0.05), "normal over records"


@pytest.mark.parametrize("values", [[0.31, 0.4], [0.31, 0.42, 0.39], [0.9, 0.2, 0.4, 0.41, 0.55]])
def test_means_are_students(values) -> None:
    told = ttest_1samp(values, BOUND)
    error = mean_error(values)
    assert p_value_above(np.mean(values), error, BOUND, len(values)) == pytest.approx(told.pvalue)
    expected = told.confidence_interval(0.8)
    found = mean_interval(values, 0.8, (-9.0, 9.0))
    assert found == pytest.approx((np.mean(values), expected.low, expected.high))
    assert mean_interval(values, 0.8, (0.35, 0.36))[1:] == (max(0.35, expected.low), min(0.36, expected.high))
    assert p_value_above(BOUND, 0.0, BOUND, 5) == 1, "a mean at the bound is not above it"


def test_values_on_a_grid_vary_at_least_as_rounding_does() -> None:
    same, grain = [0.5, 0.5, 0.5, 0.5], 0.3
    assert mean_error(same, grain=grain) == pytest.approx(0.3 / math.sqrt(12) / 2)
    assert mean_error(same) == 0
    assert mean_interval(same, 0.9, (0.0, 1.0)) == (0.5, 0.5, 0.5)
    assert mean_error([0.0, 5.0], grain=grain) == mean_error([0.0, 5.0]) == 2.5
    reach = t.ppf(0.95, 3) * 0.3 / math.sqrt(12) / 2
    assert mean_interval(same, 0.9, (0.0, 1.0), grain=grain) == pytest.approx((0.5, 0.5 - reach, 0.5 + reach))


def test_holm_steps_down() -> None:
    p = [0.03, 0.001, 0.012, 0.4]
    assert holm_adjusted(p) == pytest.approx([0.06, 0.004, 0.036, 0.4])
    assert [q <= 0.05 for q in holm_adjusted(p)] == [False, True, True, False]
    assert holm_adjusted([]) == []
    assert holm_adjusted([0.9, 0.8]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0.001, 0.2))
def test_holm_is_between_bonferroni_and_no_correction(p: list[float], alpha: float) -> None:
    for value, adjusted in zip(p, holm_adjusted(p), strict=True):
        if value * len(p) <= alpha:
            assert adjusted <= alpha
        if adjusted <= alpha:
            assert value <= alpha


def test_holm_refuses_what_is_no_p_value() -> None:
    with pytest.raises(ValueError, match="Expected p-values between 0 and 1"):
        holm_adjusted([0.5, math.nan])
    for wrong in (-0.1, 1.5):
        with pytest.raises(ValueError, match="Expected p-values between 0 and 1"):
            holm_adjusted([0.5, wrong])


def test_of_several_p_values_the_smallest_counts_as_often_as_there_are() -> None:
    assert smallest(np.array([0.3, 0.01, 0.2])) == pytest.approx(0.03)
    assert smallest([0.6, 0.5]) == smallest([0.9, 0.8]) == smallest([]) == 1.0
