"""One-run bounds against sums of binomial probabilities, and against the recursion at the level that they name."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom

from tests.audits.statistics.test_one_run import guesses, slow
from vflpriv.audits.statistics.one_run import (
    Guesses,
    epsilon_one_run,
    mu_one_run,
    p_value_one_run,
    p_value_one_run_gdp,
    refutes_gdp,
)


def summed(g: Guesses, epsilon: float, delta: float) -> float:
    """Theorem 5.2, with its maximum over all i."""
    q, v = 1 / (1 + math.exp(-epsilon)), g.right
    if v == 0:
        return 1.0
    i = np.arange(1, v + 1)
    worst = ((binom.cdf(v - 1, g.made, q) - binom.cdf(v - i - 1, g.made, q)) / i).max()
    return min(1.0, binom.sf(v - 1, g.made, q) + 2 * g.canaries * delta * worst)


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.01, 0.4])
@pytest.mark.parametrize(
    ("m", "r", "v"), [(9, 7, 0), (9, 7, 1), (9, 7, 2), (9, 7, 7), (300, 41, 30), (30_000, 20_000, 10_300)]
)
def test_the_p_value_is_the_sum_and_the_maximum_of_the_theorem(m: int, r: int, v: int, delta: float) -> None:
    g = guesses(m, r, v)
    for epsilon in (0.0, 0.09, 1.3):
        assert p_value_one_run(g, epsilon, delta) == pytest.approx(summed(g, epsilon, delta), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("m", "r", "v", "delta"), [(90, 70, 48, 1e-4), (90, 70, 66, 0.0), (5000, 400, 390, 1e-5)])
@pytest.mark.parametrize("confidence", [0.95, 0.6])
def test_epsilon_is_where_the_p_value_is_the_level(m: int, r: int, v: int, delta: float, confidence: float) -> None:
    g = guesses(m, r, v)
    expected = brentq(lambda epsilon: summed(g, epsilon, delta) - (1 - confidence), 0, 20, xtol=1e-12)
    assert epsilon_one_run(g, delta, confidence) == pytest.approx(expected, abs=1e-8)
    assert expit(expected) < v / r


@pytest.mark.parametrize(("m", "r", "v"), [(90, 70, 46), (90, 70, 70), (5000, 3000, 1560), (2, 2, 2), (1, 1, 1)])
@pytest.mark.parametrize("confidence", [0.95, 0.4])
def test_mu_is_the_largest_that_the_recursion_refutes(m: int, r: int, v: int, confidence: float) -> None:
    g, level = guesses(m, r, v), 1 - confidence
    found = mu_one_run(g, confidence)
    if found == 0:
        assert not slow(g, 0.0, level)
    else:
        assert slow(g, found, level)
        assert not slow(g, found * (1 + 1.5e-6), level)


@pytest.mark.parametrize(("m", "r", "v", "mu"), [(90, 70, 46, 0.3), (90, 70, 69, 1.1), (7, 3, 2, 0.2), (1, 1, 1, 0.7)])
def test_the_p_value_of_mu_is_the_smallest_level_that_refutes_it(m: int, r: int, v: int, mu: float) -> None:
    g = guesses(m, r, v)
    p = p_value_one_run_gdp(g, mu)
    assert 0 < p < 1
    assert slow(g, mu, p)
    assert not slow(g, mu, p * (1 - 1.5e-6))
    assert refutes_gdp(g, mu, p)


def test_evidence_without_end_and_without_any() -> None:
    assert p_value_one_run_gdp(guesses(4000, 4000, 4000), 0.1) == pytest.approx(math.exp(-300), rel=1e-5)
    assert p_value_one_run_gdp(guesses(10, 5, 0), 0.1) == 1.0
    assert p_value_one_run_gdp(guesses(100, 50, 10), 2.0) == 1.0
    assert (mu_one_run(guesses(10, 5, 0), 0.95), epsilon_one_run(guesses(10, 5, 0), 1e-5, 0.95)) == (0.0, 0.0)
    assert mu_one_run(guesses(1, 1, 1), 0.1) > 0, "a single right guess refutes at a level of nine in ten"


@pytest.mark.parametrize(("m", "r", "v"), [(0, 0, 0), (3, 4, 1), (4, 3, 4), (4, 3, -1)])
def test_numbers_that_cannot_be_are_refused(m: int, r: int, v: int) -> None:
    with pytest.raises(ValueError, match="Expected 0 <= right"):
        guesses(m, r, v)
    assert guesses(1, 0, 0).canaries == 1
