"""Coverage by simulation with a known truth: a 95 % bound exceeds it in at most 5 % of repetitions.

The same harness must catch well-known mistakes: each broken variant raises far more false alarms.

Margin: NumPy draws the same from its seeds on every CPU, and the bounds are in closed form: the counts never differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from tests.audits.statistics.mechanisms import allowed
from tests.audits.statistics.mechanisms import subsampled as subsampled_scores
from vflpriv.audits.statistics.bounds import (
    Errors,
    epsilon_error_rate,
    epsilon_from_mu,
    epsilon_of_rates,
    epsilon_rectangle,
    mu_error_rate,
    mu_of_rates,
    mu_rectangle,
    pooled,
    rate_upper,
    rectangle,
    tail,
)
from vflpriv.audits.statistics.significance import holm_adjusted
from vflpriv.common.numerics import Floats
from vflpriv.core.budgets import epsilon_of

Counts = tuple[Floats, int, Floats, int]
REPETITIONS = 4000
CONFIDENCE = 0.95


ALLOWED = allowed(REPETITIONS)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """A fixed test of a mechanism of which everything is known."""

    name: str
    fpr: float
    fnr: float
    mu: float
    epsilon: float
    delta: float


def gaussian(mu: float, *, threshold: float = 0.0, delta: float = 1e-5) -> Rates:
    """N(mu/2, 1) in world 0 and N(-mu/2, 1) in world 1; "in" above the threshold."""
    fpr, fnr = float(ndtr(-threshold - mu / 2)), float(ndtr(threshold - mu / 2))
    name = f"gaussian mu={mu} threshold={threshold}"
    return Rates(name=name, fpr=fpr, fnr=fnr, mu=mu, epsilon=epsilon_of(mu, delta), delta=delta)


def laplace(epsilon: float, *, threshold: float = 0.5, delta: float = 0.0) -> Rates:
    """Sensitivity 1, scale 1/epsilon, world 0 at 1 and world 1 at 0; its curve's largest mu is at the middle."""

    def above(distance: float) -> float:
        tail = math.exp(-epsilon * abs(distance)) / 2
        return tail if distance >= 0 else 1 - tail

    mu = -2 * float(ndtri(math.exp(-epsilon / 2) / 2))
    at_delta = max(0.0, epsilon + 2 * math.log1p(-delta))  # delta(e) = 1 - exp((e - epsilon) / 2)
    name = f"laplace epsilon={epsilon} threshold={threshold} delta={delta}"
    return Rates(name=name, fpr=above(threshold), fnr=1 - above(threshold - 1), mu=mu, epsilon=at_delta, delta=delta)


def response(epsilon: float, *, delta: float = 0.0) -> Rates:
    """Randomised response that tells the truth outright with probability delta: every bound is met with equality."""
    rate = (1 - delta) / (1 + math.exp(epsilon))
    name = f"response epsilon={epsilon} delta={delta}"
    mu = math.inf if delta else -2 * float(ndtri(rate))
    return Rates(name=name, fpr=rate, fnr=rate, mu=mu, epsilon=epsilon, delta=delta)


def subsampled(rate: float, shift: float, threshold: float) -> Rates:
    """The subsampled Gaussian mechanism; far out in the tail its curve meets that of the one that is not subsampled."""
    known = subsampled_scores(rate, shift)
    fnr = (1 - rate) * float(ndtr(threshold)) + rate * float(ndtr(threshold - shift))
    name, fpr = f"{known.name} threshold={threshold}", float(ndtr(-threshold))
    return Rates(name=name, fpr=fpr, fnr=fnr, mu=shift, epsilon=known.epsilon, delta=known.delta)


MECHANISMS = [
    *(gaussian(mu, threshold=t) for mu in (0.0, 0.4, 1.0, 2.0) for t in (0.0, 0.7, -1.5)),
    *(laplace(epsilon, threshold=t) for epsilon in (0.0, 0.5, 2.0) for t in (0.5, 1.2)),
    laplace(2.0, delta=0.05),
    *(subsampled(0.2, 2.0, t) for t in (1.0, 2.5)),
    *(response(epsilon, delta=delta) for epsilon in (0.0, 1.0, 3.0) for delta in (0.0, 0.1)),
]


def draw(rates: Rates, n: int, seed: int = 0, positives: int | None = None) -> Counts:
    """False positives and false negatives of many independent audits with n trials a world."""
    rng = np.random.default_rng([seed, n, *rates.name.encode()])
    wrong = rng.binomial(n, rates.fpr, REPETITIONS), rng.binomial(positives or n, rates.fnr, REPETITIONS)
    return wrong[0].astype(float), n, wrong[1].astype(float), positives or n


def alarms(bounds: Floats, truth: float) -> float:
    """How often the bound exceeds the truth."""
    return float(np.mean(bounds > truth + 1e-9))


def mu_corner(counts: Counts) -> Floats:
    return mu_of_rates(*rectangle(*counts, CONFIDENCE))


def mu_pooled(counts: Counts) -> Floats:
    rate = pooled(*counts, CONFIDENCE)
    return mu_of_rates(rate, rate)


def epsilon_corner(counts: Counts, delta: float) -> Floats:
    return epsilon_of_rates(*rectangle(*counts, CONFIDENCE), delta)


def epsilon_pooled(counts: Counts, delta: float) -> Floats:
    rate = pooled(*counts, CONFIDENCE)
    return epsilon_of_rates(rate, rate, delta)


# The bounds cover


@pytest.mark.parametrize("n", [20, 100, 1000])
@pytest.mark.parametrize("rates", MECHANISMS, ids=lambda r: r.name)
def test_every_bound_covers(rates: Rates, n: int) -> None:
    counts = draw(rates, n)
    assert alarms(mu_corner(counts), rates.mu) <= ALLOWED
    assert alarms(mu_pooled(counts), rates.mu) <= ALLOWED
    assert alarms(epsilon_corner(counts, rates.delta), rates.epsilon) <= ALLOWED
    assert alarms(epsilon_pooled(counts, rates.delta), rates.epsilon) <= ALLOWED


def test_the_rectangle_covers_with_unequal_trials() -> None:
    for rates in MECHANISMS:
        counts = draw(rates, 300, positives=40)
        assert alarms(mu_corner(counts), rates.mu) <= ALLOWED
        assert alarms(epsilon_corner(counts, rates.delta), rates.epsilon) <= ALLOWED


def test_the_simulation_is_not_idle() -> None:
    """Where a bound is met with equality its false alarms come near 5 %: one that is too high would be seen."""
    assert alarms(mu_pooled(draw(gaussian(1.0), 1000)), 1.0) > 0.03
    assert alarms(epsilon_pooled(draw(response(1.0, delta=0.1), 1000), 0.1), 1.0) > 0.03
    assert alarms(mu_pooled(draw(gaussian(1.0), 1000)), 0.95) > ALLOWED
    assert alarms(epsilon_corner(draw(response(1.0), 1000), 0.0), 0.8) > ALLOWED


def test_the_simulated_code_is_the_public_code() -> None:
    fp, n, fn, _ = draw(gaussian(1.0), 50)
    for i in range(20):
        errors = Errors(false_positives=int(fp[i]), negatives=n, false_negatives=int(fn[i]), positives=n)
        one = fp[i : i + 1], n, fn[i : i + 1], n
        assert mu_rectangle(errors, CONFIDENCE) == mu_corner(one)[0]
        assert mu_error_rate(errors, CONFIDENCE) == mu_pooled(one)[0]
        assert epsilon_rectangle(errors, 1e-5, CONFIDENCE) == epsilon_corner(one, 1e-5)[0]
        assert epsilon_error_rate(errors, 1e-5, CONFIDENCE) == epsilon_pooled(one, 1e-5)[0]


def test_epsilon_of_a_measured_mu_covers_where_the_curve_is_gaussian() -> None:
    for mu in (0.4, 1.0, 2.0):
        found = np.unique(mu_pooled(draw(gaussian(mu), 500)), return_counts=True)
        epsilons = np.array([epsilon_from_mu(float(m), 1e-5, gaussian=True) for m in found[0]], dtype=float)
        assert float(np.sum(found[1][epsilons > epsilon_of(mu, 1e-5)])) / REPETITIONS <= ALLOWED


# The mistakes are caught


def every_threshold(inside: Floats, outside: Floats) -> Counts:
    """The errors at each observed score taken as the threshold: (repetitions, thresholds)."""
    n = inside.shape[1]
    order = np.argsort(-np.concatenate([inside, outside], axis=1), axis=1)
    return np.cumsum(order >= n, axis=1).astype(float), n, n - np.cumsum(order < n, axis=1).astype(float), n


def best(bound: Callable[[Counts], Floats], counts: Counts) -> Floats:
    """The largest bound over all thresholds, looked up by the possible counts instead of computed for each."""
    fp, n, fn, _ = counts
    if bound is mu_pooled:
        return bound(((fp + fn).min(axis=1), n, np.zeros(1), n))
    table = bound((np.arange(n + 1.0)[:, None], n, np.arange(n + 1.0)[None, :], n))
    return np.asarray(table[fp.astype(int), fn.astype(int)].max(axis=1))


@pytest.mark.parametrize(("bound", "truth"), [(mu_pooled, 0.0), (mu_pooled, 1.0), (mu_corner, 2.0)])
def test_caught_the_best_threshold_on_the_same_trials(bound: Callable[[Counts], Floats], truth: float) -> None:
    rng = np.random.default_rng(1)
    inside, outside = rng.normal(truth / 2, 1, (2000, 1000)), rng.normal(-truth / 2, 1, (2000, 1000))
    fixed = (outside > 0).sum(1).astype(float), 1000, (inside <= 0).sum(1).astype(float), 1000
    assert alarms(bound(fixed), truth) <= allowed(2000), "one threshold, fixed in advance"
    assert alarms(best(bound, every_threshold(inside, outside)), truth) > allowed(2000)


def test_caught_the_best_threshold_on_a_laplace_mechanism() -> None:
    """Every threshold beyond the two centres meets e^eps with equality, so the best of them is a maximum of noise."""
    rng = np.random.default_rng(2)
    inside, outside = rng.laplace(1, 0.5, (2000, 1000)), rng.laplace(0, 0.5, (2000, 1000))
    assert alarms(best(lambda c: epsilon_corner(c, 0.0), every_threshold(inside, outside)), 2.0) > allowed(2000)


def test_caught_abs_instead_of_a_clamp() -> None:
    counts = draw(gaussian(0.0), 100)
    fpr, fnr = rectangle(*counts, CONFIDENCE)
    broken = np.abs(-ndtri(fpr) - ndtri(fnr))
    assert alarms(broken, 0.0) > 0.9
    assert alarms(np.abs(-2 * ndtri(pooled(*counts, CONFIDENCE))), 0.0) > 0.9
    assert alarms(mu_corner(counts), 0.0) <= ALLOWED


def test_caught_a_gaussian_epsilon_of_a_laplace_mechanism() -> None:
    rates = laplace(1.0, delta=1e-5)
    mu = mu_pooled(draw(rates, 500))
    broken = np.array([epsilon_of(float(m), 1e-5) for m in np.unique(mu)])
    assert float(np.mean(broken > rates.epsilon)) == 1.0
    assert all(epsilon_from_mu(float(m), 1e-5, gaussian=False) is None for m in np.unique(mu))
    assert alarms(mu, rates.mu) <= ALLOWED, "mu itself needs no assumption"


@pytest.mark.parametrize("bound", [epsilon_corner, epsilon_pooled])
def test_caught_an_ignored_delta(bound) -> None:
    rates = response(1.0, delta=0.2)
    counts = draw(rates, 1000)
    assert alarms(bound(counts, 0.0), rates.epsilon) > 0.5
    assert alarms(bound(counts, rates.delta), rates.epsilon) <= ALLOWED


def test_caught_pooling_unequal_trials() -> None:
    """A test that always says "in" errs only in the world with few trials; pooled as if equal it looks excellent."""
    counts = np.full(REPETITIONS, 10.0), 10, np.zeros(REPETITIONS), 1000
    assert alarms(mu_pooled(counts), 0.0) == 1.0
    assert alarms(mu_corner(counts), 0.0) == 0.0
    with pytest.raises(ValueError, match="as many trials"):
        mu_error_rate(Errors(false_positives=10, negatives=10, false_negatives=0, positives=1000), CONFIDENCE)


def test_caught_several_trials_of_one_training() -> None:
    rng = np.random.default_rng(3)
    trained = rng.standard_normal((2, 2000, 20, 1)) + 0.5 * rng.standard_normal((2, 2000, 20, 10))
    wrong = (trained > 0).sum((2, 3)).astype(float)
    assert alarms(mu_pooled((wrong[0], 200, wrong[1], 200)), 0.0) > 2 * ALLOWED
    once = (trained[..., 0] > 0).sum(2).astype(float)
    assert alarms(mu_pooled((once[0], 20, once[1], 20)), 0.0) <= ALLOWED


def test_caught_a_point_estimate_and_a_halved_level() -> None:
    counts = draw(gaussian(1.0), 500)
    rate = (counts[0] + counts[2]) / 1000
    assert alarms(mu_of_rates(rate, rate), 1.0) > 0.3
    twice = rate_upper(counts[0] + counts[2], 1000, 0.1)
    assert alarms(mu_of_rates(twice, twice), 1.0) > ALLOWED


# Several claims in one report


def test_holm_keeps_the_family_wise_error_and_no_correction_does_not() -> None:
    """Six claims: four hold with equality, two are badly violated and easily rejected."""
    claims, truths = np.array([0.4, 1.0, 1.0, 2.0, 0.5, 1.0]), np.array([0.4, 1.0, 1.0, 2.0, 1.5, 3.0])
    n = 400
    p = np.empty((REPETITIONS, len(claims)))
    for j, (claimed, true) in enumerate(zip(claims, truths, strict=True)):
        fp, _, fn, _ = draw(gaussian(float(true)), n, seed=10 + j)
        p[:, j] = tail(fp + fn, 2 * n, float(ndtr(-claimed / 2)))
    holds = claims == truths
    rejected = np.array([holm_adjusted(list(row)) for row in p]) <= 0.05
    assert float(np.mean(rejected[:, holds].any(axis=1))) <= ALLOWED
    assert float(np.mean((p <= 0.05)[:, holds].any(axis=1))) > 2 * ALLOWED
    assert rejected[:, ~holds].all(), "what is violated is found"


def test_p_values_are_valid_at_every_usual_level() -> None:
    for rates in MECHANISMS[:12]:
        fp, n, fn, _ = draw(rates, 150)
        p = tail(fp + fn, 2 * n, float(ndtr(-rates.mu / 2)))
        for level in (0.01, 0.05, 0.2, 0.5):
            assert float(np.mean(p <= level)) <= allowed(REPETITIONS, level), (rates.name, level)
