"""One-run bounds: known values, coverage in one simulated training, and the three ways to make them void.

Margin: NumPy draws the same from its seeds on every CPU, and `allowed` is three standard errors above the level.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, ndtr, ndtri

from tests.audits.statistics.mechanisms import allowed, gaussian, laplace, response
from vflpriv.audits.one_run import guess
from vflpriv.audits.statistics.one_run import (
    Guesses,
    epsilon_one_run,
    mu_one_run,
    p_value_one_run,
    p_value_one_run_gdp,
    refutes_gdp,
)
from vflpriv.core.budgets import epsilon_of
from vflpriv.core.canaries import Canaries

PUBLIC = {1000: (0.39, 0.43, 0.31), 10_000: (0.56, 0.56, 0.43)}


def guesses(m: int, r: int, v: int) -> Guesses:
    return Guesses(canaries=m, made=r, right=v)


@st.composite
def some(draw: st.DrawFn) -> Guesses:
    made = draw(st.integers(1, 400))
    return guesses(made + draw(st.integers(0, 2000)), made, draw(st.integers(0, made)))


# Known values


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "epsilon"),
    [
        (100, 100, 75, 0.0, 0.70221),
        (100, 100, 75, 1e-4, 0.69947),
        (1000, 100, 75, 1e-4, 0.67298),
        (100_000, 1510, 1439, 1e-5, 2.67585),
    ],
)
def test_epsilon_has_the_known_values(m: int, r: int, v: int, delta: float, epsilon: float) -> None:
    assert epsilon_one_run(guesses(m, r, v), delta, 0.95) == pytest.approx(epsilon, abs=1e-5)


def test_the_p_value_has_the_known_value() -> None:
    assert p_value_one_run(guesses(100, 100, 75), math.log(3), 0.0) == pytest.approx(0.55347, abs=1e-5)


@pytest.mark.parametrize("r", [5, 50, 1000])
def test_all_right_has_its_closed_form(r: int) -> None:
    found = epsilon_one_run(guesses(2 * r, r, r), 0.0, 0.95)
    assert found == pytest.approx(max(0.0, -math.log(0.05 ** (-1 / r) - 1)), abs=1e-8)


def slow(g: Guesses, mu: float, level: float) -> bool:
    """The recursion as it is written, all steps of it."""
    c, made, m = g.right, g.made, g.canaries
    r, h = level * c / m, level * (made - c) / m
    for i in range(c - 1, -1, -1):
        before = h
        h = max(h, float(ndtr(ndtri(min(r, 1.0)) - mu)))
        r += i / (made - i) * (h - before)
    return r + h > made / m


@given(some(), st.floats(0, 4), st.floats(0.001, 0.5))
def test_leaving_the_recursion_early_changes_nothing(g: Guesses, mu: float, level: float) -> None:
    assert refutes_gdp(g, mu, level) == slow(g, mu, level)


@given(some())
def test_bound_and_p_value_are_two_sides_of_one_test(g: Guesses) -> None:
    lower = mu_one_run(g, 0.95)
    if lower > 0:
        assert p_value_one_run_gdp(g, 0.999 * lower) <= 0.05 + 1e-6
    assert p_value_one_run_gdp(g, 1.001 * lower + 1e-4) >= 0.05 - 1e-6
    epsilon = epsilon_one_run(g, 1e-4, 0.95)
    assert p_value_one_run(g, epsilon + 1e-3, 1e-4) >= 0.05 - 1e-9


@given(some(), st.integers(1, 50))
def test_a_right_guess_more_never_lowers_a_bound_and_canaries_left_out_never_raise_it(g: Guesses, more: int) -> None:
    if g.right < g.made:
        better = guesses(g.canaries, g.made, g.right + 1)
        assert mu_one_run(better, 0.95) >= mu_one_run(g, 0.95) - 1e-5
        assert epsilon_one_run(better, 1e-5, 0.95) >= epsilon_one_run(g, 1e-5, 0.95) - 1e-9
    wider = guesses(g.canaries + more, g.made, g.right)
    assert epsilon_one_run(wider, 1e-4, 0.95) <= epsilon_one_run(g, 1e-4, 0.95) + 1e-9


def test_no_better_than_chance_gives_exactly_zero() -> None:
    for r, v in ((100, 50), (100, 0), (1, 1)):
        assert epsilon_one_run(guesses(200, r, v), 1e-5, 0.95) == 0.0
        assert mu_one_run(guesses(200, r, v), 0.95) == 0.0
    with pytest.raises(ValueError, match="right=3 <= made=2"):
        guesses(10, 2, 3)


# Coverage, and the public figures


def one_training(known, m: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """m canaries whose scores are independent given their coins."""
    worlds = rng.integers(0, 2, m)
    inside, outside = known.worlds(rng, m)
    return np.where(worlds == 0, inside, outside), worlds


@pytest.mark.parametrize(
    "known", [response(1.0), response(1.0, delta=0.002), laplace(1.5, ratios=True)], ids=lambda k: k.name
)
def test_epsilon_covers(known) -> None:
    rng, alarms = np.random.default_rng(1), 0
    for _ in range(1000):
        found, _ = guess(*one_training(known, 300, rng), made=60)
        alarms += epsilon_one_run(found, known.delta, 0.95) > known.epsilon
    assert alarms / 1000 <= allowed(1000)


@pytest.mark.parametrize("mu", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("made", [None, 40])
def test_mu_covers(mu: float, made: int | None) -> None:
    rng, alarms = np.random.default_rng(2), 0
    repetitions = 300 if made is None else 1000
    for _ in range(repetitions):
        found, _ = guess(*one_training(gaussian(mu, ratios=mu > 0), 300, rng), made=made)
        alarms += refutes_gdp(found, mu, 0.05)
    assert alarms / repetitions <= allowed(repetitions)


@pytest.mark.parametrize("m", [1000, 10_000])
def test_one_run_beats_the_public_figures(m: int) -> None:
    rng = np.random.default_rng(3)
    for mu, public in zip((1.0, 2.0, 4.0), PUBLIC[m], strict=True):
        runs = [guess(*one_training(gaussian(mu, ratios=True), m, rng))[0] for _ in range(10)]
        found = [epsilon_of(mu_one_run(g, 0.95), 1e-5) for g in runs]
        assert np.mean(found) / epsilon_of(mu, 1e-5) > public


# What makes it void


def test_caught_slack_for_the_guesses_only() -> None:
    """With r in the place of m, an adversary who only guesses where delta failed looks like a large epsilon."""
    m, r, known = 5000, 8, response(0.5, delta=4e-3)
    rng, alarms, broken = np.random.default_rng(4), 0, 0
    for _ in range(300):
        found, _ = guess(*one_training(known, m, rng), made=r)
        alarms += epsilon_one_run(found, known.delta, 0.95) > known.epsilon
        broken += epsilon_one_run(guesses(r, r, found.right), known.delta, 0.95) > known.epsilon
    assert alarms / 300 <= allowed(300)
    assert broken / 300 > 0.9


def test_caught_a_fixed_number_of_canaries_instead_of_coins() -> None:
    """Two canaries, exactly one of them in: two answers of eps each speak of the same bit."""
    epsilon, rng, repetitions = 1.0, np.random.default_rng(5), 4000
    q = float(expit(epsilon))
    confidence = 1 - (q * q + 1e-9)  # both guesses right is what refutes

    def alarms(first: np.ndarray, second: np.ndarray) -> float:
        said = [np.where(rng.random(repetitions) < q, w, 1 - w) for w in (first, second)]
        # Knowing the number, answers that agree leave one guess for both; answers that do not are settled by the first.
        fixed = bool((first + second == 1).all())
        other = 1 - said[0] if fixed else said[1]
        right = (said[0] == first).astype(int) + (other == second)
        found = [epsilon_one_run(guesses(2, 2, int(v)), 0.0, confidence) for v in range(3)]
        return float(np.mean(np.array(found)[right] > epsilon))

    coins = rng.integers(0, 2, (2, repetitions))
    assert alarms(*coins) <= allowed(repetitions, 1 - confidence)
    assert alarms(coins[0], 1 - coins[0]) > allowed(repetitions, 1 - confidence)


def test_caught_one_coin_in_two_units_and_refused_two_in_one() -> None:
    """A coin that decides two records is told twice: the budget it meets is twice the unit's."""
    rng, alarms = np.random.default_rng(6), 0
    known, twice = response(0.7), response(1.4)
    for _ in range(300):
        found, _ = guess(*one_training(twice, 300, rng), made=300)
        alarms += epsilon_one_run(found, 0.0, 0.95) > known.epsilon
    assert alarms / 300 > 0.9
    with pytest.raises(ValueError, match="one coin a privacy unit"):
        Canaries(records=(3, 3), labels=torch.zeros(2, 2), worlds=torch.zeros(1, 2))
