"""Bounds from scores: they cover, they come nearer to the truth than the best public tools, and mistakes are caught.

Margin: NumPy draws the same from its seeds on every CPU, and `allowed` is three standard errors above the level.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import betaincinv, logit

from tests.audits.statistics.mechanisms import KNOWN, Known, allowed, gaussian, laplace, response
from vflpriv.audits.statistics.bounds import (
    Errors,
    Floats,
    gaussian_refusal,
    mu_error_rate,
    mu_known_sigma,
    standardised,
)
from vflpriv.audits.statistics.guesses import epsilon_guesses
from vflpriv.audits.statistics.pilot import Pilot, pilot_size
from vflpriv.core.budgets import epsilon_of
from vflpriv.core.ledger import Event, Exposure, Reading, Sampling
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.laws import Gaussian, Laplace

REPETITIONS = 1000
ALLOWED = allowed(REPETITIONS)
DELTA = 1e-5
# Mean lower bound over true epsilon of the best public tool for mu = 1, 2, 4: any mechanism, and a Gaussian curve.
PUBLIC = {500: (0.26, 0.26, 0.17), 1000: (0.32, 0.31, 0.20), 10_000: (0.48, 0.43, 0.28), 100_000: (0.62, 0.53, 0.35)}
GDP = {
    500: (0.70, 0.81, 0.83),
    1000: (0.78, 0.87, 0.87),
    10_000: (0.92, 0.95, 0.96),
    100_000: (0.97, 0.98, 0.98),
}
CEILING = {500: (0.88, 0.94, 0.97), 1000: (0.92, 0.96, 0.98), 10_000: (0.97, 0.99, 0.99), 100_000: (0.99, 1.0, 1.0)}


def bound(known: Known, rng: np.random.Generator, trials: int, seed: int) -> float:
    inside, outside = known.worlds(rng, trials)
    return epsilon_guesses(inside, outside, known.delta, 0.95, seed=seed, calibrated=known.ratios)


@pytest.mark.parametrize("known", KNOWN, ids=lambda k: k.name)
def test_the_surest_guesses_cover(known: Known) -> None:
    rng = np.random.default_rng(1)
    found = np.array([bound(known, rng, 200, seed) for seed in range(REPETITIONS)])
    assert np.mean(found > known.epsilon + 1e-9) <= ALLOWED


def test_the_simulation_is_not_idle() -> None:
    """Randomised response meets the bound: its false alarms come near the level, and a bound a tenth larger is seen."""
    rng = np.random.default_rng(2)
    found = np.array([bound(response(1.0), rng, 1000, seed) for seed in range(REPETITIONS)])
    assert 0.02 < np.mean(found > 1.0) <= ALLOWED
    assert np.mean(1.1 * found > 1.0) > 2 * ALLOWED


def by_worlds(known: Known, rng: np.random.Generator, trials: int) -> float:
    """What must not be done: the number of guesses that gives the largest bound on the trials that are tested."""
    scores = np.concatenate(known.worlds(rng, trials)) * np.repeat([1.0, -1.0], trials)
    order = np.argsort(-np.abs(scores), kind="stable")
    right = np.cumsum(scores[order] > 0)
    made = np.arange(1, 2 * trials + 1)
    lower = betaincinv(np.maximum(right, 1), made - right + 1, 0.05)
    return float(logit(lower[right > 0].max()))


def test_caught_guesses_chosen_by_their_outcome() -> None:
    rng, known = np.random.default_rng(3), laplace(2.0, ratios=False)
    found = np.array([by_worlds(known, rng, 200) for _ in range(500)])
    assert np.mean(found > 2.0) > 2 * allowed(500)


def test_caught_an_ignored_delta() -> None:
    known, rng = response(1.0, delta=0.2), np.random.default_rng(4)
    draws = [known.worlds(rng, 400) for _ in range(300)]

    def alarms(delta: float) -> float:
        found = [epsilon_guesses(*d, delta, 0.95, seed=i, calibrated=True) for i, d in enumerate(draws)]
        return float(np.mean(np.array(found) > 1.0))

    assert alarms(0.0) > 0.5
    assert alarms(known.delta) <= allowed(300)


def test_caught_a_credible_interval_called_confidence() -> None:
    """With error rates near the corner of the region a Bayesian upper bound misses more often than it says."""
    n, rng = 200, np.random.default_rng(5)
    jeffreys = float(betaincinv(0.5, n + 0.5, 0.95))
    rate = 1.02 * jeffreys
    truth, wrong = -math.log(rate / (1 - rate)), rng.binomial(n, rate, 4000)
    credible = betaincinv(wrong + 0.5, n - wrong + 0.5, 0.95)
    exact = betaincinv(wrong + 1, n - wrong, 0.95)
    assert np.mean(-logit(credible) > truth) > 2 * allowed(4000)
    assert np.mean(-logit(exact) > truth) <= allowed(4000)


# Nearer to the truth than the best public tools


def ratio(known: Known, trials: int, repetitions: int) -> float:
    rng = np.random.default_rng(6)
    return float(np.mean([bound(known, rng, trials, s) for s in range(repetitions)])) / known.epsilon


@pytest.mark.parametrize("place", range(3), ids=["mu=1", "mu=2", "mu=4"])
@pytest.mark.parametrize(("trials", "repetitions"), [(500, 200), (1000, 200), (10_000, 30), (100_000, 4)])
def test_any_mechanism_beats_the_public_figures(trials: int, repetitions: int, place: int) -> None:
    mu = (1.0, 2.0, 4.0)[place]
    for ratios in (False, True):
        assert ratio(gaussian(mu, ratios=ratios), trials, repetitions) > PUBLIC[trials][place]


def gaussian_scores(mu: float, trials: int, repetitions: int) -> list[tuple[Floats, Floats]]:
    rng = np.random.default_rng(7)
    return [gaussian(mu).worlds(rng, trials) for _ in range(repetitions)]


@pytest.mark.parametrize("place", range(3), ids=["mu=1", "mu=2", "mu=4"])
@pytest.mark.parametrize(("trials", "repetitions"), [(500, 300), (1000, 300), (10_000, 40), (100_000, 4)])
def test_gaussian_bounds_reach_their_figures(trials: int, repetitions: int, place: int) -> None:
    mu = (1.0, 2.0, 4.0)[place]
    truth = epsilon_of(mu, DELTA)
    counted, known = [], []
    for inside, outside in gaussian_scores(mu, trials, repetitions):
        wrong = int((outside > 0).sum()), int((inside <= 0).sum())
        errors = Errors(false_positives=wrong[0], negatives=trials, false_negatives=wrong[1], positives=trials)
        counted.append(epsilon_of(mu_error_rate(errors, 0.95), DELTA))
        known.append(epsilon_of(mu_known_sigma(inside, outside, 0.95), DELTA))
    assert np.mean(counted) / truth >= GDP[trials][place]
    assert np.mean(known) / truth >= CEILING[trials][place] - 0.03


@pytest.mark.parametrize("mu", [0.0, 0.5, 2.0])
def test_known_noise_covers_and_is_not_idle(mu: float) -> None:
    found = np.array([mu_known_sigma(*pair, 0.95) for pair in gaussian_scores(mu, 100, 2000)])
    assert 0.03 < np.mean(found > mu) <= allowed(2000)


def test_scores_of_varying_strength_are_refused() -> None:
    ratios = np.array([1.0, -2.0, 3.0])
    same = standardised(ratios, np.full(3, 4.0))
    assert same is not None
    np.testing.assert_allclose(same, ratios / 2)
    assert standardised(ratios, np.array([4.0, 4.0, 4.1])) is None
    assert standardised(ratios, np.zeros(3)) is None


# Corners


def test_few_or_useless_trials_bound_nothing() -> None:
    zeros, ones = np.zeros(500), np.ones(500)
    assert epsilon_guesses(zeros, zeros, 0.0, 0.95, seed=0) == 0.0
    assert epsilon_guesses(ones[:1], -ones[:1], 0.0, 0.95, seed=0, calibrated=True) == 0.0
    assert epsilon_guesses(ones[:3], -ones[:3], 0.0, 0.95, seed=0) == 0.0
    assert epsilon_guesses(-ones, ones, 0.0, 0.95, seed=0, calibrated=True) == 0.0, "never abs()"
    assert epsilon_guesses(ones, -ones, 0.0, 0.95, seed=0, calibrated=True) > 4


def test_the_same_seed_gives_the_same_bound() -> None:
    pair = gaussian_scores(2.0, 300, 1)[0]
    first = epsilon_guesses(*pair, DELTA, 0.95, seed=3)
    assert first == epsilon_guesses(*pair, DELTA, 0.95, seed=3)
    others = {epsilon_guesses(*pair, DELTA, 0.95, seed=s) for s in range(8)}
    assert len(others) > 1, "the coins follow the seed"


def test_a_pilot_plans_and_reads_scores() -> None:
    inside, outside = gaussian_scores(2.0, 4000, 1)[0]
    pilot = Pilot.of(3 * inside + 5, 3 * outside + 5)
    assert (pilot.centre, pilot.gap) == pytest.approx((5.0, 2.0), abs=0.15)
    np.testing.assert_allclose(pilot.evidence(3 * inside + 5), 2 * inside, rtol=0.1, atol=0.2)
    assert pilot.guesses(100, lambda made, right: made - 3.0 * (made - right)) < 100, "not the unsure ones"
    assert pilot.guesses(100, lambda made, right: 0.0) == 10, "nothing is promised"
    assert [pilot_size(n) for n in (3, 40, 1000, 10**6)] == [0, 10, 75, 500]


# A Gaussian epsilon is refused where the ledger says the curve is not Gaussian


@pytest.mark.parametrize(
    ("events", "unprotected", "reason"),
    [
        ((Event(kind="x", noise=Gaussian(1.0), sensitivity=1.0, count=3),), (), None),
        ((Event(kind="x", noise=Laplace(1.0), sensitivity=1.0, count=3),), (), "x has Laplace(scale=1)"),
        (
            (Event(kind="x", noise=Gaussian(1.0), sensitivity=1.0, count=3, sampling=Sampling("poisson", 0.1)),),
            (),
            "batches of x are sampled in secret",
        ),
        ((), ("y carries no noise",), "y carries no noise"),
    ],
)
def test_the_reason_is_said(events: tuple[Event, ...], unprotected: tuple[str, ...], reason: str | None) -> None:
    exposure = Exposure(
        unit=Unit.LABEL,
        adversary=Adversary.parse("device(0)"),
        reading=Reading.RIGOROUS,
        batches="known",
        events=events,
        unprotected=unprotected,
    )
    found = gaussian_refusal(exposure)
    assert found == (None if reason is None else f"the trade-off curve is not Gaussian: {reason}")
    assert (found is None) == exposure.gaussian
    assert gaussian_refusal(exposure, leaks=True) is not None
