"""A test that is looked at while it runs: valid at every look, and quick to refute what is wrong.

Margin: NumPy draws the same from its seeds on every CPU, and `allowed` is three standard errors above the level.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from tests.audits.statistics.mechanisms import allowed
from vflpriv.audits.statistics.bounds import Errors, p_value_gdp
from vflpriv.audits.statistics.sequential import Looks, look_times
from vflpriv.audits.statistics.significance import holm_adjusted

TIMES = look_times(400)
REPETITIONS = 1000


def pairs(rates: tuple[float, float], rng: np.random.Generator, count: int = 400) -> np.ndarray:
    return rng.binomial(1, rates[0], count) + rng.binomial(1, rates[1], count)


def gaussian(mu: float, threshold: float = 0.0) -> tuple[float, float]:
    return float(ndtr(-threshold - mu / 2)), float(ndtr(threshold - mu / 2))


@pytest.mark.parametrize("mu", [0.0, 0.4, 1.0, 2.5])
@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_it_covers_at_all_looks_together(mu: float, threshold: float) -> None:
    rng = np.random.default_rng(1)
    looks = [Looks(pairs(gaussian(mu, threshold), rng), TIMES) for _ in range(REPETITIONS)]
    assert np.mean([look.p_value_gdp(mu) <= 0.05 for look in looks]) <= allowed(REPETITIONS)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
def test_it_covers_for_any_mechanism(epsilon: float) -> None:
    delta = 0.05
    rate, rng = (1 - delta) / (1 + np.exp(epsilon)), np.random.default_rng(2)
    looks = [Looks(pairs((rate, rate), rng), TIMES) for _ in range(REPETITIONS)]
    assert np.mean([look.p_value_dp(epsilon, delta) <= 0.05 for look in looks]) <= allowed(REPETITIONS)
    lower = [look.epsilon_lower(delta, 0.95) for look in looks[:100]]
    assert np.mean(np.array(lower) > epsilon) <= allowed(100)


def test_caught_a_fixed_size_test_looked_at_many_times() -> None:
    rng, alarms = np.random.default_rng(3), 0
    for _ in range(REPETITIONS):
        wrong = np.cumsum(pairs(gaussian(1.0), rng))
        alarms += any(_plain(int(wrong[t - 1]), t) <= 0.05 for t in TIMES)
    assert alarms / REPETITIONS > 2 * allowed(REPETITIONS)


def _plain(wrong: int, trials: int) -> float:
    """The p-value of a test whose number of trials was fixed in advance."""
    half = min(wrong, trials)
    errors = Errors(false_positives=half, negatives=trials, false_negatives=wrong - half, positives=trials)
    return p_value_gdp(errors, 1.0)


def test_a_wrong_claim_is_refuted_early_and_a_right_one_is_not() -> None:
    rng = np.random.default_rng(4)
    stops = []
    for _ in range(200):
        wrong = pairs(gaussian(1.8), rng)
        stops.append(
            next((t for t in TIMES if Looks(wrong, [u for u in TIMES if u <= t]).p_value_gdp(0.4) < 0.01), None)
        )
    assert all(stop is not None for stop in stops)
    assert np.mean(stops) < 100, "a quarter of what was planned"


def test_bound_and_p_value_are_two_sides_of_one_test() -> None:
    rng = np.random.default_rng(5)
    for mu in (0.5, 1.5):
        looks = Looks(pairs(gaussian(mu), rng), TIMES)
        lower = looks.mu_lower(0.95)
        assert looks.p_value_gdp(lower * 0.999) <= 0.05 < looks.p_value_gdp(lower * 1.001 + 1e-5)
        assert 0.6 * mu < lower < 1.2 * mu


def test_the_capital_rises_with_the_claimed_rate_and_falls_with_errors() -> None:
    rng = np.random.default_rng(6)
    wrong = pairs((0.3, 0.2), rng)
    found = [Looks(wrong, TIMES).p_value(rate) for rate in np.linspace(0.01, 0.5, 30)]
    assert all(a >= b for a, b in pairwise(found))
    more = wrong.copy()
    more[5] = 2
    assert (Looks(more, TIMES).capital(0.4) <= Looks(wrong, TIMES).capital(0.4)).all()


def test_no_leak_gives_exactly_zero() -> None:
    looks = Looks(np.ones(100, dtype=np.int64), [50, 100])
    assert (looks.mu_lower(0.95), looks.epsilon_lower(0.0, 0.95), looks.p_value_gdp(0.0)) == (0.0, 0.0, 1.0)


def test_holm_over_sequential_p_values_keeps_the_family_wise_error() -> None:
    rng, wrong = np.random.default_rng(7), 0
    claims = (0.4, 1.0, 2.0)
    for _ in range(500):
        p = [Looks(pairs(gaussian(mu), rng), TIMES).p_value_gdp(mu) for mu in claims]
        p.append(Looks(pairs(gaussian(2.0), rng), TIMES).p_value_gdp(0.5))
        rejected = [adjusted <= 0.05 for adjusted in holm_adjusted(p)]
        wrong += any(rejected[:3])
        assert rejected[3], "what is violated is found"
    assert wrong / 500 <= allowed(500)


def capital(wrong: np.ndarray, rate: float) -> float:
    """What each stake makes of a capital of 1, pair by pair, on average."""
    stakes = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.6, 0.95)
    return sum(math.prod(1 + k * (2 * rate - e) / (2 * (1 - rate)) for e in wrong.tolist()) for k in stakes) / 8


@pytest.mark.parametrize(
    ("rates", "times"), [((0.3, 0.1), (1, 2, 30, 77)), ((0.0, 0.02), (3, 60)), ((0.9, 0.1), (77,))]
)
def test_the_capital_is_that_of_bets_pair_by_pair(rates: tuple[float, float], times: tuple[int, ...]) -> None:
    wrong = pairs(rates, np.random.default_rng(8), 80)
    looks = Looks(wrong, times)
    for rate in (0.05, 0.31, 0.5):
        won = [capital(wrong[:end], rate) for end in times]
        assert np.exp(looks.capital(rate)) == pytest.approx(won)
        assert looks.p_value(rate) == pytest.approx(min(1.0, 1 / max(won)))
    assert looks.p_value_gdp(0.9) == pytest.approx(looks.p_value(float(ndtr(-0.45))))
    assert looks.p_value_dp(0.9, 0.1) == pytest.approx(looks.p_value(0.9 / (1 + math.exp(0.9))))


@pytest.mark.parametrize("wrong", [0, 1, 9])
def test_the_bounds_are_those_of_the_largest_rate_that_is_not_refuted(wrong: int) -> None:
    errors = np.zeros(3000, dtype=np.int64)
    errors[5 : 5 + wrong] = 2
    looks = Looks(errors, (100, 3000))
    rate = brentq(lambda rate: looks.p_value(rate) - 0.2, 1e-9, 0.5, xtol=1e-15)
    assert looks.rate_upper(0.8) == pytest.approx(rate, rel=2e-7)
    assert looks.mu_lower(0.8) == pytest.approx(-2 * ndtri(rate))
    assert looks.epsilon_lower(0.3, 0.8) == pytest.approx(math.log(0.7 / rate - 1))


def test_more_than_half_wrong_bound_nothing() -> None:
    half = Looks(np.ones(100, dtype=np.int64), [50, 100])
    assert half.rate_upper(0.95) == 0.5
    assert [math.copysign(1, half.epsilon_lower(delta, 0.95)) for delta in (0.0, 0.4)] == [1, 1]
    assert half.epsilon_lower(0.4, 0.95) == 0.0


def test_looks_are_a_quarter_apart() -> None:
    assert look_times(100) == (32, 40, 50, 62, 78, 98, 100)
    assert look_times(50) == (32, 40, 50), "the end is looked at once"
    assert look_times(21, first=10) == (10, 12, 16, 20, 21)


@pytest.mark.parametrize("times", [[0, 5], [5, 5], [6, 5], [-1]])
def test_looks_that_do_not_rise_from_one_are_refused(times: list[int]) -> None:
    with pytest.raises(ValueError, match="Expected rising looks"):
        Looks(np.zeros(10, dtype=np.int64), times)


def test_looks_outside_the_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="within 10 pairs"):
        Looks(np.zeros(10, dtype=np.int64), [11])
    with pytest.raises(ValueError, match="within 10 pairs"):
        Looks(np.zeros(10, dtype=np.int64), [])
    assert look_times(20) == (20,)
