"""Dominating pairs against multi-precision integrals, and against the worlds they are said to dominate."""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from tests.accountants.exposures import event, expose
from vflpriv.accountants._composition import compose
from vflpriv.accountants._lattice import optimistic, pessimistic
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.core.budgets import delta_of, epsilon_of
from vflpriv.core.units import Unit
from vflpriv.laws import Gaussian
from vflpriv.laws.gaussian import GaussianPair
from vflpriv.laws.laplace import LaplacePair
from vflpriv.laws.pairs import Diluted, PurePair
from vflpriv.laws.sampled import SampledGaussianPair, SampledReplacementPair

SAMPLED = [SampledGaussianPair(1.25, 0.01), SampledGaussianPair(0.5, 0.2), SampledReplacementPair(2.0, 0.05)]
PURE = [LaplacePair(0.7), PurePair(1.3), Diluted(PurePair(1.3), 0.1)]
PAIRS = [
    GaussianPair(0.6),
    Diluted(GaussianPair(0.6), 0.2),
    *SAMPLED,
    *(pair.reversed() for pair in SAMPLED[:2]),
    *PURE,
]


def mixtures(pair):
    """P and Q of a sampled pair as weights and means of normals, in multi-precision; Q is without, or mirrored."""
    q, replaced = mpmath.mpf(pair.rate), isinstance(pair, SampledReplacementPair)
    mu = mpmath.mpf(pair.mu) / 2 if replaced else mpmath.mpf(pair.mu)
    upper = [(1 - q, mpmath.mpf(0)), (q, mu)]
    lower = [(1 - q, mpmath.mpf(0)), (q, -mu)] if replaced else [(mpmath.mpf(1), mpmath.mpf(0))]
    return (lower, upper) if getattr(pair, "added", False) else (upper, lower)


def density(mixture, x):
    return sum(weight * mpmath.npdf(x, mean) for weight, mean in mixture)


def hockey_stick(pair, epsilon):
    """∫ (P - e^epsilon Q)_+ by the masses of normals on both sides of each point where it changes sign."""
    with mpmath.workdps(30):
        upper, lower = mixtures(pair)
        difference = upper + [(-(mpmath.e**epsilon) * weight, mean) for weight, mean in lower]
        gap = lambda x: density(difference, x)  # noqa: E731
        signs = [(x, gap(mpmath.mpf(x)) > 0) for x in np.linspace(-15, 15, 601)]
        points = [-mpmath.inf]
        for (x, positive), (y, then) in pairwise(signs):
            if positive != then:
                points.append(mpmath.findroot(gap, (x, y), solver="anderson", tol=1e-30))
        points += [mpmath.inf]
        below = [sum(weight * mpmath.ncdf(x - mean) for weight, mean in difference) for x in points]
        return float(sum(max(there - here, 0) for here, there in pairwise(below)))


def exact_delta(pair, epsilon):
    """delta(epsilon) of one release in closed form, for every kind of pair."""
    if isinstance(pair, GaussianPair):
        return delta_of(pair.mu, epsilon)
    if isinstance(pair, LaplacePair):
        return max(0.0, -math.expm1((epsilon - pair.shift) / 2))
    if isinstance(pair, PurePair):
        return max(0.0, -math.expm1(epsilon - pair.epsilon)) / (1 + math.exp(-pair.epsilon))
    if isinstance(pair, Diluted):
        return pair.rate * exact_delta(pair.pair, epsilon)
    return hockey_stick(pair, epsilon)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_masses_are_those_of_two_distributions(pair):
    edges = np.concatenate([[-math.inf], np.linspace(-3, 3, 601), [math.inf]])
    upper, lower = pair.masses(edges)
    assert upper.sum() == pytest.approx(1, abs=1e-12)
    assert lower.sum() == pytest.approx(1, abs=1e-12)
    inside = (upper[1:-1] > 1e-12) & (lower[1:-1] > 1e-12)
    loss = np.log(upper[1:-1][inside]) - np.log(lower[1:-1][inside])
    # Each interval's masses have a ratio within the interval.
    assert np.all(loss > edges[1:-2][inside] - 1e-9)
    assert np.all(loss < edges[2:-1][inside] + 1e-9)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.5])
def test_roundings_bound_the_truth_from_both_sides(pair, epsilon):
    truth = exact_delta(pair, epsilon)
    for step in (0.02, 0.002, 0.0002):
        above = compose([(pessimistic(pair, step, 1e-16), 1)], 0.0).delta(epsilon)
        below = compose([(optimistic(pair, step, 1e-16), 1)], 0.0).delta(epsilon)
        assert below[0] <= truth + 1e-15
        assert truth <= above[1] + 1e-15
    assert above[1] - below[0] <= 1e-3 * truth + 1e-12


@pytest.mark.parametrize(
    ("mu", "rate", "step"),
    [(1.25, 1e-4, 1.08e-5), (1.25, 1e-4, 1e-3), (1.0, 1e-4, 2e-5), (2.0, 1e-6, 2e-5), (1 / 1.02, 0.0192, 0.0063)],
)
def test_rounding_of_rare_sampling_from_below_stays_below(mu, rate, step):
    """With few grid points in the range of most losses, and with many."""
    pair = SampledGaussianPair(mu, rate)
    composed = compose([(optimistic(pair, step, 1e-18), 1)], 0.0)
    for epsilon in (0.0, 0.1 * rate, rate, 10 * rate, 100 * rate):
        assert composed.delta(epsilon)[0] <= exact_delta(pair, epsilon) * (1 + 1e-9)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_roundings_keep_both_masses(pair):
    for rounding in (pessimistic, optimistic):
        lattice = rounding(pair, 0.01, 1e-16)
        assert lattice.masses.min() >= 0
        assert lattice.masses.sum() + lattice.infinite == pytest.approx(1, abs=1e-12)
    above = pessimistic(pair, 0.01, 1e-16)
    assert np.sum(above.masses * np.exp(-above.losses)) <= 1 + 1e-12


@pytest.mark.parametrize(("q", "nu"), [(0.01, 0.8), (0.1, 1.0), (0.3, 3.0)])
@pytest.mark.parametrize("unit", [Unit.ADD_REMOVE, Unit.RECORD])
def test_one_sampled_release_against_multi_precision(q, nu, unit):
    """Never below the truth, and within 1 %."""
    delta = 1e-4
    sensitivity = 1.0 if unit is Unit.ADD_REMOVE else 2.0
    exposure = expose(event(Gaussian(nu), sensitivity, 1, q), unit=unit)
    budget = PrvAccountant().budget(exposure, delta)
    pair = SampledGaussianPair(1 / nu, q) if unit is Unit.ADD_REMOVE else SampledReplacementPair(2 / nu, q)
    true_delta = max(hockey_stick(pair, budget.upper), hockey_stick(pair.reversed(), budget.upper))
    assert true_delta <= delta * (1 + 1e-9)
    assert max(hockey_stick(pair, budget.lower), hockey_stick(pair.reversed(), budget.lower)) >= delta * (1 - 1e-9)
    assert budget.upper <= budget.lower * 1.01
    assert RdpAccountant().budget(exposure, delta).upper >= budget.upper


@pytest.mark.parametrize(("mu", "count"), [(0.01, 10_000), (0.3, 50), (2.0, 3)])
@pytest.mark.parametrize(
    ("delta", "tilt"), [(1e-3, "none"), (1e-9, "none"), (1e-3, "saddle"), (1e-9, "saddle"), (1e-20, "saddle")]
)
def test_composition_of_gaussians_against_the_closed_form(mu, count, delta, tilt):
    total = mu * math.sqrt(count)
    exact = epsilon_of(total, delta)
    exponent = 0.0 if tilt == "none" else (exact - total**2 / 2) / total**2
    step = 0.05 * mu
    for rounding, upper in ((pessimistic, True), (optimistic, False)):
        found = compose([(rounding(GaussianPair(mu), step, 1e-30), count)], exponent)
        epsilon = found.epsilon(delta, 2 * exact, upper=upper)
        assert epsilon == pytest.approx(exact, rel=2e-3)
        assert (epsilon >= exact * (1 - 1e-9)) if upper else (epsilon <= exact * (1 + 1e-9))


@pytest.mark.parametrize("order", [1.05, 1.5, 2.0, 3.7, 8.0, pytest.param(33.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pair", SAMPLED, ids=str)
def test_moments_against_multi_precision(pair, order):
    """Exact to nine digits, never below by more than that; chords between whole orders lie above."""
    with mpmath.workdps(20):
        (upper, lower), a = mixtures(pair), mpmath.mpf(order)
        nodes = mpmath.linspace(-20, (order + 1) * pair.mu + 20, 60)
        integrand = lambda x: density(upper, x) ** a * density(lower, x) ** (1 - a)  # noqa: E731
        exact = float(mpmath.log(mpmath.quad(integrand, nodes)))
    ours = float(pair.log_moments((order,))[0])
    assert ours == pytest.approx(exact, rel=1e-8)
    assert float(pair.log_moments((order,), fast=True)[0]) >= exact * (1 - 1e-9)


@pytest.mark.parametrize("pair", PURE, ids=str)
def test_moments_of_pure_mechanisms(pair):
    fine = compose([(pessimistic(pair, 1e-4, 1e-16), 1)], 0.0)
    for order in (1.3, 2.0, 7.0):
        direct = math.log(float(np.sum(np.maximum(fine.tilted, 0) * np.exp((order - 1) * fine.losses))))
        assert float(pair.log_moments((order,))[0]) == pytest.approx(direct, rel=1e-4)


def test_moments_are_never_nan():
    orders = (1.002, 1.5, 2.0, 64.0, 1100.0, 131072.0)
    for mu in (1e-6, 1e-3, 1.0, 50.0, 1e4, 1e200):
        for rate in (1e-9, 1e-3, 0.5, 1 - 1e-9):
            for pair in (SampledGaussianPair(mu, rate), SampledReplacementPair(mu, rate)):
                moments = pair.log_moments(orders)
                assert not np.isnan(moments).any()
                assert (moments >= 0).all()


@pytest.mark.parametrize("rate", [0.02, 0.4])
def test_the_replacement_pair_dominates_every_clipped_replacement(rate):
    """Two contributions v and w within the clip, in the plane of the noise: none is easier to tell than ±clip."""
    clip = 1.3
    pair = SampledReplacementPair(2 * clip, rate)
    x = np.linspace(-12, 12, 20_001)
    normal = lambda center: np.exp(-((x - center) ** 2) / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    for epsilon in (0.0, 0.1, 1.0):
        worst = compose([(pessimistic(pair, 0.005, 1e-16), 1)], 0.0).delta(epsilon)[1]
        for v in np.linspace(-clip, clip, 7):
            for w in np.linspace(-clip, clip, 7):
                P, Q = ((1 - rate) * normal(0) + rate * normal(c) for c in (v, w))
                assert np.trapezoid(np.maximum(P - math.exp(epsilon) * Q, 0), x) <= worst + 1e-6


def test_a_laplace_shift_spread_over_entries_is_harder_to_tell():
    for one, other in ((0.5, 0.5), (0.1, 2.0), (1.0, 3.0)):
        step = min(one, other) / 100
        spread = compose([(optimistic(LaplacePair(s), step, 1e-16), 1) for s in (one, other)], 0.0)
        for epsilon in np.linspace(0, one + other, 20):
            assert spread.delta(float(epsilon))[0] <= exact_delta(LaplacePair(one + other), float(epsilon)) + 1e-12


def test_dilution_dominates_sampling():
    """Joint convexity: a sampled release tells at most what it tells when the sampling is seen."""
    mu, q = 1.5, 0.1
    for epsilon in (0.0, 0.3, 1.0):
        assert hockey_stick(SampledReplacementPair(mu, q), epsilon) <= q * delta_of(mu, epsilon)
        assert hockey_stick(SampledGaussianPair(mu, q), epsilon) <= q * delta_of(mu, epsilon) + 1e-12


def test_closed_form_of_the_reference_itself():
    pair, epsilon = SampledGaussianPair(1.0, 0.1), 0.2
    # P > e^eps Q beyond x*, so delta = P(x > x*) - e^eps Q(x > x*).
    x = math.log1p(math.expm1(epsilon) / pair.rate) + 0.5
    exact = 0.9 * ndtr(-x) + 0.1 * ndtr(1 - x) - math.exp(epsilon + log_ndtr(-x))
    assert hockey_stick(pair, epsilon) == pytest.approx(exact, rel=1e-12)
