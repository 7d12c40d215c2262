"""What laws and pairs declare of themselves agrees with what they do, and what they leave out counts for nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.contracts.test_laws import EVERY
from vflpriv.common.random import Stream
from vflpriv.core.law import Law
from vflpriv.laws import (
    CorrelatedGaussian,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    LabelSets,
    Laplace,
    RandomizedResponse,
)
from vflpriv.laws.correlated import toeplitz_encoder, tree_encoder
from vflpriv.laws.gaussian import GaussianPair
from vflpriv.laws.labels.law import LawAnswers
from vflpriv.laws.laplace import LaplacePair
from vflpriv.laws.pairs import Diluted, PurePair
from vflpriv.laws.skellam import Skellam


@pytest.mark.parametrize("law", EVERY, ids=str)
def test_a_law_that_measures_sizes_says_so(law: Law) -> None:
    try:
        measured = len(law.sizes(np.array([1.0, 2.0]))) == 2
    except NotImplementedError:
        measured = False
    assert law.bounds_size == measured


def test_laws_of_which_releases_compose_in_closed_form_say_so() -> None:
    """All of these are composed by their squared distances alone; of a discrete one that would be too little."""
    one, tree = Gaussian(2.0), CorrelatedGaussian(2.0, tree_encoder(2))
    discrete = [law(2.0, step=1.0) for law in (DiscreteGaussian, DiscreteLaplace, Skellam)]
    for law in (one, tree, Laplace(2.0), Exponential(2.0), *discrete):
        assert law.gaussian == (type(law.pair(1.0)) is GaussianPair)
    assert (one.independent, tree.independent) == (True, False)


@pytest.mark.parametrize("kind", [Gaussian, Laplace, DiscreteLaplace, DiscreteGaussian, Skellam])
def test_a_law_is_of_one_entry_unless_told(kind: type[Gaussian]) -> None:
    law = kind(2.0, step=0.25)
    assert law == kind(2.0, step=0.25, entries=1) != kind(2.0, step=0.25, entries=2)
    assert (law.entries, law.strength(1.0)) == (1, kind(2.0, step=0.25, entries=1).strength(1.0))


def test_a_tree_is_of_one_entry_and_any_distance_of_rounds_unless_told() -> None:
    encoder = tree_encoder(4)
    assert CorrelatedGaussian(2.0, encoder) == CorrelatedGaussian(2.0, encoder, separation=1, step=0.0, entries=1)


def test_pairs_are_reached_and_seen_unless_told() -> None:
    for pair in (PurePair(0.5), GaussianPair(0.5), LaplacePair(0.5)):
        assert pair.attained() == pair
    assert Diluted(LaplacePair(1.0), 0.25) == Diluted(LaplacePair(1.0), 0.25, hidden=False)


def test_columns_that_do_not_overlap_add_their_squares_alone() -> None:
    """A band of two: rounds that are two apart share no output, and nearer ones do not count."""
    assert toeplitz_encoder((1.0, 0.5), 3) == ((1.0, 0.0, 0.0), (0.5, 1.0, 0.0), (0.0, 0.5, 1.0))
    law = CorrelatedGaussian(2.0, toeplitz_encoder((1.0, 0.5), 6), separation=2)
    for count in (1, 2, 3):
        assert law.factor(count) == pytest.approx(math.sqrt(1.25 * count))


def test_answers_have_the_table_of_their_law_where_it_has_one() -> None:
    stream = Stream.of(0, "labels", [0], torch.device("cpu"))
    few = LawAnswers(RandomizedResponse(1.0), 4, stream).table()
    assert few is not None
    assert few.tolist() == RandomizedResponse(1.0).table(4).tolist()
    assert (few.dtype, few.shape) == (torch.float64, (4, 4))
    assert LawAnswers(LabelSets(1.0), 60, stream).table() is None  # of more sets than are written down


def test_a_changed_label_moves_a_value_by_1_where_its_law_has_no_norm() -> None:
    for law in (RandomizedResponse(0.7), LabelSets(0.7)):
        assert (law.norm, law.distance, law.label_epsilon) == (None, 1.0, pytest.approx(0.7))
