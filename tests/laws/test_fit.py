"""Statistics of goodness of fit against exact values: Anderson and Darling, binomial tails, Bonferroni."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtri
from scipy.stats import binom

from vflpriv.laws.fit import anderson_darling, anderson_darling_limit, rate_p_value, smallest


def limit(a: float) -> float:
    """P[A² < a] by the series of Anderson and Darling (1954), of which Marsaglia's polynomials are approximations."""
    total = 0.0
    for j in range(12):
        square = (4 * j + 1) ** 2 * math.pi**2 / (8 * a)
        sign = (-1) ** j * math.gamma(j + 0.5) / (math.gamma(0.5) * math.factorial(j))
        inner = quad(lambda w, square=square: math.exp(a / (8 * (w * w + 1)) - square * w * w), 0, math.inf)[0]
        total += sign * (4 * j + 1) * math.exp(-square) * inner
    return math.sqrt(2 * math.pi) / a * total


@pytest.mark.parametrize("a", [0.15, 0.4, 0.9, 1.5, 1.99, 2.01, 2.6, 3.9, 6.0])
def test_the_limit_law_is_that_of_the_series(a: float) -> None:
    assert anderson_darling_limit(a) == pytest.approx(limit(a), abs=2.5e-5)
    assert 1 - anderson_darling_limit(a) == pytest.approx(1 - limit(a), rel=5e-3)


@pytest.mark.parametrize("a", [10.0, 15.0, 25.0, 29.9, 31.0, 1e6, math.inf])
def test_far_out_nothing_is_left(a: float) -> None:
    assert 1 - anderson_darling_limit(a) <= 1.2 * math.exp(-a)


def test_the_statistic_of_one_and_two_values_is_its_formula() -> None:
    """A² of one value at its quantile u is -1 - ln u(1-u); of two, -2 - ½ ln u v³ (1-v) (1-u)³ for u < v."""
    for u in (0.5, 0.2, 0.9):
        statistic = -1 - math.log(u * (1 - u))
        assert anderson_darling(np.array([ndtri(u)])) == pytest.approx(1 - limit(statistic), abs=2.5e-5)
    for u, v in ((0.2, 0.7), (0.6, 0.99)):
        statistic = -2 - math.log(u * v**3 * (1 - v) * (1 - u) ** 3) / 2
        assert anderson_darling(ndtri(np.array([[v, u]]))) == pytest.approx(1 - limit(statistic), abs=2.5e-5)


def test_values_that_fit_perfectly_and_values_far_away() -> None:
    places = (np.arange(1000) + 0.5) / 1000
    assert anderson_darling(ndtri(places)) == pytest.approx(1.0)
    assert anderson_darling(1.2 * ndtri(places)) < 1e-5
    assert anderson_darling(np.full(10, 60.0)) == 0.0


@pytest.mark.parametrize(("number", "rate"), [(7, 0.3), (7, 0.91), (1, 0.5), (40, 0.02)])
def test_rates_have_twice_the_smaller_tail(number: int, rate: float) -> None:
    counts = np.arange(number + 1)
    expected = np.minimum(1.0, 2 * np.minimum(binom.cdf(counts, number, rate), binom.sf(counts - 1, number, rate)))
    np.testing.assert_allclose(rate_p_value(counts, number, rate), expected, rtol=1e-9)


def test_of_several_p_values_the_smallest_counts_as_often_as_there_are() -> None:
    assert smallest(np.array([0.3, 0.01, 0.2])) == pytest.approx(0.03)
    assert smallest([0.6, 0.5]) == smallest([0.9, 0.8]) == 1.0
    assert smallest([]) == 1.0
