"""Noised labels: how likely each observation is, drawn and on paper, and tests that tell it from any other."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, kstest, laplace

from vflpriv.common.random import Stream
from vflpriv.core.law import Draws
from vflpriv.laws import Alibi, LabelSets, Laplace, RandomizedResponse
from vflpriv.laws.labels.label_sets import subset_law
from vflpriv.laws.laplace import LaplacePair
from vflpriv.laws.pairs import PurePair

CPU = torch.device("cpu")


def stream(replicas: int = 1) -> Draws:
    return Stream.of(0, "labels", list(range(replicas)), CPU)


class _Places:
    """Uniform numbers that are given, in place of a stream's."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def uniform(self, count: int, *path: int) -> torch.Tensor:
        assert count == len(self.values)
        return torch.tensor([self.values])


# Randomised response ------------------------------------------------------------------------------------------------


def test_a_label_is_kept_or_moved_on_by_its_uniform_numbers() -> None:
    """Of five classes, with the odds e^ε = 4 a label is kept up to 1/2, and then moved by one to four."""
    law = RandomizedResponse(math.log(4.0))
    assert law.kept(5) == pytest.approx(0.5)
    places = [(0.499, 0.9), (0.501, 0.0), (0.501, 0.26), (0.501, 0.6), (0.501, 0.99), (1.0, 1.0), (0.1, 0.0)]
    draws: Any = _Places([number for place in places for number in place])
    observed = law.observe(torch.tensor([[3, 3, 3, 3, 3, 3, 4]]), 5, draws)
    assert observed.argmax(-1).tolist() == [[3, 4, 0, 1, 2, 2, 4]]
    assert observed.sum(-1).eq(1).all()
    assert observed.dtype == torch.float32


@pytest.mark.parametrize(("epsilon", "classes"), [(1.3, 2), (0.4, 5)])
def test_responses_have_the_table_of_their_law(epsilon: float, classes: int) -> None:
    """Margin: seeds are fixed: the counts have p of 0.03 and more."""
    law = RandomizedResponse(epsilon)
    table = law.table(classes)
    keep = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    expected = np.full((classes, classes), (1 - keep) / (classes - 1)) + np.eye(classes) * (
        keep - (1 - keep) / (classes - 1)
    )
    np.testing.assert_allclose(table, expected, rtol=1e-12)
    labels = torch.arange(classes).repeat(2, 4000)
    observed = law.observe(labels, classes, stream(2))
    for label in range(classes):
        counts = observed[labels == label].sum(0).numpy()
        assert chisquare(counts, expected[label] * counts.sum()).pvalue > 1e-4
    assert law.evidence(observed).max() == pytest.approx(epsilon)
    assert (law.strength(7.0), law.label_epsilon, law.pair(7.0)) == (epsilon, epsilon, PurePair(epsilon))


# Subset selection ---------------------------------------------------------------------------------------------------


def told(classes: int, size: int, epsilon: float) -> float:
    """The mutual information of a uniform label and its set, less what does not depend on the size."""
    inside = size * math.exp(epsilon) / (size * math.exp(epsilon) + classes - size)
    outside = 1 - inside
    return inside * math.log(inside / size) + (outside * math.log(outside / (classes - size)) if outside else 0.0)


@pytest.mark.parametrize("classes", [2, 3, 10, 27])
@pytest.mark.parametrize("epsilon", [0.05, 0.7, 1.9, 5.0])
def test_sets_have_the_size_that_tells_most(classes: int, epsilon: float) -> None:
    size, inside = subset_law(classes, epsilon)
    best = max(range(1, classes), key=lambda d: told(classes, d, epsilon))
    assert size == best
    assert inside == pytest.approx(size * math.exp(epsilon) / (size * math.exp(epsilon) + classes - size))
    assert LabelSets(epsilon).kept(classes) == pytest.approx(inside / size)


def test_of_one_class_the_set_is_the_class_and_without_noise_any_set_is() -> None:
    assert subset_law(1, 0.5) == (1, 1.0)
    # Sets of two hold the label for certain, up to rounding, and yet tell less than the label alone.
    assert subset_law(3, 37.0)[0] == 1


def test_a_set_is_made_of_its_uniform_numbers() -> None:
    """Three of ten at ε = 1: the label comes first or last, and the largest of the other numbers beside it."""
    law, classes = LabelSets(1.0), 10
    size, inside = subset_law(classes, 1.0)
    assert size == 3
    order = [0.5, 0.9, 0.2, 0.8, 0.99, 0.1, 0.3, 0.4, 0.6, 0.7]
    for chance, pick, members, chosen in (
        (inside - 1e-4, 0.0, {2, 4, 1}, 2),
        (inside - 1e-4, 0.5, {2, 4, 1}, 4),
        (inside - 1e-4, 1.0, {2, 4, 1}, 1),
        (inside + 1e-4, 0.0, {4, 1, 3}, 4),
        (inside + 1e-4, 0.7, {4, 1, 3}, 3),
    ):
        draws: Any = _Places([*order, chance, pick])
        observed = law.observe(torch.tensor([[2]]), classes, draws)[0, 0]
        assert set(observed.nonzero()[:, 0].tolist()) == members
        assert int(observed.argmax()) == chosen
        assert sorted(observed[list(members)].tolist()) == [0.5, 0.5, 1.0]
        np.testing.assert_allclose(law.evidence(observed), 1.0 * (observed > 0))


@pytest.mark.parametrize(("epsilon", "classes"), [(0.5, 5), (2.0, 4)])
def test_sets_are_drawn_with_the_table_of_their_law(epsilon: float, classes: int) -> None:
    """Margin: seeds are fixed: the counts have p of 0.1 and more."""
    law = LabelSets(epsilon)
    size, inside = subset_law(classes, epsilon)
    sets = list(combinations(range(classes), size))
    weights = np.array([[math.exp(epsilon) if label in s else 1.0 for s in sets] for label in range(classes)])
    table = law.table(classes)
    np.testing.assert_allclose(table, weights / weights.sum(1, keepdims=True), rtol=1e-12)
    labels = torch.arange(classes).repeat(2, 3000)
    observed = law.observe(labels, classes, stream(2))
    members = observed > 0
    assert (observed.amax(-1) == 1.0).all()
    assert ((observed == 1.0).sum(-1) == 1).all()
    for label in range(classes):
        own = members[labels == label].numpy()
        counts = [int(own[:, list(chosen)].all(1).sum()) for chosen in sets]
        assert chisquare(counts, table[label] * sum(counts)).pvalue > 1e-4
    assert inside == pytest.approx(table[1][[1 in chosen for chosen in sets]].sum())


def test_too_many_sets_have_no_table() -> None:
    assert LabelSets(0.5).table(40) is None
    assert math.comb(20, subset_law(20, 0.5)[0]) > 100_000
    assert LabelSets(0.5).table(20) is None


# ALIBI --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("std", [0.4, 1.5, 7.0])
def test_alibi_costs_what_laplace_noise_on_labels_costs(std: float) -> None:
    law = Alibi(std)
    scale = std / math.sqrt(2)
    assert (law.laplace, law.deviation, str(law)) == (Laplace(scale), std, str(Laplace(scale)))
    assert law.label_epsilon == pytest.approx(2 / scale, rel=1e-12)
    assert law.strength(law.distance) == pytest.approx(law.label_epsilon, rel=1e-12)
    assert (law.distance, law.norm) == (2.0, law.laplace.norm)
    assert law.pair(1.0) == LaplacePair(1 / scale)
    # The scale in the sampler is rounded in its last digits: what an ε is turned into keeps a billionth of room.
    assert Alibi.std_for(law.label_epsilon) / std - 1 == pytest.approx(1e-9, rel=1e-3)


def test_alibi_observes_one_hot_labels_and_their_noise() -> None:
    """Margin: seeds are fixed: p is 0.29 and more."""
    law, labels = Alibi(1.5), torch.arange(6000).reshape(2, 3000) % 5
    observed = law.observe(labels, 5, stream(2))
    assert (observed.shape, observed.dtype) == ((2, 3000, 5), torch.float32)
    noise = (observed - torch.nn.functional.one_hot(labels, 5)).numpy()
    for entry in range(5):
        assert kstest(noise[..., entry].ravel(), laplace(scale=1.5 / math.sqrt(2)).cdf).pvalue > 1e-4


@pytest.mark.parametrize("std", [0.4, 2.0])
def test_evidence_is_the_likelihood_of_each_label(std: float) -> None:
    law, scale = Alibi(std), std / math.sqrt(2)
    observed = np.random.default_rng(1).normal(size=(1, 50, 3)) * 2
    logs = [laplace.logpdf(observed, np.eye(3)[label], scale).sum(-1) for label in range(3)]
    found = law.evidence(torch.from_numpy(observed)).numpy()
    np.testing.assert_allclose(found - found[..., :1], np.stack(logs, -1) - logs[0][..., None], atol=1e-9)


@pytest.mark.parametrize("std", [0.3, 1.5, 9.0])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_label_is_the_largest_as_often_as_an_integral_says(std: float, classes: int) -> None:
    law = laplace(scale=std / math.sqrt(2))
    x = np.concatenate(
        [np.linspace(-20 * std, 0, 40_001), np.linspace(0, 1, 4001), np.linspace(1, 1 + 20 * std, 40_001)]
    )
    expected = np.trapezoid(law.pdf(x - 1) * law.cdf(x) ** (classes - 1), x)
    assert Alibi(std).kept(classes) == pytest.approx(expected, abs=1e-6)
