"""Composition against simulation: the mechanism is run many times, and what its outputs tell is within the budget.

The simulation knows nothing of dominating pairs: it draws batches and noise, and weighs each output by the two worlds'
own densities. delta(eps) = E[(1 - e^{eps - L})_+] over outputs of the first world, a mean of numbers in [0, 1].
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.core.ledger import SampledRelease, Sampling, join
from vflpriv.core.units import Unit
from vflpriv.laws import Gaussian, Laplace, RandomizedResponse

RUNS = 200_000
SIGMAS = 4.5  # a test with the right answer fails once in 150 000 seeds


def normal(x, center):
    return -((x - center) ** 2) / 2


def hockey_stick(losses, epsilon):
    """The estimate of delta(epsilon), and a generous bound on its error (with one count to spare for rare events)."""
    values = np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - losses)))
    return values.mean(), SIGMAS * math.sqrt(values.var() / len(values)) + SIGMAS**2 / len(values)


def agree(budget, *directions):
    """The truth at the two ends of the budget lies on the two sides of delta, up to the simulation's error."""
    at_upper = [hockey_stick(losses, budget.upper) for losses in directions]
    at_lower = [hockey_stick(losses, budget.lower) for losses in directions]
    assert all(delta - error <= budget.delta for delta, error in at_upper)
    assert any(delta + error >= budget.delta for delta, error in at_lower)


def poisson_sum(rng, rounds, rate, mine, other, std):
    """Losses of `rounds` noised sums to which the record adds `mine` in the first world and `other` in the second."""
    member = rng.random((RUNS, rounds)) < rate
    output = (member * mine) / std + rng.standard_normal((RUNS, rounds))

    def density(value):
        return np.logaddexp(math.log1p(-rate) + normal(output, 0), math.log(rate) + normal(output, value / std))

    return (density(mine) - density(other)).sum(axis=1)


@pytest.mark.parametrize(("rate", "std", "rounds", "delta"), [(0.1, 0.7, 6, 0.05), (0.3, 1.5, 12, 0.02)])
def test_poisson_add_remove(rate, std, rounds, delta):
    rng = np.random.default_rng(1)
    budget = AutoAccountant().budget(expose(event(Gaussian(std), 1.0, rounds, rate)), delta)
    agree(budget, poisson_sum(rng, rounds, rate, 1.0, 0.0, std), poisson_sum(rng, rounds, rate, 0.0, 1.0, std))


@pytest.mark.parametrize(("rate", "std", "rounds", "delta"), [(0.1, 0.7, 6, 0.05), (0.3, 1.5, 12, 0.02)])
def test_poisson_replace_one(rate, std, rounds, delta):
    rng = np.random.default_rng(2)
    budget = AutoAccountant().budget(expose(event(Gaussian(std), 2.0, rounds, rate), unit=Unit.LABEL), delta)
    agree(budget, poisson_sum(rng, rounds, rate, 1.0, -1.0, std))


def test_two_releases_of_one_batch():
    """Both sums read the same batch: together they tell more than two sums with a batch each."""
    rng, rate, stds, rounds, delta = np.random.default_rng(7), 0.1, (0.8, 0.6), 5, 0.05
    every = np.ones(rounds, dtype=bool)
    pair = [
        SampledRelease(kind=f"{std}", noise=Gaussian(std), sensitivity=1.0, hidden=1.0, rounds=every) for std in stds
    ]
    joined = join(pair, "poisson", rate, 1)
    assert joined.as_known == []
    budget = AutoAccountant().budget(expose(*(term.event(0) for term, _ in joined.terms)), delta)
    naive = AutoAccountant().budget(expose(*(event(Gaussian(std), 1.0, rounds, rate) for std in stds)), delta)

    def losses(mine, other):
        member = rng.random((RUNS, rounds)) < rate
        outputs = [member * mine / std + rng.standard_normal((RUNS, rounds)) for std in stds]

        def density(value):
            there = sum(normal(x, value / std) for x, std in zip(outputs, stds, strict=True))
            return np.logaddexp(math.log1p(-rate) + sum(normal(x, 0) for x in outputs), math.log(rate) + there)

        return (density(mine) - density(other)).sum(axis=1)

    removed, added = losses(1.0, 0.0), losses(0.0, 1.0)
    agree(budget, removed, added)
    value, error = hockey_stick(removed, naive.upper)
    assert value - error > delta, "counting them apart would be below the truth"


def test_a_budget_that_is_five_percent_off_is_caught():
    rng, rate, std, rounds, delta = np.random.default_rng(3), 0.1, 0.7, 6, 0.05
    budget = AutoAccountant().budget(expose(event(Gaussian(std), 1.0, rounds, rate)), delta)
    losses = poisson_sum(rng, rounds, rate, 1.0, 0.0, std), poisson_sum(rng, rounds, rate, 0.0, 1.0, std)
    for factor in (0.95, 1.05):
        values = {name: factor * getattr(budget, name) for name in ("lower", "estimate", "upper")}
        with pytest.raises(AssertionError):
            agree(replace(budget, **values), *losses)


def laplace(rng, count, shift, scale):
    noise = rng.laplace(size=(RUNS, count))
    return (np.abs(noise - shift / scale) - np.abs(noise)).sum(axis=1)


def coins(rng, count, epsilon):
    right = rng.random((RUNS, count)) < 1 / (1 + math.exp(-epsilon))
    return np.where(right, epsilon, -epsilon).sum(axis=1)


def gaussians(rng, count, shift, std):
    noise = rng.standard_normal((RUNS, count))
    return (normal(noise, 0) - normal(noise, -shift / std)).sum(axis=1)


def test_a_mix_of_noises():
    rng, delta = np.random.default_rng(4), 0.05
    mix = expose(
        event(Gaussian(3.0), 2.0, 4),
        event(Gaussian(5.0), 2.0, 3),
        event(Gaussian(0.8), 2.0, 5, 0.1),
        event(Laplace(3.0), 1.0, 2),
        event(RandomizedResponse(0.4), 1.0, 3),
        unit=Unit.LABEL,
    )
    losses = gaussians(rng, 4, 2.0, 3.0) + gaussians(rng, 3, 2.0, 5.0) + poisson_sum(rng, 5, 0.1, 1.0, -1.0, 0.8)
    agree(AutoAccountant().budget(mix, delta), losses + laplace(rng, 2, 1.0, 3.0) + coins(rng, 3, 0.4))


@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_rows_that_show_who_takes_part(delta):
    rng, rate, std, rounds = np.random.default_rng(5), 0.2, 1.0, 4
    seen = replace(event(Gaussian(std), 2.0, rounds), sampling=Sampling("poisson-seen", rate))
    noise = rng.standard_normal((RUNS, rounds))
    loss = normal(noise, 0) - normal(noise, -2.0 / std)
    losses = np.where(rng.random((RUNS, rounds)) < rate, loss, 0.0).sum(axis=1)
    agree(AutoAccountant().budget(expose(seen, unit=Unit.FEATURES), delta), losses)


def fixed_size(rng, rounds, mine, other, rest, size, std):
    """Losses when `size` of the records (the first is replaced) are drawn anew each round, by all possible batches."""
    worlds = [np.array([first, *rest]) for first in (mine, other)]
    batches = [list(batch) for batch in combinations(range(len(rest) + 1), size)]
    sums = [np.array([world[batch].sum() for batch in batches]) / std for world in worlds]
    output = sums[0][rng.integers(len(batches), size=(RUNS, rounds))] + rng.standard_normal((RUNS, rounds))

    def density(centers):
        values, times = np.unique(centers, return_counts=True)
        return np.log(sum(n * np.exp(normal(output, value)) for value, n in zip(values, times, strict=True)))

    return (density(sums[0]) - density(sums[1])).sum(axis=1)


@pytest.mark.parametrize("rest", [(-1, -1, -1, -1), (1, 1, 1, 1), (1, -1, 1, -1), (0, 0, 0, 0)])
def test_fixed_size_without_replacement(rest):
    rng, size, std, rounds, delta = np.random.default_rng(6), 2, 1.2, 3, 0.05
    sampled = replace(event(Gaussian(std), 2.0, rounds), sampling=Sampling("without-replacement", size / 5))
    budget = AutoAccountant().budget(expose(sampled, unit=Unit.RECORD), delta)
    found = [fixed_size(rng, rounds, a, b, rest, size, std) for a, b in ((1, -1), (-1, 1), (0, 1), (1, 0))]
    at_upper = [hockey_stick(losses, budget.upper) for losses in found]
    assert all(value - error <= delta for value, error in at_upper)
    if abs(sum(rest)) == 4:
        # Records that all differ from the replaced one attain the lower bound.
        assert any(value + error >= delta for value, error in (hockey_stick(x, budget.lower) for x in found))
