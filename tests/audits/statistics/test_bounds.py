"""The bounds: known values, exact guarantees, monotonicity, and inputs they refuse."""

from __future__ import annotations

import math
import re

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom

from vflpriv.audits.statistics.bounds import (
    Errors,
    clopper_pearson_upper,
    epsilon_error_rate,
    epsilon_from_mu,
    epsilon_rectangle,
    interval,
    mu_error_rate,
    mu_estimate,
    mu_rectangle,
    p_value_dp,
    p_value_gdp,
    pooled,
    tail,
)
from vflpriv.core.budgets import curve, epsilon_of

ALL = (
    mu_rectangle,
    mu_error_rate,
    lambda e, c: epsilon_rectangle(e, 1e-5, c),
    lambda e, c: epsilon_error_rate(e, 1e-5, c),
)
CONFIDENCE = st.floats(0.5, 0.999)


def errors(fp: int, fn: int, n: int = 100, positives: int | None = None) -> Errors:
    return Errors(false_positives=fp, negatives=n, false_negatives=fn, positives=positives or n)


@st.composite
def balanced(draw: st.DrawFn) -> Errors:
    n = draw(st.integers(1, 2000))
    return errors(draw(st.integers(0, n)), draw(st.integers(0, n)), n)


def poisson_binomial(n: int, fpr: float, fnr: float) -> np.ndarray:
    """The exact distribution of all errors of n trials a world."""
    return np.convolve(binom.pmf(np.arange(n + 1), n, fpr), binom.pmf(np.arange(n + 1), n, fnr))


# Clopper and Pearson


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(0, 10, 0.0, 0.308497), (5, 100, 0.016432, 0.112835), (10, 20, 0.271957, 0.728043), (10, 10, 0.691503, 1.0)],
)
def test_interval_has_the_tabulated_values(k: int, n: int, low: float, high: float) -> None:
    assert interval(k, n, 0.95) == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize(("k", "n", "alpha"), [(0, 50, 0.05), (3, 500, 0.025), (154, 500, 0.05), (49, 50, 1e-6)])
def test_upper_is_the_root_of_the_binomial_tail(k: int, n: int, alpha: float) -> None:
    upper = mpmath.mpf(clopper_pearson_upper(k, n, alpha))
    tail = mpmath.fsum(mpmath.binomial(n, i) * upper**i * (1 - upper) ** (n - i) for i in range(k + 1))
    assert float(tail) == pytest.approx(alpha, rel=1e-9)


def test_upper_without_an_error_has_its_closed_form_and_with_all_is_one() -> None:
    assert clopper_pearson_upper(0, 1000, 0.05) == pytest.approx(1 - 0.05 ** (1 / 1000), rel=1e-12)
    assert clopper_pearson_upper(1000, 1000, 0.05) == 1.0


# Known values of the four bounds


def test_rectangle_is_the_formula_at_the_corner() -> None:
    found = epsilon_rectangle(errors(5, 10), 0.01, 0.95)
    fpr, fnr = clopper_pearson_upper(5, 100, 0.025), clopper_pearson_upper(10, 100, 0.025)
    assert found == pytest.approx(max(math.log((0.99 - fnr) / fpr), math.log((0.99 - fpr) / fnr)))
    mu = mu_rectangle(errors(5, 10), 0.95)
    assert float(curve(mu, fpr)) == pytest.approx(fnr), "the corner lies on G_mu"


def test_error_rate_is_the_formula_of_both() -> None:
    rate = clopper_pearson_upper(15, 200, 0.05)
    mu = mu_error_rate(errors(5, 10), 0.95)
    assert float(ndtr(-mu / 2)) == pytest.approx(rate)
    epsilon = epsilon_error_rate(errors(5, 10), 0.01, 0.95)
    assert epsilon == pytest.approx(math.log((0.99 - rate) / rate))
    assert 0.99 / (1 + math.exp(epsilon)) == pytest.approx(rate), "p = (1 - delta) / (1 + e^eps)"


def test_error_rate_is_tighter_than_the_rectangle_when_rates_are_alike() -> None:
    for n, wrong in ((250, 77), (500, 79), (5000, 115)):
        both, corner = (
            mu_error_rate(errors(wrong, wrong, n), 0.95),
            mu_rectangle(errors(wrong, wrong, n), 0.95),
        )
        assert both > corner


# No leak, no bound


@given(balanced(), CONFIDENCE)
def test_a_test_no_better_than_guessing_gives_exactly_zero(e: Errors, confidence: float) -> None:
    found = [bound(e, confidence) for bound in ALL]
    assert all(value >= 0 and math.isfinite(value) for value in found)
    if e.total >= e.negatives:
        assert found == [0.0] * 4
        assert all(math.copysign(1, value) == 1 for value in found), "never -0.0"


def test_no_abs_when_the_test_is_worse_than_guessing() -> None:
    assert [bound(errors(99, 99), 0.95) for bound in ALL] == [0.0] * 4
    assert [bound(errors(100, 100), 0.95) for bound in ALL] == [0.0] * 4


# Monotonicity


@given(balanced(), CONFIDENCE, st.sampled_from(ALL), st.booleans())
def test_an_error_more_never_raises_a_bound(e: Errors, confidence: float, bound, positive: bool) -> None:
    more_fp = min(e.negatives, e.false_positives + positive)
    more_fn = min(e.positives, e.false_negatives + (not positive))
    assert bound(errors(more_fp, more_fn, e.negatives), confidence) <= bound(e, confidence) + 1e-12


@given(balanced(), CONFIDENCE, CONFIDENCE, st.sampled_from(ALL))
def test_more_confidence_never_raises_a_bound(e: Errors, one: float, other: float, bound) -> None:
    assert bound(e, max(one, other)) <= bound(e, min(one, other)) + 1e-12


@given(balanced(), CONFIDENCE, st.floats(0, 0.9), st.floats(0, 0.9))
def test_delta_is_respected(e: Errors, confidence: float, one: float, other: float) -> None:
    for bound in (epsilon_rectangle, epsilon_error_rate):
        small, large = bound(e, min(one, other), confidence), bound(e, max(one, other), confidence)
        assert large <= small + 1e-12


def test_a_delta_that_explains_both_leaves_no_epsilon() -> None:
    assert epsilon_rectangle(errors(0, 0), 0.0, 0.95) > 3
    assert epsilon_rectangle(errors(0, 0), 0.95, 0.95) == 0.0
    assert epsilon_error_rate(errors(0, 0), 0.98, 0.95) == 0.0


@given(balanced(), st.floats(0.5, 0.999))
def test_a_bound_lies_below_the_plain_estimate(e: Errors, confidence: float) -> None:
    assert mu_error_rate(e, confidence) <= mu_estimate(e)


# p-values


@given(balanced(), st.floats(0, 6), st.floats(0, 6))
def test_a_larger_mu_is_harder_to_refute(e: Errors, one: float, other: float) -> None:
    assert p_value_gdp(e, max(one, other)) >= p_value_gdp(e, min(one, other)) - 1e-12


@given(balanced(), st.floats(0, 5), st.sampled_from([0.001, 0.01, 0.05, 0.25]))
def test_p_value_and_bound_are_two_sides_of_one_test(e: Errors, mu: float, alpha: float) -> None:
    lower = mu_error_rate(e, 1 - alpha)
    if abs(lower - mu) > 1e-6:
        assert (p_value_gdp(e, mu) < alpha) == (lower > mu)


@given(balanced(), st.floats(0, 5), st.floats(0, 0.5), st.sampled_from([0.001, 0.05, 0.25]))
def test_p_value_and_bound_are_two_sides_of_one_test_for_epsilon(
    e: Errors, epsilon: float, delta: float, alpha: float
) -> None:
    lower = epsilon_error_rate(e, delta, 1 - alpha)
    if abs(lower - epsilon) > 1e-6:
        assert (p_value_dp(e, epsilon, delta) < alpha) == (lower > epsilon)


def test_p_value_known_values() -> None:
    assert p_value_gdp(errors(0, 0, 5), 0.0) == pytest.approx(2**-10)
    assert p_value_gdp(errors(20, 22), 1.0) == pytest.approx(binom.cdf(42, 200, ndtr(-0.5)), rel=1e-10)
    assert p_value_gdp(errors(50, 50), 0.0) == 1.0, "in Hoeffding's gap nothing is claimed"
    assert p_value_dp(errors(20, 22), 1.0, 0.01) == pytest.approx(binom.cdf(42, 200, 0.99 / (1 + math.e)), rel=1e-10)
    assert p_value_dp(errors(0, 0), math.inf, 0.0) == 1.0
    assert p_value_gdp(errors(0, 0), math.inf) == 1.0, "no finite evidence refutes an infinite mu"


SHARES = np.linspace(0, 0.99, 12)
GRID = [(n, fpr, fnr) for n in (1, 2, 3, 10, 60) for fpr in SHARES for fnr in SHARES]


def test_p_value_is_valid_at_every_level_for_every_pair_of_rates() -> None:
    """Exactly, without simulation: the two worlds' coins differ, so K is Poisson-binomial, not binomial."""
    for n, fpr, fnr in GRID:
        mass, p = poisson_binomial(n, fpr, fnr), min(0.5, (fpr + fnr) / 2)
        level = tail(np.arange(2 * n + 1), 2 * n, p)
        reached = np.array([mass[level <= a].sum() for a in level])
        assert np.all(reached <= level + 1e-9), (n, fpr, fnr)


@pytest.mark.parametrize("confidence", [0.2, 0.5, 0.75, 0.95, 0.99])
def test_pooled_upper_bound_covers_for_every_pair_of_rates(confidence: float) -> None:
    for n, fpr, fnr in GRID:
        upper = pooled(np.arange(2 * n + 1), n, 0, n, confidence)
        missed = poisson_binomial(n, fpr, fnr)[upper < (fpr + fnr) / 2 - 1e-12].sum()
        assert missed <= 1 - confidence + 1e-9, (n, fpr, fnr)


def test_hoeffdings_gap_is_real_and_the_maximum_closes_it() -> None:
    """Plain Clopper-Pearson of all errors is not valid at every level: Hoeffding is silent on n p - 1 < k < n p."""
    n, fpr, confidence = 10, 0.91, 0.41
    mass, k = poisson_binomial(n, fpr, 0.0), np.arange(2 * n + 1)
    plain = np.array([clopper_pearson_upper(int(i), 2 * n, 1 - confidence) for i in k])
    assert mass[plain < fpr / 2].sum() > 1 - confidence
    assert mass[pooled(k, n, 0, n, confidence) < fpr / 2].sum() <= 1 - confidence


@given(st.integers(1, 3000), st.floats(0, 1), st.sampled_from([0.75, 0.9, 0.95, 0.999]))
def test_the_maximum_costs_nothing_at_usual_confidences(n: int, share: float, confidence: float) -> None:
    k = int(share * n)
    plain = clopper_pearson_upper(k, 2 * n, 1 - confidence)
    if plain <= 0.5:
        assert float(pooled(k, n, 0, n, confidence)) == plain


# What is refused


def test_epsilon_of_mu_only_where_the_curve_is_gaussian() -> None:
    assert epsilon_from_mu(1.0, 1e-5, gaussian=True) == epsilon_of(1.0, 1e-5)
    assert epsilon_from_mu(1.0, 1e-5, gaussian=False) is None


@pytest.mark.parametrize("bound", [lambda e: mu_error_rate(e, 0.95), lambda e: epsilon_error_rate(e, 1e-5, 0.95)])
def test_the_error_rate_needs_equal_trials(bound) -> None:
    message = "Expected as many trials in each world, found negatives=100 and positives=90: use the rectangle."
    with pytest.raises(ValueError, match=message):
        bound(errors(1, 1, 100, 90))
    with pytest.raises(ValueError, match=message):
        p_value_gdp(errors(1, 1, 100, 90), 1.0)
    assert mu_rectangle(errors(1, 1, 100, 90), 0.95) > 0


def test_wrong_inputs_show_the_value() -> None:
    with pytest.raises(ValueError, match=re.escape("Expected 0 <= errors=101 <= trials=100 and trials >= 1.")):
        errors(101, 0)
    with pytest.raises(ValueError, match="trials=0"):
        Errors(false_positives=0, negatives=0, false_negatives=0, positives=1)
    with pytest.raises(ValueError, match=re.escape("Expected 0 < alpha=1 < 1.")):
        mu_rectangle(errors(1, 1), 0.0)
    with pytest.raises(ValueError, match=re.escape("Expected 0 <= delta=1 < 1.")):
        epsilon_rectangle(errors(1, 1), 1.0, 0.95)
    with pytest.raises(ValueError, match=re.escape("Expected mu=-1.0 >= 0.")):
        p_value_gdp(errors(1, 1), -1.0)
    with pytest.raises(ValueError, match=re.escape("Expected epsilon=-1.0 >= 0.")):
        p_value_dp(errors(1, 1), -1.0, 0.0)
