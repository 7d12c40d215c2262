"""Thresholds that are planned before trials: densities as they are, and the best place on known trade-offs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from vflpriv.audits.statistics.bounds import _log_density, clopper_pearson_upper, mu_known_sigma, standardised, tail


@pytest.mark.parametrize(("mean", "rate"), [(0.7, 0.3), (3.1, 0.05), (-1.3, 0.9)])
def test_the_density_of_a_mixture(mean: float, rate: float) -> None:
    x = np.linspace(-4.0, 6.0, 23)
    mixture = np.log(rate * norm.pdf(x, mean) + (1 - rate) * norm.pdf(x))
    assert _log_density(x, mean, rate) - 0.5 * np.log(2 * np.pi) == pytest.approx(mixture)


def test_a_bound_for_known_noise_is_the_difference_of_means_less_its_error() -> None:
    inside, outside = np.array([2.0, 3.5, 4.1]), np.array([0.3, -0.2, 0.5, 0.9, 1.0])
    expected = inside.mean() - 0.5 - norm.ppf(0.9) * np.sqrt(1 / 3 + 1 / 5)
    assert mu_known_sigma(inside, outside, 0.9) == pytest.approx(expected)
    assert mu_known_sigma(outside, inside, 0.9) == 0.0


def test_ratios_are_standardised_by_the_distance_if_it_is_one_distance() -> None:
    ratios = np.array([2.0, -1.0, 4.0])
    assert standardised(ratios, np.full(3, 6.25)) == pytest.approx(ratios / 2.5)
    assert standardised(ratios, np.array([6.25, 6.25, 6.3])) is None
    assert standardised(ratios, np.array([6.25, 0.0, 6.25])) is None
    assert standardised(ratios, np.array([])) is None


@pytest.mark.parametrize(("n", "p"), [(10, 0.5), (7, 0.3), (23, 0.61), (1, 0.9)])
def test_tails_of_binomials_are_sums_where_they_are_small_and_one_elsewhere(n: int, p: float) -> None:
    for k in range(n + 1):
        exact = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))
        assert tail(k, n, p) == pytest.approx(exact if k <= n * p - 1 else 1.0)


@pytest.mark.parametrize(("k", "n"), [(0, 0), (0, -1), (2, 1), (-1, 5), (6, 5)])
def test_more_errors_than_trials_are_refused(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="Expected 0 <= errors"):
        clopper_pearson_upper(k, n, 0.05)


@pytest.mark.parametrize(("k", "n", "alpha"), [(0, 1, 0.05), (3, 7, 0.2), (6, 7, 0.01), (1, 50, 0.3)])
def test_an_upper_bound_is_the_root_of_the_binomial_tail(k: int, n: int, alpha: float) -> None:
    bound = clopper_pearson_upper(k, n, alpha)
    assert sum(math.comb(n, i) * bound**i * (1 - bound) ** (n - i) for i in range(k + 1)) == pytest.approx(alpha)
    assert clopper_pearson_upper(n, n, alpha) == 1.0
