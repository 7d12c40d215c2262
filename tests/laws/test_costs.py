"""What single laws cost and answer, as numbers: strengths with their rounding, scores, sizes, and their tails."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import chi2, gamma, laplace, norm

from vflpriv.common.random import Stream
from vflpriv.laws import CorrelatedGaussian, Exact, Exponential, Gaussian, Laplace, Opaque
from vflpriv.laws.correlated import toeplitz_encoder, tree_encoder
from vflpriv.laws.gaussian import GaussianPair
from vflpriv.laws.laplace import LaplacePair, standard_laplace
from vflpriv.laws.pairs import PurePair
from vflpriv.laws.sampled import SampledGaussianPair, SampledReplacementPair, WithoutReplacementPair

RANDOM = np.random.default_rng(0)
CPU = torch.device("cpu")


# Steps --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "distance", "entries", "step"),
    [
        (Gaussian(1.0), math.inf, 1, 2.0**-12),
        (Gaussian(3.0), math.inf, 1, 2.0**-11),
        (Gaussian(3.0), 1.0, 1, 2.0**-26),
        (Gaussian(3.0), 1.0, 100, 2.0**-30),
        (Gaussian(3.0), 1.0, 5, 2.0**-28),
        (Laplace(3.0), 1.0, 100, 2.0**-33),
        (Laplace(3.0), 1.0, 5, 2.0**-29),
        (Gaussian(1.0), 1e-30, 1, 2.0**-48),
        (Gaussian(7.0), 1e-30, 4, 2.0**-46),
        (Gaussian(1e-9), 1.0, 1, 2.0 ** (-30 - 12)),
        (CorrelatedGaussian(3.0, tree_encoder(2)), 1.0, 100, 2.0**-30),
    ],
    ids=str,
)
def test_steps_are_powers_of_two_below_every_limit(law: Any, distance: float, entries: int, step: float) -> None:
    """A share of the noise, a share of the distance over the entries, and no more than 2⁴⁸ of them in the noise."""
    gridded = law.on_grid(distance, entries)
    assert (gridded.step, gridded.entries, gridded.level) == (step, entries, law.level)
    root = entries if law.norm == 1 else math.sqrt(entries)
    assert gridded.rounding == pytest.approx(step * root)
    assert gridded.apart(distance) == pytest.approx(distance + step * root)
    assert (gridded.apart(0.0), gridded.drawn, law.drawn, law.rounding) == (0.0, entries, 0, 0.0)


def test_rounding_is_in_every_strength() -> None:
    normal, sharp = Gaussian(2.0, step=0.25, entries=16), Laplace(2.0, step=0.25, entries=16)
    assert (normal.strength(3.0), sharp.strength(3.0)) == (2.0, 3.5)
    assert (normal.pair(3.0), sharp.pair(3.0)) == (GaussianPair(2.0), LaplacePair(3.5))
    assert (Gaussian(2.0).strength(3.0), Laplace(2.0).strength(3.0)) == (1.5, 1.5)
    assert float(normal.square(3.0, 5)) == 20.0
    tree = CorrelatedGaussian(2.0, tree_encoder(2), step=0.25, entries=16)
    assert tree.strength(3.0) == pytest.approx(2 * math.sqrt(2))
    assert tree.pair(3.0) == GaussianPair(tree.strength(3.0))
    assert tree.square(3.0, np.array([[1, 2], [2, 1]])) == pytest.approx(np.array([[8.0, 24.0], [24.0, 8.0]]))
    assert (tree.square(3.0, 1), tree.attains(1), tree.attains(2)) == (pytest.approx(8.0), True, False)
    assert (Gaussian(2.0).joint, Gaussian(2.0).deviation) == (Gaussian(1.0), 2.0)
    assert Laplace(3.0).deviation == pytest.approx(math.sqrt(18.0))


def test_secret_batches_choose_their_pair() -> None:
    """With the rounding of the record and that of what it is added to: twice a step in each entry."""
    law, mu = Gaussian(2.0, step=0.25, entries=16), 2.5
    pairs = {
        (fixed, one_sided): law.sampled_pair(3.0, 0.1, fixed=fixed, one_sided=one_sided)
        for fixed in (True, False)
        for one_sided in (True, False)
    }
    assert {key: pair for key, (pair, _) in pairs.items()} == {  # type: ignore[misc]
        (True, True): WithoutReplacementPair(mu, 0.1),
        (True, False): WithoutReplacementPair(mu, 0.1),
        (False, True): SampledGaussianPair(mu, 0.1),
        (False, False): SampledReplacementPair(mu, 0.1),
    }
    assert len({note for _, note in pairs.values()}) == 3  # type: ignore[misc]
    assert Laplace(2.0).sampled_pair(3.0, 0.1, fixed=False, one_sided=True) is None


# Scores and sizes ---------------------------------------------------------------------------------------------------


def test_scores_are_quantiles() -> None:
    noise = np.array([-60.0, -4.0, -0.3, 0.2, 1.7, 80.0])
    np.testing.assert_allclose(Gaussian(2.5).scores(noise, noise, RANDOM), noise / 2.5)
    places = laplace.logcdf(-np.abs(noise), scale=2.5)
    expected = np.sign(noise) * -norm.ppf(np.exp(places))
    np.testing.assert_allclose(Laplace(2.5).scores(noise, noise, RANDOM), expected, rtol=1e-9)


def test_tails_of_summed_sizes_are_those_of_gamma_laws() -> None:
    values, totals, counts = np.array([-3.0, 0.5, 2.0]), np.array([0.4, 3.0, 20.0]), np.array([1, 7, 50])
    np.testing.assert_allclose(Gaussian(2.5).sizes(values), values**2 / 12.5)
    np.testing.assert_allclose(Gaussian(2.5).lower_tail(totals, counts), chi2.cdf(2 * totals, counts), rtol=1e-9)
    np.testing.assert_allclose(Laplace(2.5).sizes(values), np.abs(values) / 2.5)
    np.testing.assert_allclose(Laplace(2.5).lower_tail(totals, counts), gamma.cdf(totals, counts), rtol=1e-9)


def test_quantiles_of_laplace_noise_are_cut_off() -> None:
    places = torch.tensor([1e-3, 0.2, 0.5, 0.7, 0.9999], dtype=torch.float64)
    np.testing.assert_allclose(standard_laplace(places), laplace.ppf(places), rtol=1e-9, atol=1e-12)
    ends = standard_laplace(torch.tensor([0.0, 1e-9, 1.0], dtype=torch.float64))
    np.testing.assert_allclose(ends, [-math.log(5e6), -math.log(5e6), math.log(5e6)], rtol=1e-6)


# The exponential mechanism ------------------------------------------------------------------------------------------


class _Places:
    def __init__(self, values: list[float]) -> None:
        self.values = values

    def uniform(self, count: int, *path: int) -> torch.Tensor:
        return torch.tensor([self.values[:count]], dtype=torch.float64)


def test_choices_are_the_largest_of_utilities_with_gumbel_noise() -> None:
    law, draws = Exponential(2.0), _Places([0.5, 0.9, 1.0, 1e-3])
    source: Any = draws
    gumbel = law.draw(source, 4)
    expected = [-math.log(-math.log(0.5)), -math.log(-math.log(0.9)), 30 * math.log(10), -math.log(-math.log(1e-3))]
    np.testing.assert_allclose(gumbel[0], expected, rtol=1e-9)
    utilities = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 0.0, 3.0]]])
    noise = torch.tensor([[[0.0, 0.6, 0.4], [1.4, 1.6, 0.0]]])
    released = law.release(utilities, noise)
    assert released.tolist() == [[[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]]
    assert released.dtype == utilities.dtype


def test_choices_cost_twice_their_sensitivity_unless_all_change_alike() -> None:
    assert (Exponential(2.0).strength(3.0), Exponential(2.0, monotonic=True).strength(3.0)) == (3.0, 1.5)
    assert Exponential(2.0).pair(3.0) == PurePair(3.0, bound=True)
    assert (Exponential.selects, Exponential.norm) == (True, math.inf)
    table = Exponential(2.0).table(4)
    np.testing.assert_allclose(table, softmax(np.eye(4), axis=1), rtol=1e-12)


def test_scores_of_choices_fill_the_odds_from_the_best_candidate_on() -> None:
    utilities = np.array([0.5, 2.0, -1.0])
    odds = softmax(utilities / 0.7)
    upper = {1: odds[1], 0: odds[1] + odds[0], 2: 1.0}
    for chosen in range(3):
        signal = np.tile(utilities, (2, 1000, 1))
        noise = np.eye(3)[chosen] - signal
        places = norm.cdf(Exponential(0.7).scores(noise, signal, np.random.default_rng(1)))
        assert places.min() == pytest.approx(upper[chosen] - odds[chosen], abs=2e-3)
        assert places.max() == pytest.approx(upper[chosen], abs=2e-3)
        assert places.mean() == pytest.approx(upper[chosen] - odds[chosen] / 2, abs=0.02)
    sure = Exponential(1e-3).scores(np.array([[0.0, -2.0]]), np.array([[1.0, 2.0]]), np.random.default_rng(1))
    assert sure[0, 0] == pytest.approx(norm.ppf(1 - 1e-16))


# No noise -----------------------------------------------------------------------------------------------------------


def test_without_noise_everything_is_lost_but_what_does_not_change() -> None:
    law = Exact()
    assert (law.strength(1e-9), law.strength(0.0)) == (math.inf, 0.0)
    assert (law.exact, law.noised) == (True, False)
    values = torch.tensor([[1.0, 2.0]])
    assert law.release(values, law.draw(Stream.of(0, "noise", [0], CPU), 2, 1)) is values
    with pytest.raises(ValueError, match="found none"):
        law.pair(1.0)


@pytest.mark.parametrize(
    ("readers", "clear"),
    [
        ((), {"model"}),
        (("server",), {"model", "server"}),
        (("device",), {"model", "device", "devices"}),
        (("devices",), {"model", "device", "devices"}),
        (("server", "devices"), {"model", "server", "device", "devices"}),
    ],
)
def test_ciphertext_is_clear_to_whoever_holds_the_key_or_the_model(readers: tuple[str, ...], clear: set[str]) -> None:
    law = Opaque("AES", frozenset(readers))
    for adversary in ("model", "server", "device", "devices", "eavesdropper", "outsider"):
        assert law.hides_from(adversary) == (adversary not in clear)
        assert law.observed_by(adversary) == (Exact() if adversary in clear else None)
    assert (law.sealed_by, law.noised, law.exact) == ("AES", False, False)


# Noise of all rounds ------------------------------------------------------------------------------------------------


def brute(encoder: np.ndarray, separation: int, count: int) -> float:
    """The largest squared norm of signed columns of a record's rounds, over all ways to take part."""
    rounds, worst = encoder.shape[1], 0.0
    for mask in range(1 << rounds):
        taken = [t for t in range(rounds) if mask >> t & 1]
        if len(taken) == count and all(b - a >= separation for a, b in pairwise(taken)):
            for signs in range(1 << count):
                signed = [(-1) ** (signs >> i & 1) for i in range(count)]
                worst = max(worst, float(np.square(encoder[:, taken] @ np.array(signed)).sum()))
    return worst


@pytest.mark.parametrize(
    ("separation", "count", "square"),
    [
        (1, 1, 3),
        (1, 2, 10),
        (1, 3, 18),
        (1, 4, 28),
        (1, 5, 56),
        (1, 9, 84),
        (2, 2, 8),
        (2, 3, 18),
        (3, 2, 8),
        (3, 3, 18),
    ],
)
def test_participations_in_a_tree_are_counted_on_paper(separation: int, count: int, square: float) -> None:
    """Four rounds: a column has the square 3, neighbours under one node the product 2, the others 1.

    k participations cost at most k times the largest row; if there is no room for them at the separation, at any
    distance; and of more than there are rounds the others belong to further trainings.
    """
    law = CorrelatedGaussian(2.0, tree_encoder(4), separation=separation)
    assert law.factor(count) == pytest.approx(math.sqrt(square))


@pytest.mark.parametrize("separation", [1, 2, 3])
@pytest.mark.parametrize(
    "encoder", [tree_encoder(5), toeplitz_encoder((1.0, 0.5, 0.25), 5), toeplitz_encoder((1.0, -0.7), 5)]
)
def test_no_participation_moves_a_release_by_more_than_is_counted(encoder: Any, separation: int) -> None:
    law, matrix = CorrelatedGaussian(2.0, encoder, separation=separation), np.array(encoder)
    for count in range(1, -(-5 // separation) + 1):
        assert brute(matrix, separation, count) <= law.factor(count) ** 2 * (1 + 1e-12)
    assert law.factor(1) ** 2 == pytest.approx(brute(matrix, separation, 1))


@pytest.mark.parametrize("encoder", [tree_encoder(3), toeplitz_encoder((1.0, 0.5), 4)])
def test_noise_of_all_rounds_is_the_decoder_times_normals(encoder: Any) -> None:
    """Its covariance between rounds, and normals that are independent again once it is taken apart."""
    law, rounds = CorrelatedGaussian(1.5, encoder), len(encoder[0])
    stream = Stream.of(0, "noise", [0], CPU)
    drawn = torch.stack([law.draw(stream, 8000, t, 1)[0] for t in range(rounds)]).numpy() * 1.5
    decoder = np.linalg.pinv(np.array(encoder)) * 1.5
    covariance = decoder @ decoder.T
    np.testing.assert_allclose(np.cov(drawn), covariance, atol=0.1)
    np.testing.assert_allclose(np.cov(law.whitened(drawn)), np.eye(rounds), atol=0.07)
    assert law.deviation == pytest.approx(math.sqrt(covariance.diagonal().min()))
    assert f"factor={law.factor(1):.6g}" in str(law)


def test_further_bits_of_noise_of_all_rounds_are_those_of_one_round() -> None:
    """The uniform part of a draw is drawn anew in every round, for every party."""
    law = CorrelatedGaussian(1.5, tree_encoder(2)).on_grid(1e-30, 1)
    stream, ideal = Stream.of(0, "noise", [0], CPU), CorrelatedGaussian(1.5, tree_encoder(2))
    draws = {path: law.draw(stream, 50, *path) for path in ((0, 1), (0, 2), (1, 1))}
    assert not any(torch.equal(draws[0, 1], other) for other in (draws[0, 2], draws[1, 1]))
    assert float((draws[0, 1] - ideal.draw(stream, 50, 0, 1)).abs().max()) < 0.07


def test_an_encoder_has_one_independent_column_for_each_round() -> None:
    for wrong in (((1.0, 0.0), (1.0,)), ((1.0, 1.0), (2.0, 2.0)), ((1.0, 2.0),)):
        with pytest.raises(ValueError, match="one independent column"):
            CorrelatedGaussian(1.0, wrong)
    assert tree_encoder(3)[-1] == (1.0, 1.0, 1.0)
    assert len(tree_encoder(3)) == 6
    assert len(tree_encoder(1)) == 1
    assert toeplitz_encoder((1.0, 0.5, 0.2), 2) == ((1.0, 0.0), (0.5, 1.0))


@pytest.mark.parametrize("law", [Gaussian(2.0, step=0.25), Laplace(2.0, step=0.25)])
def test_a_number_is_rounded_by_itself_unless_there_are_more(law: Any) -> None:
    assert (law.rounding, law.drawn) == (0.25, 1)
