"""Bounds from the surest guesses against the same steps written trial by trial; and what is revealed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import betaincinv
from scipy.stats import binom

from vflpriv.audits.statistics.guesses import _PIECE, _revealed, epsilon_guesses
from vflpriv.audits.statistics.pilot import Pilot, pilot_size
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import host_generator

BINS = 128


def slowly(inside: Floats, outside: Floats, delta: float, confidence: float, seed: int, calibrated: bool) -> float:
    """The four steps of the proof, trial by trial."""
    count, alpha = min(len(inside), len(outside)), 1 - confidence
    aside = 0 if calibrated else pilot_size(count)
    trials = math.floor(2 * (count - aside) - 3 * math.sqrt(2 * (count - aside)))
    if trials < 1:
        return 0.0
    heads = host_generator(seed, "search", count).binomial(trials, 0.5)
    if heads > count - aside or trials - heads > count - aside:
        return 0.0
    pilot = Pilot(0.0, 1.0, 0.0) if calibrated else Pilot.of(inside[:aside], outside[:aside])
    scores = np.concatenate([inside[aside : aside + heads], outside[aside : aside + trials - heads]])
    evidence = (scores - pilot.centre) * pilot.slope
    right = (evidence >= 0) == (np.arange(trials) < heads)
    revealed, level = 0, alpha
    if delta > 0:
        level = 0.95 * alpha
        revealed = next(f for f in range(trials + 1) if binom.sf(f, trials, delta) <= 0.05 * alpha)
    strength = np.minimum(np.floor(np.abs(evidence) / np.abs(evidence).max() * BINS), BINS - 1)
    best, found = 0.0, 0.0
    for lowest in sorted(set(strength), reverse=True):
        chosen = strength >= lowest
        if chosen.sum() <= revealed:
            continue
        odds = (strength[chosen] + 0.5) * np.abs(evidence).max() / BINS
        expected = max((1 / (1 + np.exp(-odds))).sum() - revealed, 1e-3)
        promised = betaincinv(expected, max(chosen.sum() - revealed - expected, 0) + 1, level)
        if promised > best:
            told = right[chosen].sum() - revealed
            rate = betaincinv(told, (~right[chosen]).sum() + 1, level) if told > 0 else 0.5
            best, found = promised, math.log(rate / (1 - rate))
    return max(0.0, found)


@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize(("sizes", "delta"), [((700, 640), 0.0), ((530, 800), 0.003), ((301, 300), 0.06)])
@pytest.mark.parametrize(("mu", "confidence"), [(1.3, 0.95), (2.6, 0.7), (0.4, 0.999)])
def test_it_is_the_steps_of_the_proof(sizes, delta: float, mu: float, confidence: float, calibrated: bool) -> None:
    rng = np.random.default_rng(sum(sizes))
    inside, outside = rng.normal(mu * mu / 2, mu, sizes[0]), rng.normal(-mu * mu / 2, mu, sizes[1])
    if not calibrated:
        inside, outside = 7 - 0.3 * inside, 7 - 0.3 * outside
    for seed in range(4):
        expected = slowly(inside, outside, delta, confidence, seed, calibrated)
        said = {"calibrated": True} if calibrated else {}
        found = epsilon_guesses(inside, outside, delta, confidence, seed=seed, **said)
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("calibrated", [True, False])
def test_with_few_trials_it_is_the_same_steps(calibrated: bool) -> None:
    rng, seen = np.random.default_rng(0), set()
    for count, seed in itertools.product(range(14), range(12)):
        inside, outside = np.abs(rng.normal(3, 1, count)), -np.abs(rng.normal(3, 1, count + seed % 2))
        expected = slowly(inside, outside, 0.0, 0.2, seed, calibrated)
        assert epsilon_guesses(inside, outside, 0.0, 0.2, seed=seed, calibrated=calibrated) == pytest.approx(expected)
        seen.add(expected > 0)
    assert seen == {False, True}


@pytest.mark.parametrize("one_world", [400, 401, -400, -401])
def test_a_draw_of_coins_that_needs_more_trials_of_a_world_than_there_are_says_nothing(one_world: int) -> None:
    trials = math.floor(800 - 3 * math.sqrt(800))
    wanted = one_world if one_world > 0 else trials + one_world
    seed = next(s for s in itertools.count() if host_generator(s, "search", 400).binomial(trials, 0.5) == wanted)
    found = epsilon_guesses(np.full(400, 2.0), np.full(400, -2.0), 0.0, 0.95, seed=seed, calibrated=True)
    closed = -math.log(0.05 ** (-1 / trials) - 1)
    assert found == (pytest.approx(closed) if abs(one_world) == 400 else 0.0)


@pytest.mark.parametrize(
    ("trials", "delta", "alpha"), [(20, 0.9, 0.05), (700, 0.01, 0.001), (9, 0.0, 0.05), (5000, 1e-5, 0.3)]
)
def test_the_fewest_trials_that_hardly_ever_reveal_more(trials: int, delta: float, alpha: float) -> None:
    revealed, level = _revealed(trials, delta, alpha)
    if delta == 0:
        assert (revealed, level) == (0, alpha)
        return
    assert binom.sf(revealed, trials, delta) <= 0.05 * alpha
    assert revealed == 0 or binom.sf(revealed - 1, trials, delta) > 0.05 * alpha
    assert level == pytest.approx(0.95 * alpha)


def test_many_scores_are_binned_in_pieces() -> None:
    rng = np.random.default_rng(1)
    inside, outside = rng.normal(1, 1, 2 * _PIECE + 77), rng.normal(-1, 1, 2 * _PIECE + 77)
    expected = slowly(2 * inside, 2 * outside, 1e-4, 0.95, 5, True)
    assert epsilon_guesses(2 * inside, 2 * outside, 1e-4, 0.95, seed=5, calibrated=True) == pytest.approx(expected)


def test_scores_that_say_nothing_or_everything_bound_nothing() -> None:
    for inside, outside in ((np.zeros(90), np.zeros(90)), (np.full(90, math.inf), np.full(90, -math.inf))):
        assert epsilon_guesses(inside, outside, 0.0, 0.95, seed=0, calibrated=True) == 0.0
    # What delta explains is not held against epsilon: all guesses right, and every one of them revealed.
    assert epsilon_guesses(np.ones(90), -np.ones(90), 0.97, 0.95, seed=0, calibrated=True) == 0.0
