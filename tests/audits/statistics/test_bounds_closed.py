"""Bounds and p-values where they are known in closed form, and thresholds that are planned before trials."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm

from vflpriv.audits.statistics.bounds import (
    Errors,
    _log_density,
    clopper_pearson_upper,
    epsilon_rectangle,
    mu_estimate,
    mu_known_sigma,
    mu_of_rates,
    mu_rectangle,
    p_value_dp_rectangle,
    p_value_rectangle,
    secret_threshold,
    standardised,
    tail,
)


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
    assert standardised(ratios, np.full(3, 0.25)) == pytest.approx(ratios / 0.5)
    # The largest of distances that count as equal, so that no score is made larger than it is.
    assert standardised(ratios, np.array([1.0, 1.0005, 1.0])) == pytest.approx(ratios / math.sqrt(1.0005), rel=1e-12)
    assert standardised(ratios, np.array([1.0, 1.001, 1.0])) is not None
    assert standardised(ratios, np.array([6.25, 6.25, 6.26])) is None
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


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1])
def test_levels_at_the_ends_are_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="Expected 0 < alpha"):
        clopper_pearson_upper(1, 10, alpha)


def test_an_estimate_of_mu_counts_half_an_error_more() -> None:
    found = mu_estimate(Errors(false_positives=3, negatives=40, false_negatives=5, positives=40))
    assert norm.cdf(-found / 2) == pytest.approx(8.5 / 81)
    assert not np.signbit(mu_of_rates(np.full(9, 0.5), np.full(9, 0.5))).any(), "never -0.0"


# p-values of rectangles


def all_right(n: int) -> Errors:
    return Errors(false_positives=0, negatives=n, false_negatives=0, positives=n)


def test_without_an_error_the_p_value_of_a_rectangle_has_its_closed_form() -> None:
    """Both rates are below 1 - (alpha / 2)^(1/n): the corner leaves the claim where this is the claim's own rate."""
    for n, mu in ((40, 1.3), (90, 2.1), (7, 0.2)):
        assert p_value_rectangle(all_right(n), mu) == pytest.approx(2 * norm.cdf(mu / 2) ** n, rel=1e-9)
    for n, epsilon, delta in ((40, 1.3, 0.0), (90, 2.1, 0.02)):
        rate = (1 - delta) / (1 + math.exp(epsilon))
        assert p_value_dp_rectangle(all_right(n), epsilon, delta) == pytest.approx(2 * (1 - rate) ** n, rel=1e-9)
    assert p_value_rectangle(all_right(3000), 0.1) == pytest.approx(1e-15, rel=1e-6, abs=0), "the least that is said"


def test_the_p_value_of_a_rectangle_is_the_level_at_which_its_bound_is_the_claim() -> None:
    errors = Errors(false_positives=2, negatives=70, false_negatives=31, positives=110)
    level = p_value_rectangle(errors, 1.2)
    assert 0.001 < level < 0.9
    assert mu_rectangle(errors, 1 - level) == pytest.approx(1.2)
    level = p_value_dp_rectangle(errors, 1.9, 0.01)
    assert 0.001 < level < 0.9
    assert epsilon_rectangle(errors, 0.01, 1 - level) == pytest.approx(1.9)


def test_what_no_level_refutes_has_the_p_value_one() -> None:
    guessing = Errors(false_positives=20, negatives=40, false_negatives=25, positives=40)
    assert p_value_rectangle(guessing, 0.0) == 1.0, "a bound of exactly zero refutes nothing"
    assert p_value_dp_rectangle(guessing, 0.0, 0.0) == 1.0
    assert p_value_rectangle(all_right(40), 30.0) == 1.0


# A threshold for secret batches


def score(x: float, rate: float, shift: float) -> float:
    """The log-likelihood ratio of a world in which a part of the releases is shifted, against one without."""
    return math.log(rate * math.exp(shift * x - shift**2 / 2) + 1 - rate)


def corner(x: float, rate: float, shift: float, trials: int, *, inside: bool) -> float:
    """The bound on mu that trials with exactly the expected errors give, if releases above x are told to be shifted."""
    below = rate * ndtr(x - shift) + (1 - rate) * ndtr(x)
    fpr, fnr = (ndtr(-x), below) if inside else (below, ndtr(-x))
    wrong = math.ceil(fpr * trials), math.ceil(fnr * trials)
    errors = Errors(false_positives=wrong[0], negatives=trials, false_negatives=wrong[1], positives=trials)
    return mu_rectangle(errors, 0.95)


@pytest.mark.parametrize("inside", [True, False], ids=["shift inside", "shift outside"])
@pytest.mark.parametrize(("rate", "shift", "trials"), [(0.3, 2.2, 2000), (0.15, 3.0, 800), (0.75, 1.5, 300)])
def test_the_planned_threshold_promises_as_much_as_the_best(rate, shift, trials, inside) -> None:
    """Margin: a rate that is given, and closed forms."""
    means, sign = ((shift, 0.0), 1) if inside else ((0.0, shift), -1)
    threshold = secret_threshold(means=means, rate=rate, rounds=1, trials=trials, confidence=0.95, seed=3)
    found = brentq(lambda x: score(x, rate, shift) - sign * threshold, -8.0, 12.0)
    best = max(corner(x, rate, shift, trials, inside=inside) for x in np.linspace(-1, 5, 200))
    assert corner(found, rate, shift, trials, inside=inside) > 0.96 * best
    middle = brentq(lambda x: score(x, rate, shift), -8.0, 12.0)
    assert best > 1.15 * corner(middle, rate, shift, trials, inside=inside) or rate > 0.5, "far from the middle"
