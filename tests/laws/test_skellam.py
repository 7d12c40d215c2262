"""Skellam noise against the difference of Poisson numbers, its published bound, dp_accounting, and its own sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest, skellam

from tests.accountants.exposures import event, expose
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.common.random import SecretStream, Stream
from vflpriv.common.seeds import SecretKey
from vflpriv.laws import Gaussian
from vflpriv.laws.skellam import Skellam, SkellamMoments, SkellamPair, log_masses

CPU = torch.device("cpu")


@pytest.mark.parametrize("variance", [0.3, 4.0, 150.0, 1e6])
def test_masses_are_those_of_the_difference_of_two_poisson_numbers(variance):
    k = np.arange(0, math.ceil(9 * math.sqrt(variance)) + 9, dtype=np.float64)
    theirs = skellam.pmf(k, variance / 2, variance / 2)
    np.testing.assert_allclose(np.exp(log_masses(k, variance)), theirs, rtol=1e-6, atol=1e-20)


@pytest.mark.parametrize("variance", [0.5, 30.0, 5000.0])
def test_masses_too_small_for_a_number_follow_the_recurrence_of_bessel_functions(variance):
    """I_{k-1} - I_{k+1} = (2k/v) I_k, on both sides of where the numbers underflow."""
    k = np.arange(0, 400 if variance < 100 else 4200, dtype=np.float64)
    logs = log_masses(k, variance)
    before, here, after = logs[:-2], logs[1:-1], logs[2:]
    ratio = np.exp(before - here) - np.exp(after - here)
    assert logs[-1] < -700
    np.testing.assert_allclose(ratio, 2 * k[1:-1] / variance, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", ["seeded", "secret"])
@pytest.mark.parametrize("law", [Skellam(1.2), Skellam(0.75, 0.25)], ids=str)
def test_draws_occur_as_often_as_the_law_says(law, kind):
    seeded = Stream.of(0, "noise", [0], CPU)
    source = seeded if kind == "seeded" else SecretStream(SecretKey.fresh(), "noise", [0], CPU)
    steps = law.draw(source, 60_000, 1)[0].numpy()
    near = np.clip(steps, -8, 8)
    counts = np.array([(near == k).sum() for k in range(-8, 9)])
    inner = skellam.pmf(np.arange(-7, 8), law.variance / 2, law.variance / 2)
    outer = (1 - inner.sum()) / 2
    expected = 60_000 * np.concatenate([[outer], inner, [outer]])
    kept = expected > 5
    rest = np.append(counts[kept], counts[~kept].sum()), np.append(expected[kept], expected[~kept].sum())
    observed, wanted = (side if rest[1][-1] > 5 else side[:-1] for side in rest)
    # Margin: one of 10,000 samples of the right law has a smaller p-value.
    assert chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 1e-4


def test_noise_that_parties_add_is_noise_of_the_sum_of_their_variances():
    shares = [Skellam(1.0, 0.5), Skellam(1.5, 0.5), Skellam(0.5, 0.5)]
    total = torch.zeros(1, 50_000)
    for number, law in enumerate(shares):
        total = law.release(total, law.draw(Stream.of(0, "noise", [0], CPU), 50_000, 1, number))
    joint = Skellam(math.sqrt(sum(law.std**2 for law in shares)), 0.5)
    values, random = total.double().numpy(), np.random.default_rng(0)
    for law, holds in ((joint, True), (joint.scaled(0.9), False), (joint.scaled(1.1), False)):
        scores = law.scores(values, np.zeros_like(values), random)
        # Margin: p-values of 10 % more or less noise are below 1e-15.
        assert (kstest(np.ravel(scores), "norm").pvalue > 1e-4) == holds


@pytest.mark.parametrize(("shift", "variance"), [(1, 0.8), (3, 6.0), (7, 90.0)])
def test_losses_are_those_of_the_weights_and_rise(shift, variance):
    losses, upper, lower = SkellamPair(shift, variance).atoms()
    assert math.fsum(upper) == pytest.approx(1.0, abs=1e-12)
    assert math.fsum(lower) == pytest.approx(1.0, abs=1e-12)
    assert np.all(np.diff(losses) > 0)
    known = (upper > 1e-290) & (lower > 1e-290)
    np.testing.assert_allclose(losses[known], np.log(upper[known] / lower[known]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("shift", "variance"), [(1, 0.8), (2, 6.0), (5, 400.0)])
def test_the_published_bound_holds_for_exact_moments_and_is_near_them(shift, variance):
    orders = (1.25, 1.5, 2.0, 3.0, 4.5, 8.0)
    exact = SkellamPair(shift, variance).moments(orders, fast=False)
    bound = SkellamMoments(shift, shift, variance).moments(orders, fast=False)
    assert np.all(exact <= bound * (1 + 1e-9))
    at_whole = np.array([a == int(a) for a in orders])
    assert variance < 100 or np.all(bound[at_whole] <= exact[at_whole] * 1.02)


def test_orders_beyond_the_listed_losses_are_bounded():
    pair = SkellamPair(5, 4.0)
    values = pair.moments((2.0, 8.0, 512.0), fast=False)
    assert np.all(np.diff(values) > 0)
    assert values[2] == SkellamMoments(5, 5, 4.0).moments((512.0,), fast=False)[0]


def test_several_entries_have_a_bound_on_moments_above_what_any_split_has():
    """A change of D₂² = 9 steps squared as one step of 3, or as 9 entries of 1: both below the bound of 9 entries."""
    law = Skellam(4.0, entries=9, rounds=False)
    pair, orders = law.pair(3.0), (2.0, 3.0, 6.0)
    assert pair.by_moments
    bound = pair.moments(orders, fast=False)
    assert np.all(SkellamPair(3, 16.0).moments(orders, fast=False) <= bound)
    assert np.all(9 * SkellamPair(1, 16.0).moments(orders, fast=False) <= bound)
    with pytest.raises(NotImplementedError):
        pair.masses(np.array([0.0, 1.0]))


@pytest.mark.parametrize("law", [Skellam(3.0), Skellam(4.0, 0.01, 16)], ids=str)
def test_it_costs_about_what_a_gaussian_of_its_size_does(law):
    """In the far tails its losses grow more slowly, which shows in one coarse release; several entries are a bound."""
    for count in (1, 8):
        own = AutoAccountant().budget(expose(event(law, 1.0, count)), 1e-5).upper
        gaussian = AutoAccountant().budget(expose(event(Gaussian(law.std), 1.0, count)), 1e-5).upper
        assert gaussian * 0.8 < own < gaussian * 1.35
        assert own <= RdpAccountant().budget(expose(event(law, 1.0, count)), 1e-5).upper * (1 + 1e-9)
    assert law.strength(1.0) > 1.0 / law.std


def test_dp_accounting_composes_the_same_losses():
    law = Skellam(2.0)
    theirs = law.pair(1.0).in_dp_accounting(1e-4).self_compose(5).get_epsilon_for_delta(1e-6)
    budget = PrvAccountant().budget(expose(event(law, 1.0, 5)), 1e-6)
    assert budget.lower <= theirs * (1 + 1e-6)
    assert budget.upper == pytest.approx(theirs, rel=5e-3)


def test_nothing_costs_nothing_and_without_noise_everything():
    assert Skellam(2.0).strength(0.0) == 0.0
    assert Skellam(0.0).strength(1.0) == math.inf
    assert Skellam.of_deviation(0.3).deviation == pytest.approx(0.3, rel=1e-9)
