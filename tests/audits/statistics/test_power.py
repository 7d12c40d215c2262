"""The power that reports quote is that of the test they made, by simulation; and bounds on means cover."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import bdtr, expit, ndtr

from tests.audits.statistics.mechanisms import allowed
from vflpriv.audits.statistics.bounds import Errors, mu_error_rate, tail
from vflpriv.audits.statistics.means import mean_bounds, p_value_mean
from vflpriv.audits.statistics.power import power_dp, power_gdp, power_of_rates, trials_for_ratio

REPETITIONS = 40_000


@pytest.mark.parametrize("level", [0.001, 0.0001, 0.05])
@pytest.mark.parametrize(("mu", "trials"), [(0.388, 400), (1.0, 400), (2.0, 100), (1.0, 1500)])
def test_the_power_against_a_curve_is_how_often_it_is_refuted(mu: float, trials: int, level: float) -> None:
    errors = np.random.default_rng(0).binomial(2 * trials, ndtr(-1.2 * mu / 2), REPETITIONS)
    numbers, times = np.unique(errors, return_counts=True)
    refuted = times @ (tail(numbers, 2 * trials, float(ndtr(-mu / 2))) <= level) / REPETITIONS
    assert power_gdp(mu, trials, level) == pytest.approx(refuted, abs=0.012)
    assert power_gdp(mu, trials, level, excess=1.0) <= level


@pytest.mark.parametrize(("epsilon", "trials"), [(1.0, 400), (0.5, 1500), (3.0, 100)])
def test_the_power_against_epsilon_is_how_often_it_is_refuted(epsilon: float, trials: int) -> None:
    delta = 1e-3
    errors = np.random.default_rng(0).binomial(2 * trials, (1 - delta) * expit(-1.2 * epsilon), REPETITIONS)
    numbers, times = np.unique(errors, return_counts=True)
    refuted = times @ (tail(numbers, 2 * trials, float((1 - delta) * expit(-epsilon))) <= 0.001) / REPETITIONS
    assert power_dp(epsilon, delta, trials, 0.001) == pytest.approx(refuted, abs=0.012)


@pytest.mark.parametrize("level", [1e-12, 0.001, 0.05, 0.6])
@pytest.mark.parametrize(("claimed", "trials"), [(0.5, 3), (0.31, 400), (0.02, 1500), (0.0, 50), (1.0, 50)])
def test_the_most_errors_that_refute_are_those_of_a_look_at_all_numbers(claimed, trials, level) -> None:
    most = int((tail(np.arange(2 * trials + 1), 2 * trials, claimed) <= level).sum()) - 1
    for actual in (0.2, 0.97):
        expected = float(bdtr(most, 2 * trials, actual)) if most >= 0 else 0.0
        assert power_of_rates(claimed, actual, trials, level) == expected


@pytest.mark.parametrize("delta", [0.0, 0.2])
def test_the_power_is_that_of_the_two_error_rates(delta: float) -> None:
    rates = [(1 - delta) / (1 + np.exp(epsilon)) for epsilon in (1.5, 1.5 * 1.7)]
    assert power_dp(1.5, delta, 90, 0.01, excess=1.7) == pytest.approx(power_of_rates(*rates, 90, 0.01))
    assert 0.1 < power_gdp(1.5, 90, 0.01, excess=1.7) < 0.99
    rates = [float(ndtr(-mu / 2)) for mu in (1.5, 1.5 * 1.7)]
    assert power_gdp(1.5, 90, 0.01, excess=1.7) == pytest.approx(power_of_rates(*rates, 90, 0.01))


def test_no_number_of_errors_may_be_few_enough() -> None:
    assert power_gdp(0.1, 3, 0.001) == 0.0


@pytest.mark.parametrize("mean", [0.02, 0.117, 0.5, 0.9])
@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("grain", [1, 5, 1000], ids=["all or nothing", "coarse", "fine"])
def test_bounds_on_a_mean_cover_whatever_the_values_vary_by(mean: float, count: int, grain: int) -> None:
    """The order of values does not matter: rows that are the same but for it are looked at once."""
    values = np.sort(np.random.default_rng(2).binomial(grain, mean, (2000, count)) / grain, axis=1)
    rows, times = np.unique(values, axis=0, return_counts=True)
    assert times @ np.array([p_value_mean(row, mean) <= 0.05 for row in rows]) / 2000 <= allowed(2000)
    rows, times = np.unique(values[:300], axis=0, return_counts=True)
    ends = np.array([mean_bounds(row, 0.95) for row in rows])
    assert times @ ((ends[:, 0] > mean) | (ends[:, 1] < mean)) / 300 <= allowed(300)


def test_values_that_agree_refute_what_single_ones_cannot() -> None:
    assert p_value_mean([0.5] * 8, 0.117) < 1e-4
    assert p_value_mean([1.0], 0.117) > 0.1
    assert p_value_mean([0.0, 0.0], 0.0) == 1.0
    assert p_value_mean([0.0, 0.1], 0.0) == 0.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        p_value_mean([1.2], 0.5)


@pytest.mark.parametrize("ratio", [0.8, 0.95])
@pytest.mark.parametrize("mu", [0.14, 0.27, 1.0, 2.0])
def test_so_many_trials_measure_this_share_of_mu_on_average(mu: float, ratio: float) -> None:
    assert trials_for_ratio(1.0, 0.9, 0.95) == 932
    trials = trials_for_ratio(mu, ratio, 0.95)
    wrong = round(trials * float(ndtr(-mu / 2)))
    errors = Errors(false_positives=wrong, negatives=trials, false_negatives=wrong, positives=trials)
    assert mu_error_rate(errors, 0.95) / mu == pytest.approx(ratio, abs=0.02)
