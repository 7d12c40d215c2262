"""Discrete noise against its weights added up one by one: losses, costs, draws, and tests of what was observed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import chisquare, norm

from vflpriv.common.random import Stream
from vflpriv.laws import DiscreteGaussian, DiscreteLaplace
from vflpriv.laws.discrete_gaussian import DiscreteGaussianPair, MomentsOfGaussian
from vflpriv.laws.discrete_laplace import DiscreteLaplacePair
from vflpriv.laws.grid import GridLaw, placed
from vflpriv.laws.pairs import PurePair

LAWS: list[Any] = [DiscreteGaussian(1.3, 0.5), DiscreteGaussian(2.1), DiscreteLaplace(0.7, 0.25), DiscreteLaplace(1.9)]


def weight(law: GridLaw, k: int) -> float:
    """Of k steps, up to a factor."""
    if isinstance(law, DiscreteGaussian):
        return math.exp(-((k * law.step) ** 2) / (2 * law.std**2))
    assert isinstance(law, DiscreteLaplace)
    return math.exp(-abs(k) * law.step / law.scale)


def masses(law: GridLaw, most: int = 300) -> np.ndarray:
    """The probability of -most, …, most steps."""
    weights = np.array([weight(law, k) for k in range(-most, most + 1)])
    return np.asarray(weights / math.fsum(weights))


# Losses -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shift", "std"), [(3, 1.7), (1, 0.6), (8, 5.3)])
def test_losses_of_discrete_gaussians_are_those_of_their_weights(shift: int, std: float) -> None:
    losses, upper, lower = DiscreteGaussianPair(shift, std).atoms()
    most = math.ceil(38 * std)
    x = np.arange(-most, most + shift + 1)
    assert losses.size == x.size
    for found, centre in ((upper, shift), (lower, 0)):
        weights = np.exp(-((x - centre) ** 2) / (2 * std**2))
        np.testing.assert_allclose(found, weights / weights.sum(), rtol=1e-12, atol=1e-300)
    known = (upper > 1e-290) & (lower > 1e-290)
    np.testing.assert_allclose(losses[known], np.log(upper[known] / lower[known]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("shift", "rate"), [(4, 0.3), (1, 1.1), (7, 0.05)])
def test_losses_of_discrete_laplace_noise_are_those_of_its_weights(shift: int, rate: float) -> None:
    x = np.arange(-2000, 2001)
    upper, lower = (np.exp(-rate * np.abs(x - centre)) * math.tanh(rate / 2) for centre in (shift, 0))
    expected = np.round((np.abs(x) - np.abs(x - shift)) * rate, 9)
    losses, found_upper, found_lower = DiscreteLaplacePair(shift, rate).atoms()
    np.testing.assert_allclose(losses, np.unique(expected), atol=1e-9)
    for found, own in ((found_upper, upper), (found_lower, lower)):
        sums = [own[expected == value].sum() for value in np.unique(expected)]
        np.testing.assert_allclose(found, sums, rtol=1e-9)
    assert DiscreteLaplacePair(shift, rate).pure_epsilon == pytest.approx(shift * rate, rel=1e-12)


# Costs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "sensitivity", "shift", "strength"),
    [
        (DiscreteGaussian(3.0), 1.2, 2.0, 2 / 3),
        (DiscreteGaussian(3.0, 0.5), 1.2, 3.0, 0.5),
        (DiscreteGaussian(3.0, 0.5), 1.5, 3.0, 0.5),
        (DiscreteGaussian(3.0, 0.5), 1.5 + 0.25e-9, 3.0, 0.5),
        (DiscreteGaussian(3.0, 0.5), 1.5 + 0.75e-9, 4.0, 2 / 3),
        (DiscreteGaussian(3.0, 0.5, rounds=False), 1.2, 3.0, 0.5),
        (DiscreteGaussian(3.0, 0.5, 16), 1.2, 2.4 + 4, 6.4 / 6),
        (DiscreteGaussian(3.0, 0.5, 2), 1.2, 2.4 + math.sqrt(2), (2.4 + math.sqrt(2)) / 6),
        (DiscreteGaussian(3.0, 0.5, 16, rounds=False), 1.2, 2.4, 0.4),
        (DiscreteLaplace(3.0), 1.2, 2.0, 2 / 3),
        (DiscreteLaplace(3.0, 0.5), 1.2, 3.0, 0.5),
        (DiscreteLaplace(3.0, 0.5, 9), 1.2, 2.4 + 9, 2.0),
        (DiscreteLaplace(3.0, 0.5, 9), 1.5, 12.0, 2.0),
        (DiscreteLaplace(3.0, 0.5, 9, rounds=False), 1.2, 2.4, 0.5),
        (DiscreteLaplace(3.0, 0.5, 9, rounds=False), 1.5 + 0.25e-9, 3.0, 0.5),
        (DiscreteLaplace(3.0, 0.5, 9, rounds=False), 1.5 + 0.75e-9, 3.0, 2 / 3),
    ],
    ids=str,
)
def test_neighbours_are_apart_by_whole_steps_and_their_rounding(
    law: Any, sensitivity: float, shift: float, strength: float
) -> None:
    """One entry moves to the next whole step; several by a step each, in L2 or in L1."""
    assert law.shift(sensitivity) == pytest.approx(shift, rel=1e-8)
    assert law.strength(sensitivity) == pytest.approx(strength, rel=1e-12)
    assert (law.strength(0.0), law.grid) == (0.0, law.step)


def test_a_pair_lists_its_losses_where_there_are_few() -> None:
    assert DiscreteGaussian(3.0, 0.5).pair(1.2) == DiscreteGaussianPair(3, 6.0)
    assert DiscreteGaussian(3.0, 0.5, 2).pair(1.2) == MomentsOfGaussian((2.4 + math.sqrt(2)) / 6)
    assert DiscreteGaussian(10_000.0, 0.5).pair(1.2) == DiscreteGaussianPair(3, 20_000.0)
    assert DiscreteGaussian(10_001.0, 0.5).pair(1.2) == MomentsOfGaussian(1.5 / 10_001)
    assert DiscreteLaplace(3.0, 0.5).pair(1.2) == DiscreteLaplacePair(3, 1 / 6)
    assert DiscreteLaplace(3.0, 0.5, 9).pair(1.5) == DiscreteLaplacePair(12, 1 / 6)
    fine = DiscreteLaplace(3.0, 2.0**-20)
    assert fine.pair(1e6 * fine.step) == DiscreteLaplacePair(1_000_000, fine.step / 3)
    assert fine.pair((1e6 + 1) * fine.step) == PurePair((1e6 + 1) * fine.step / 3)


def test_what_is_taken_for_granted_names_the_entries_and_the_step() -> None:
    said = [law.premises[0] for law in (DiscreteGaussian(3.0, 0.5), DiscreteGaussian(3.0, 0.25, 16))]
    assert said[0] == "a unit moves at most 1 entry of a release, rounded to steps of 0.5"
    assert said[1] == "a unit moves at most 16 entries of a release, rounded to steps of 0.25"
    assert "lie on a grid of step 0.5" in DiscreteLaplace(3.0, 0.5, rounds=False).premises[0]


# Draws --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_probabilities_and_deviation_are_those_of_the_weights(law: Any) -> None:
    expected, k = masses(law), np.arange(-300, 301)
    most = law.probabilities.size - 1
    np.testing.assert_allclose(law.probabilities, expected[300 : 300 + most + 1], rtol=1e-9)
    assert law.deviation == pytest.approx(law.step * math.sqrt(float(np.sum(expected * k**2))), rel=1e-9)
    # What is left out is less than 1e-25, and the table not much longer than that takes.
    assert 1e-70 < expected[300 + most + 1 :].sum() < 0.5e-25
    assert most == law.reach()


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_have_the_probabilities_of_both_signs(law: Any) -> None:
    """Margin: seeds are fixed, and what is drawn are whole numbers."""
    draws = law.draw(Stream.of(1, "noise", [0], torch.device("cpu")), 20_000, 2, 1)[0].numpy()
    expected = masses(law)[290:311]
    counts = np.array([np.sum(draws == k) for k in range(-10, 11)])
    often = expected > 2e-3
    rest = draws.size - counts[often].sum()
    shares = [*(expected[often] * draws.size), draws.size * (1 - expected[often].sum())]
    assert chisquare([*counts[often], rest], shares).pvalue > 1e-4
    released = law.release(torch.full((1, 20_000), 3.3 * law.step), torch.from_numpy(draws[None]))
    torch.testing.assert_close(released[0].double(), torch.from_numpy((draws + 3) * law.step))
    assert released.dtype == torch.float32


class _Elsewhere:
    """Draws on the CPU, as of values on a device that has no doubles."""

    device, dtype = "elsewhere", torch.float32

    def __init__(self, draws: torch.Tensor) -> None:
        self.draws = draws

    def to(self, target: torch.dtype) -> Any:
        return self.draws.to(target) if target is torch.int64 else _Elsewhere(self.draws.to(target))

    def mul(self, steps: float) -> _Elsewhere:
        return _Elsewhere(self.draws * steps)

    def round_(self) -> _Elsewhere:
        return _Elsewhere(self.draws.round())


def test_steps_that_lie_on_the_cpu_are_brought_to_the_values() -> None:
    values: torch.Tensor = torch.tensor([[0.3, 0.35, -1.2]])
    draws: Any = _Elsewhere(torch.tensor([[3.1, -0.9, 2.0]]))
    assert placed(values, draws, 0.25).tolist() == [[1.0, 0.0, -0.75]]
    assert placed(values, draws, 0.25, 2.0).tolist() == [[1.75, -0.25, -0.25]]
    here = torch.tensor([[3.1, -0.9, 2.0]])
    assert placed(values, here.double(), 0.25, 2.0).tolist() == [[1.75, -0.25, -0.25]]
    assert placed(values.double(), here, 0.25, 2.0).tolist() == [[1.75, -0.25, -0.25]]
    assert placed(values.double(), here.double(), 0.25).dtype == torch.float64


# Tests of what was observed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("k", [0, 1, -1, 3, -6])
def test_scores_fill_the_quantiles_of_what_was_drawn(law: Any, k: int) -> None:
    """Of noise of k steps they lie between the quantiles of "less than k" and "at most k", and fill that range."""
    probability, random = masses(law), np.random.default_rng(0)
    low, high = norm.ppf(probability[: 300 + k].sum()), norm.ppf(probability[: 301 + k].sum())
    signal = np.full(3000, 7.3 * law.step)
    noise = (7 + k) * law.step - signal
    scores = law.scores(noise, signal, random)
    assert low - 1e-9 <= scores.min() < scores.max() <= high + 1e-9
    places = (norm.cdf(scores) - norm.cdf(low)) / (norm.cdf(high) - norm.cdf(low))
    # Margin: NumPy draws the same from its seeds on every CPU: p is 0.02 and more.
    assert chisquare(np.histogram(places, 10, (0, 1))[0]).pvalue > 1e-4


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_what_the_law_never_draws_has_a_score_that_no_normal_has(law: Any) -> None:
    random, most = np.random.default_rng(0), law.probabilities.size - 1
    steps = np.array([most, most + 1, -most - 1, most + 2, 0.5, 1.002, 1.0005, -0.998])
    scores = law.scores(steps * law.step, np.zeros(8), random)
    assert (scores == 40.0).tolist() == [False, True, True, True, True, True, False, True]
    assert 10 < scores[0] < 40


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_tail_of_summed_sizes_is_chernoffs_bound(law: Any) -> None:
    """At the best exponent; never below the tail of three noises, counted out."""
    probability, k = masses(law, 60), np.arange(-60, 61)
    level = law.std if isinstance(law, DiscreteGaussian) else law.scale
    sizes = np.square(k * law.step / level) / 2 if isinstance(law, DiscreteGaussian) else np.abs(k * law.step / level)
    np.testing.assert_allclose(law.sizes(k * law.step), sizes, rtol=1e-12)
    mean = float(np.sum(probability * sizes))
    for total, count in ((0.3 * mean * 3, 3), (0.6 * mean * 40, 40)):

        def exponent(log_t: float, total: float = total, count: int = count) -> float:
            t = math.exp(log_t)
            return t * total + count * math.log(float(np.sum(probability * np.exp(-t * sizes))))

        best = minimize_scalar(exponent, bounds=(-9.0, 13.0), method="bounded", options={"xatol": 1e-9}).fun
        assert best <= math.log(law.lower_tail(total, count)) <= best * (1 - 0.01)
    threefold = np.add.outer(np.add.outer(sizes, sizes), sizes)
    chances = np.multiply.outer(np.multiply.outer(probability, probability), probability)
    assert float(chances[threefold <= 0.9 * mean].sum()) <= float(law.lower_tail(0.9 * mean, 3))
    assert float(law.lower_tail(10 * mean * 3, 3)) == 1.0
    assert law.lower_tail(np.array([0.9 * mean, 30 * mean]), np.array([3, 3])).shape == (2,)
