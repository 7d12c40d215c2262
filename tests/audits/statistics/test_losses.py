"""Bounds from draws of the loss: how often they hold, and that the simulation which says so sees wrong losses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vflpriv.audits.statistics.losses import (
    epsilon_of_losses,
    missed,
    mu_of_losses,
    p_value_losses,
    p_value_reached,
)
from vflpriv.common.numerics import Floats
from vflpriv.core.budgets import delta_of, epsilon_of

DELTA, DRAWS, REPETITIONS, ROUNDS = 1e-2, 300, 400, 4
STATES = (0.6, 0.2)
"""How far apart the worlds are after an answer that is not positive, and after one that is."""


def draws(
    generator: np.random.Generator, count: int, *, told: float = 1.0, correlation: float = 0.0
) -> tuple[Floats, Floats]:
    """Losses of trainings in which each distance follows the answer before it, and the same as they are computed.

    Noise of std 1 is told to be of std `told`; noise that is like that of the round before is told to be fresh.
    """
    losses, before, noise = np.zeros(count), np.zeros(count), np.zeros(count)
    for number in range(ROUNDS):
        fresh = generator.standard_normal(count)
        noise = correlation * noise + math.sqrt(1 - correlation**2) * fresh if number else fresh
        gap = np.where(before > 0, STATES[1], STATES[0])
        # World 0 answers its noise alone, world 1 adds the gap.
        losses += (gap**2 / 2 - gap * noise) / told**2
        before = noise
    return losses, before


def delta_of_losses(losses: Floats, epsilon: float) -> float:
    return float(np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - losses))).mean())


def true_epsilon() -> float:
    losses, _ = draws(np.random.default_rng(1), 1_000_000)
    low, high = 0.0, 10.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of_losses(losses, middle) > DELTA else (low, middle)
    return low


def share_above(truth: float, **broken: float) -> float:
    """How often a 95 % bound lies above the truth."""
    generator = np.random.default_rng(0)
    bounds = [epsilon_of_losses(draws(generator, DRAWS, **broken)[0], DELTA, 0.95) for _ in range(REPETITIONS)]
    return float(np.mean(np.array(bounds) > truth))


def test_bounds_hold_in_95_of_100_cases_where_distances_follow_what_was_sent() -> None:
    """Margin: a bound by bets is above the truth in less than 1 % of the cases here; 5 % are allowed."""
    assert share_above(true_epsilon()) <= 0.05


@pytest.mark.parametrize("broken", [{"told": 0.5}, {"correlation": 0.9}], ids=["wrong std", "correlated noise"])
def test_the_simulation_sees_losses_that_are_wrong(broken: dict[str, float]) -> None:
    """Margin: nearly all bounds from losses that are computed wrongly lie above the truth."""
    assert share_above(true_epsilon(), **broken) > 0.3


def test_draws_of_one_gaussian_release_come_near_its_epsilon_and_mu() -> None:
    """Margin: of 20,000 draws the bounds reach 0.91 to 0.97 of the truth; 0.8 is asked for."""
    mu = 1.0
    losses = mu**2 / 2 + mu * np.random.default_rng(2).standard_normal(20_000)
    assert 0.8 * epsilon_of(mu, DELTA) < epsilon_of_losses(losses, DELTA, 0.95) < epsilon_of(mu, DELTA)
    assert 0.8 * mu < mu_of_losses(losses, 0.95) < mu


def test_worlds_that_do_not_differ_have_no_loss() -> None:
    losses = np.zeros(100)
    assert epsilon_of_losses(losses, DELTA, 0.95) == 0.0
    assert mu_of_losses(losses, 0.95) == 0.0
    assert p_value_losses(losses, 0.0, DELTA) == 1.0


def test_the_bound_is_where_the_p_value_is_the_level() -> None:
    losses = np.random.default_rng(3).normal(2.0, 2.0, 500)
    bound = epsilon_of_losses(losses, DELTA, 0.95)
    assert 0 < bound < losses.max()
    assert p_value_losses(losses, bound * (1 - 1e-6), DELTA) <= 0.05 < p_value_losses(losses, bound * (1 + 1e-6), DELTA)


@pytest.mark.parametrize(("mu", "share"), [(3.0, 0.1), (6.0, 0.02), (20.0, 0.3)])
def test_a_figure_that_most_transcripts_reach_rarely_refutes_what_holds(mu: float, share: float) -> None:
    """Where a share of transcripts tells nothing the pair has just δ = (1 - η) δ_μ(ε), and all of n reach μ seldom."""
    for count in (10, 30):
        for epsilon in (0.0, 1.0):
            holds = (1 - share) * delta_of(mu, epsilon)
            # Whatever the level, it is refuted with no more than this probability: that all transcripts reach it.
            assert p_value_reached(mu, count, epsilon, holds) >= (1 - share) ** count
            assert p_value_reached(mu, count, epsilon, holds / 2) < p_value_reached(mu, count, epsilon, holds)


def test_none_of_many_draws_is_of_a_share_that_is_large() -> None:
    for count, confidence in ((30, 0.95), (100, 0.999)):
        assert (1 - missed(count, confidence)) ** count == pytest.approx(1 - confidence)
