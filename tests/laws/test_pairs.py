"""Dominating pairs against their two densities, written out: masses, reach and moments, and what others compute."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import laplace, norm

from vflpriv.core.law import Pair
from vflpriv.laws.discrete_gaussian import DiscreteGaussianPair, MomentsOfGaussian
from vflpriv.laws.discrete_laplace import DiscreteLaplacePair
from vflpriv.laws.gaussian import GaussianPair
from vflpriv.laws.laplace import LaplacePair
from vflpriv.laws.pairs import AtomicPair, Diluted, PurePair, holds, normal_masses, ratio, thinned
from vflpriv.laws.sampled import (
    MAX_NODES,
    SampledGaussianPair,
    SampledReplacementPair,
    WithoutReplacementPair,
    _log_term,
    _quadrature,
)

Mixture = Sequence[tuple[float, float]]
"""Weights and means of normals of standard deviation 1."""

SAMPLED: list[Any] = [
    SampledGaussianPair(1.25, 0.01),
    SampledGaussianPair(0.5, 0.2),
    SampledGaussianPair(2.1, 0.7),
    SampledReplacementPair(2.0, 0.05),
    SampledReplacementPair(0.7, 0.3),
    SampledReplacementPair(5.1, 0.6),
]
FAR: list[Any] = [SampledGaussianPair(9.0, 0.05), SampledReplacementPair(14.0, 0.05)]
"""Of a large mu most losses are too close together to tell them apart in double precision."""
NORMAL: list[Any] = [GaussianPair(0.6), GaussianPair(2.3), *SAMPLED]
ORDERS = (1.05, 1.5, 2.0, 3.7, 8.0, 19.5, 20.5, 33.0)


def densities(pair: Any) -> tuple[Mixture, Mixture]:
    if isinstance(pair, GaussianPair):
        return [(1.0, pair.mu)], [(1.0, 0.0)]
    if isinstance(pair, SampledReplacementPair):
        half = pair.mu / 2
        return [(1 - pair.rate, 0.0), (pair.rate, half)], [(1 - pair.rate, 0.0), (pair.rate, -half)]
    return [(1 - pair.rate, 0.0), (pair.rate, pair.mu)], [(1.0, 0.0)]


def log_density(mixture: Mixture, x: np.ndarray) -> np.ndarray:
    parts = np.array([math.log(weight) + norm.logpdf(x - mean) for weight, mean in mixture])
    return np.asarray(logsumexp(parts, axis=0))


def loss(pair: Any, x: np.ndarray) -> np.ndarray:
    upper, lower = densities(pair)
    return log_density(upper, x) - log_density(lower, x)


def between(mixture: Mixture, x: np.ndarray) -> np.ndarray:
    """The mass between neighbouring points, each from its nearer tail."""
    return sum(
        weight * np.where(x[1:] > mean, norm.sf(x[:-1] - mean) - norm.sf(x[1:] - mean), np.diff(norm.cdf(x - mean)))
        for weight, mean in mixture
    )


def log_moment(pair: Any, order: float) -> float:
    """The trapezoidal rule, whose error falls exponentially."""
    upper, lower = densities(pair)
    x = np.arange(-16.0 - pair.mu, (order + 1) * pair.mu + 16.0, 0.02)
    return float(logsumexp(order * log_density(upper, x) + (1 - order) * log_density(lower, x) + math.log(0.02)))


def hockey_stick(pair: Any, epsilon: float) -> float:
    upper, lower = densities(pair)
    x = np.arange(-12.0, pair.mu + 12.0, 1e-3)
    excess = np.exp(log_density(upper, x)) - math.exp(epsilon) * np.exp(log_density(lower, x))
    return float(np.sum(np.maximum(excess, 0.0))) * 1e-3


# Masses -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [*NORMAL, FAR[1]], ids=str)
def test_masses_are_those_between_the_places_of_a_loss(pair: Any) -> None:
    """Far into both tails, and to seven digits; of the reversed pair they are the same, exchanged and mirrored."""
    start = 3.0 if pair in FAR else -5.0
    x = np.concatenate([[-math.inf], start + np.cumsum(np.linspace(0.1, 0.9, 30)), [math.inf]])
    edges = np.concatenate([[-math.inf], loss(pair, x[1:-1]), [math.inf]])
    expected = [between(mixture, x) for mixture in densities(pair)]
    for found, mass in zip(pair.masses(edges), expected, strict=True):
        np.testing.assert_allclose(found, mass, rtol=1e-7, atol=1e-300)
    if isinstance(pair, SampledGaussianPair):
        assert pair.reversed() == SampledGaussianPair(pair.mu, pair.rate, added=True)
        assert pair.reversed().reversed() == pair
        for found, mass in zip(pair.reversed().masses(-edges[::-1]), expected[::-1], strict=True):
            np.testing.assert_allclose(found, mass[::-1], rtol=1e-7, atol=1e-300)
    else:
        assert pair.reversed() is pair


@pytest.mark.parametrize("pair", [*NORMAL, *(pair.reversed() for pair in SAMPLED[:3])], ids=str)
@pytest.mark.parametrize("tail", [1e-3, 1e-14])
def test_no_more_than_the_tail_lies_beyond_the_reach(pair: Any, tail: float) -> None:
    low, high = pair.reach(tail)
    upper, _ = pair.masses(np.array([-math.inf, low, high, math.inf]))
    rate = getattr(pair, "rate", 1.0)
    for beyond, least in ((upper[0], 1 - rate or 1.0), (upper[2], rate)):
        assert 0.9 * least * tail <= beyond <= tail * (1 + 1e-9)
    assert low < pair.usual() < high


@pytest.mark.parametrize("pair", NORMAL, ids=str)
def test_the_usual_loss_is_that_of_the_heaviest_part(pair: Any) -> None:
    (_, mode) = max(densities(pair)[0])
    assert pair.usual() == pytest.approx(float(loss(pair, np.array([mode]))[0]), rel=1e-12)
    if isinstance(pair, SampledGaussianPair):
        assert pair.reversed().usual() == pytest.approx(-float(loss(pair, np.array([0.0]))[0]), rel=1e-12)


def test_no_edge_lies_between_the_smallest_loss_and_nothing() -> None:
    """Every loss of a removal is larger than log(1-q), which most of them are very close to if mu is large."""
    upper, lower = SampledGaussianPair(8.0, 0.1).masses(np.array([-math.inf, -1.0, math.log1p(-0.1), 0.0, math.inf]))
    assert upper[:2].tolist() == lower[:2].tolist() == [0.0, 0.0]
    assert upper[2] == pytest.approx(0.9 * norm.cdf(4.0) + 0.1 * norm.cdf(-4.0))
    assert lower[2] == pytest.approx(norm.cdf(4.0))


@pytest.mark.parametrize("pair", [WithoutReplacementPair(2.0, 0.05), WithoutReplacementPair(0.3, 0.6)], ids=str)
def test_a_batch_of_fixed_size_has_the_positive_losses_of_one_pair_and_the_negative_ones_of_the_other(
    pair: Any,
) -> None:
    edges = np.array([-math.inf, -3.0, -1.1, -0.31, -0.02, 0.0, 0.013, 0.4, 1.3, 2.9, math.inf])
    removal = SampledGaussianPair(pair.mu, pair.rate)
    first, second = removal.masses(edges), removal.reversed().masses(edges)
    rest = (1 - pair.rate) * (2 * norm.cdf(pair.mu / 2) - 1)
    for found, positive, negative in zip(pair.masses(edges), first, second, strict=True):
        np.testing.assert_allclose(found[5:], positive[5:], rtol=1e-12)
        np.testing.assert_allclose(found[:4], negative[:4], rtol=1e-12)
        assert found[4] == pytest.approx(negative[4] + rest, rel=1e-12)
    assert pair.usual() == 0.0
    low, high = pair.reach(1e-9)
    assert (low, high) == (removal.reversed().reach(1e-9)[0], removal.reach(1e-9)[1])
    assert low < 0 < high
    assert (pair.removal, pair.attained(), pair.unsampled_mu) == (removal, removal, pair.mu)


def test_the_reach_of_a_batch_of_fixed_size_holds_the_loss_0() -> None:
    for mu, rate in ((20.0, 0.1), (0.3, 0.01)):
        pair = WithoutReplacementPair(mu, rate)
        low, high = pair.reach(1e-9)
        assert low == min(0.0, pair.removal.reversed().reach(1e-9)[0])
        assert high == pair.removal.reach(1e-9)[1] > 0
        assert (low == 0.0) == (mu == 20.0)


def test_laplace_masses_are_those_between_the_places_of_a_loss() -> None:
    """The loss of x is |x - s| - |x|, which falls from s to -s, and is constant on both sides of 0 and s."""
    pair = LaplacePair(1.7)
    edges = np.array([-math.inf, -1.7, -1.2, 0.3, 0.31, 1.69, 1.7, math.inf])
    x = (1.7 - edges) / 2  # where 0 < x < s
    x[0], x[1], x[-2], x[-1] = math.inf, 1.7, 0.0, -math.inf
    for found, centre in zip(pair.masses(edges), (0.0, 1.7), strict=True):
        below = laplace.cdf(x, centre)
        below[[1, -2]] = laplace.cdf(1.7, centre), laplace.cdf(0.0, centre)
        expected = -np.diff(below)
        # Half-open intervals: an atom belongs to the one that ends on it.
        expected[0], expected[-2], expected[-1] = expected[0], expected[-2] + expected[-1], 0.0
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    assert (pair.reach(1e-9), pair.usual(), pair.pure_epsilon, pair.pure_cost) == ((-1.7, 1.7), 1.7, 1.7, 1.7)
    assert pair.attained() is pair


def test_a_pure_pair_is_a_coin() -> None:
    pair, right = PurePair(1.3), 1 / (1 + math.exp(-1.3))
    edges = np.array([-math.inf, -1.3, 0.0, 1.2, 1.3, math.inf])
    for found, expected in zip(
        pair.masses(edges), ([1 - right, 0, 0, right, 0], [right, 0, 0, 1 - right, 0]), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (pair.reach(1e-9), pair.usual(), pair.pure_epsilon) == ((-1.3, 1.3), 1.3, 1.3)
    assert pair.attained() is pair
    assert PurePair(1.3, bound=True).attained() is None
    assert GaussianPair(1.3).attained() == GaussianPair(1.3)
    assert GaussianPair(1.3, bound=True).attained() is None


@pytest.mark.parametrize("atom", [0.0, 0.7, -0.7, 4000.0])
def test_an_interval_holds_what_lies_on_its_upper_end(atom: float) -> None:
    slack = 1e-12 * max(1.0, abs(atom))
    for shift, expected in ((0.0, [1, 0]), (-0.5 * slack, [1, 0]), (-1.5 * slack, [0, 1]), (3 * slack, [1, 0])):
        assert holds(np.array([atom - 1, atom + shift, atom + 1]), atom).tolist() == expected
    assert holds(np.array([atom - 2, atom - 1, atom]), atom).tolist() == [0, 1]


def test_normal_masses_are_exact_in_both_tails() -> None:
    x = np.array([-math.inf, -37.0, -30.0, -8.0, 0.0, 7.5, 8.0, 30.0, 36.0, math.inf])
    np.testing.assert_allclose(normal_masses(x)[:4], np.diff(norm.cdf(x[:5])), rtol=1e-12)
    np.testing.assert_allclose(normal_masses(x)[4:], -np.diff(norm.sf(x[4:])), rtol=1e-12)


def test_nothing_costs_nothing_and_without_noise_all_is_lost() -> None:
    assert (ratio(3.0, 2.0), ratio(0.0, 0.0), ratio(0.0, 2.0), ratio(1.0, 0.0)) == (1.5, 0.0, 0.0, math.inf)
    assert ratio(1.0, 0.5) == 2.0


class _Coins(AtomicPair):
    """Two losses that are listed, and a larger one that is not."""

    def atoms(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.array([-2000.0, 0.5, 3.0]), np.array([0.2, 0.5, 0.1]), np.array([0.3, 0.3, 0.4])


def test_atoms_are_counted_on_the_upper_end_of_their_interval() -> None:
    pair = _Coins()
    upper, lower = pair.masses(np.array([-3000.0, -2000.0 - 1e-9, 0.5 - 1e-13, 3.0, math.inf]))
    assert upper == pytest.approx([0.2, 0.5, 0.1, 0.2])
    assert lower == pytest.approx([0.3, 0.3, 0.4, 0.0])
    # An edge that is farther below the loss than rounding moves it leaves the loss above it.
    upper, _ = pair.masses(np.array([-math.inf, -2001.0, 0.5 - 1.5e-12, 2.0, 3.5]))
    assert upper == pytest.approx([0.0, 0.2, 0.5, 0.1])
    upper, _ = pair.masses(np.array([-1999.0, 0.4, 2.0]))
    assert upper == pytest.approx([0.0, 0.5])
    assert pair.usual() == 0.5
    assert pair.reach(0.15) == (-2000.0, 0.5)
    assert pair.reach(0.25) == (0.5, 0.5)
    # Exactly the tail may lie beyond.
    assert (pair.reach(0.2), pair.reach(0.1)) == ((0.5, 0.5), (-2000.0, 0.5))
    assert pair.reach(0.05) == (-2000.0, 3.0)


# Moments ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [*NORMAL, *FAR], ids=str)
def test_moments_are_integrals_of_the_densities(pair: Any) -> None:
    """To nine digits; of a removal, fractional orders from 20 on lie on the chord between whole ones."""
    exact = [log_moment(pair, order) for order in ORDERS]
    if isinstance(pair, SampledGaussianPair):
        exact[6] = (log_moment(pair, 20.0) + log_moment(pair, 21.0)) / 2
        chord = 0.3 * log_moment(pair, 3.0) + 0.7 * log_moment(pair, 4.0)
        fast = pair.log_moments((1.5, 3.7, 8.0), fast=True)
        assert fast == pytest.approx([log_moment(pair, 2.0) / 2, chord, exact[4]], rel=1e-9)
        assert pair.reversed().log_moments((3.7, 8.0)) == pytest.approx(pair.log_moments((3.7, 8.0)), rel=1e-12)
    assert pair.log_moments(ORDERS) == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize("pair", [*SAMPLED[3:], FAR[1]], ids=str)
def test_fast_moments_of_a_replacement_are_chords_between_every_fourth_order(pair: Any) -> None:
    orders = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0, 10.0, 12.0)
    chosen = [1.5, 4.0, 9.0, 12.0]
    chords = np.interp(orders, chosen, [log_moment(pair, order) for order in chosen])
    assert pair.log_moments(orders, fast=True) == pytest.approx(chords, rel=1e-8)


@pytest.mark.parametrize(("mu", "rate", "order"), [(200.0, 0.1, 30.0), (300.0, 1e-3, 12.0)])
def test_where_no_quadrature_fits_a_replacement_counts_as_if_sampling_were_seen(
    mu: float, rate: float, order: float
) -> None:
    """1 - q + q e^{a(a-1)mu²/2}: of so large a number nothing but its logarithm is left."""
    expected = math.log(rate) + order * (order - 1) * mu * mu / 2
    assert SampledReplacementPair(mu, rate).log_moments((order,)) == pytest.approx([expected], rel=1e-12)
    seen = SampledReplacementPair(0.5, 0.3)._as_if_seen(2.5)
    assert seen == pytest.approx(math.log(0.7 + 0.3 * math.exp(2.5 * 1.5 * 0.125)))
    assert SampledReplacementPair(1e200, rate).log_moments((2.0, order)) == pytest.approx([math.inf, math.inf])


def test_orders_that_overflow_leave_the_others_alone() -> None:
    """Of a huge mu each order is counted by itself: a chord to one that is infinite would be infinite."""
    found = SampledReplacementPair(1e153, 0.5).log_moments((2.0, 3.0, 4.0, 5.0, 30.0), fast=True)
    assert found == pytest.approx([1e306, 3e306, 6e306, 1e307, math.inf])


@pytest.mark.parametrize(("mu", "order"), [(80.0, 6.0), (60.0, 1.05)])
def test_quadrature_is_used_as_long_as_its_nodes_fit(mu: float, order: float) -> None:
    """About c (a c + 2 c + 24) / 0.5 of them, with c = mu/2."""
    pair = SampledReplacementPair(mu, 0.1)
    assert pair.log_moments((order,)) == pytest.approx([log_moment(pair, order)], rel=1e-8)
    most = (MAX_NODES / mu - 24) / (mu / 2) - 2
    for a in (most - 0.1, most + 0.1):
        assert math.isfinite(_quadrature(pair, a, mu / 2)) == (a < most)


@pytest.mark.parametrize("a", [1.002, 2.0, 7.5, 33.0])
def test_the_excess_of_a_ratio_is_exact_near_1_and_far_away(a: float) -> None:
    """log(r^a - 1 - a (r - 1)) of r = e^l, at losses around those where the way of computing it changes."""
    sizes = np.array([1e-9, 3e-6, 0.5e-4, 0.99e-4, 1.01e-4, 2e-4, 1e-3, 0.3, 0.99, 1.01, 1.9, 2.1, 10.0, 600.0])
    losses = np.concatenate([-sizes[::-1], sizes]) / np.array([a])
    with mpmath.workdps(50):
        ratios = [mpmath.e ** mpmath.mpf(float(x)) for x in losses]
        exact = [float(mpmath.log(r ** mpmath.mpf(a) - 1 - mpmath.mpf(a) * (r - 1))) for r in ratios]
    assert _log_term(losses, a) == pytest.approx(exact, abs=3e-8)
    assert _log_term(np.array([0.0]), a)[0] == -math.inf


@pytest.mark.parametrize("pair", [WithoutReplacementPair(2.0, 0.05), WithoutReplacementPair(0.3, 0.6)], ids=str)
def test_moments_of_a_batch_of_fixed_size_are_those_of_its_two_halves(pair: Any) -> None:
    """By quadrature with many nodes on each side of the loss 0: never below, and to six digits."""
    removal, (nodes, weights) = pair.removal, np.polynomial.legendre.leggauss(60)
    for order in (1.3, 2.0, 6.5):
        ends = np.linspace(pair.mu / 2, (order + 1) * pair.mu + 14.0, 16)
        middle, half = (ends[1:] + ends[:-1]) / 2, np.diff(ends) / 2
        x, share = np.add.outer(middle, half[0] * nodes).ravel(), np.tile(half[0] * weights, 15)
        log_q, losses = norm.logpdf(x), loss(removal, x)
        rest = (1 - pair.rate) * (2 * norm.cdf(pair.mu / 2) - 1)
        halves = np.exp(log_q + order * losses) + np.exp(log_q + (1 - order) * losses)
        exact = math.log(float(np.sum(share * halves)) + rest)
        found = float(pair.log_moments((order,))[0])
        assert exact * (1 - 1e-12) <= found <= exact + 2.1e-6
    # As a bound on each half: the removal's excess over 1.
    moments = [log_moment(removal, order) for order in (2.0, 7.0, 22.0)]
    twice = [moment + math.log(2 - math.exp(-moment)) for moment in moments]
    assert pair.log_moments((2.0, 7.0, 22.0), fast=True) == pytest.approx(twice, rel=1e-8)
    assert pair.log_moments((2.0, 22.0))[1] == pytest.approx(twice[2], rel=1e-8)


ATOMIC: list[Any] = [PurePair(1.3), PurePair(0.2), DiscreteLaplacePair(3, 0.4), DiscreteLaplacePair(1, 1.7)]


@pytest.mark.parametrize("pair", [*ATOMIC, LaplacePair(0.7), Diluted(PurePair(1.3), 0.1)], ids=str)
@pytest.mark.parametrize("order", [1.3, 2.0, 7.0])
def test_moments_of_pure_pairs_are_sums_over_their_losses(pair: Any, order: float) -> None:
    edges = np.linspace(-2.0005, 2.0005, 4002)
    upper, _ = pair.masses(edges)
    direct = math.log(float(np.sum(upper * np.exp((order - 1) * (edges[1:] - 5e-4)))))
    assert float(pair.log_moments((order,))[0]) == pytest.approx(direct, rel=2e-3)


def test_pure_moments_have_closed_forms() -> None:
    """A coin: p^a (1-p)^{1-a} both ways; Laplace noise: Mironov 2017, Table II."""
    p, s, a = 1 / (1 + math.exp(-1.3)), 0.7, 2.5
    coin = p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)
    assert PurePair(1.3).log_moments((a,)) == pytest.approx([math.log(coin)], rel=1e-12)
    noise = a / (2 * a - 1) * math.exp((a - 1) * s) + (a - 1) / (2 * a - 1) * math.exp(-a * s)
    assert LaplacePair(s).log_moments((a,)) == pytest.approx([math.log(noise)], rel=1e-12)
    assert Diluted(LaplacePair(s), 0.2).log_moments((a,)) == pytest.approx([math.log(0.8 + 0.2 * noise)], rel=1e-12)
    assert MomentsOfGaussian(0.3).log_moments((a,)) == pytest.approx([a * (a - 1) * 0.045], rel=1e-12)
    assert DiscreteGaussianPair(3, 2.0).log_moments((a,)) == pytest.approx([a * (a - 1) * 9 / 8], rel=1e-12)


# Secret batches that are seen ---------------------------------------------------------------------------------------


def test_a_diluted_pair_is_its_pair_or_nothing() -> None:
    edges, inner = np.array([-math.inf, -0.5, 0.0, 0.2, math.inf]), SampledGaussianPair(1.25, 0.1)
    diluted = Diluted(inner, 0.3)
    for found, own in zip(diluted.masses(edges), inner.masses(edges), strict=True):
        np.testing.assert_allclose(found, 0.3 * own + [0, 0.7, 0, 0], rtol=1e-12)
    assert diluted.reversed() == Diluted(inner.reversed(), 0.3)
    assert diluted.reach(1e-9) == inner.reach(1e-9)
    assert (diluted.usual(), Diluted(inner, 0.6).usual()) == (0.0, inner.usual())
    assert (diluted.attained(), Diluted(inner, 0.3, hidden=True).attained()) == (diluted, None)
    assert (diluted.unsampled_mu, Diluted(LaplacePair(0.7), 0.3).unsampled_mu) == (1.25, math.inf)
    assert not diluted.by_moments
    assert Diluted(MomentsOfGaussian(1.0), 0.3).by_moments


@pytest.mark.parametrize("epsilon", [0.3, 5.0, 699.9])
def test_only_a_sum_hides_its_sampling(epsilon: float) -> None:
    """(1-q) + q e^ε bounds the ratio of two sums."""
    seen, hidden = Diluted(PurePair(epsilon), 0.2), Diluted(PurePair(epsilon), 0.2, hidden=True)
    assert seen.pure_epsilon == seen.pure_cost == hidden.pure_epsilon == epsilon
    expected = float(np.logaddexp(math.log(0.8), math.log(0.2) + epsilon))
    assert hidden.pure_cost == pytest.approx(expected, rel=1e-12)
    assert Diluted(PurePair(700.0), 0.2, hidden=True).pure_cost == 700.0


@pytest.mark.parametrize("extreme", [max, min])
def test_very_many_pairs_are_grouped_by_four(extreme: Any) -> None:
    random = np.random.default_rng(3)
    mus, rates = random.uniform(0.5, 2.0, 260), random.uniform(0.01, 0.1, 260)
    sampled = [SampledGaussianPair(float(m), float(q)) for m, q in zip(mus, rates, strict=True)]
    pairs: dict[Pair, int] = {pair: k + 1 for k, pair in enumerate(sampled[:257])}
    pairs |= {pair.reversed(): 2 for pair in sampled[257:]}
    pairs[LaplacePair(0.3)] = 7
    expected: Counter[Any] = Counter({LaplacePair(0.3): 7})
    ordered = sorted(sampled[:257], key=lambda pair: (pair.rate, pair.mu))
    for group in [ordered[start : start + 4] for start in range(0, 257, 4)]:
        strength = extreme(pair.mu for pair in group), extreme(pair.rate for pair in group)
        expected[SampledGaussianPair(*strength)] += sum(pairs[pair] for pair in group)
    strength = extreme(pair.mu for pair in sampled[257:]), extreme(pair.rate for pair in sampled[257:])
    expected[SampledGaussianPair(*strength, added=True)] += 6
    assert thinned(pairs, extreme) == expected
    few = dict(list(pairs.items())[:256])
    assert thinned(few, extreme) is few


def test_pairs_are_grouped_with_their_like_alone() -> None:
    families = [pair.family for pair in (SampledGaussianPair(1, 0.1), SampledGaussianPair(1, 0.1, added=True))]
    families += [SampledReplacementPair(1, 0.1).family]
    assert len(set(families)) == 3
    assert SampledReplacementPair(2, 0.3).family == families[2]
    assert {pair.family for pair in (GaussianPair(1.0), LaplacePair(1.0), Diluted(GaussianPair(1.0), 0.1))} == {None}


# Other libraries and other ways -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [*NORMAL[:4], SAMPLED[4]], ids=str)
def test_dp_accounting_computes_the_same_pair(pair: Any) -> None:
    theirs = pair.in_dp_accounting(1e-2)
    for epsilon in (0.1, 0.5):
        assert theirs.get_delta_for_epsilon(epsilon) == pytest.approx(hockey_stick(pair, epsilon), rel=5e-3, abs=1e-6)


@pytest.mark.parametrize("pair", [*ATOMIC, LaplacePair(0.7), DiscreteGaussianPair(2, 3.0)], ids=str)
def test_dp_accounting_computes_the_same_atoms(pair: Any) -> None:
    upper, lower = pair.masses(np.linspace(-4.0005, 4.0005, 8002))
    theirs = pair.in_dp_accounting(1e-4)
    for epsilon in (0.0, 0.13):
        delta = float(np.sum(np.maximum(upper - math.exp(epsilon) * lower, 0.0)))
        assert theirs.get_delta_for_epsilon(epsilon) == pytest.approx(delta, rel=1e-2)


def test_what_accountants_ask_of_gaussian_pairs() -> None:
    """The mu without sampling, and the noise multiplier and rate that other libraries know."""
    assert (GaussianPair(0.4).unsampled_mu, GaussianPair(0.4).sampled_gaussian) == (0.4, (2.5, 1.0))
    sampled = SampledGaussianPair(0.4, 0.1)
    assert (sampled.unsampled_mu, sampled.sampled_gaussian, sampled.sampled) == (0.4, (2.5, 0.1), True)
    replaced = SampledReplacementPair(0.4, 0.1)
    assert (replaced.unsampled_mu, replaced.sampled_gaussian, replaced.sampled) == (0.4, None, True)
    assert WithoutReplacementPair(0.4, 0.1).sampled
    assert Diluted(GaussianPair(0.4), 0.1).sampled
    assert not GaussianPair(0.4).sampled
    bound = MomentsOfGaussian(0.4)
    assert (bound.attained(), bound.unsampled_mu, bound.sampled_gaussian, bound.by_moments) == (
        None,
        math.inf,
        None,
        True,
    )
    assert bound.in_dp_accounting(0.1) is None
    assert (GaussianPair(0.4).pure_epsilon, GaussianPair(0.4).ratio_variance) == (math.inf, None)
