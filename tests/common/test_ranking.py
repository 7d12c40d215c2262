"""The area under the ROC curve against a count of all pairs."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from vflpriv.common.ranking import auc, class_auc


def by_pairs(scores: torch.Tensor, positive: torch.Tensor) -> float:
    pairs = list(product(scores[positive].tolist(), scores[~positive].tolist()))
    return sum((a > b) + 0.5 * (a == b) for a, b in pairs) / len(pairs)


def drawn(*shape: int) -> torch.Tensor:
    """Scores with many ties."""
    return torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(0)).float()


def test_it_counts_pairs_of_every_replica():
    scores, positive = drawn(3, 30), torch.arange(30) % 3 == 0
    found = auc(scores, positive)
    assert found.shape == (3,)
    assert found.tolist() == pytest.approx([by_pairs(own, positive) for own in scores])
    assert len(set(found.tolist())) == 3


def test_perfect_order_is_one_and_the_opposite_zero():
    scores = torch.arange(10.0)
    assert auc(scores, scores > 6).item() == 1.0
    assert auc(-scores, scores > 6).item() == 0.0


def test_scores_that_are_no_numbers_tell_nothing():
    nothing, positive = torch.full((2, 10, 2), math.nan), torch.arange(10) % 3 == 0
    assert auc(nothing[..., 0], positive).tolist() == [0.5, 0.5]
    assert class_auc(nothing, positive.long()).tolist() == [0.5, 0.5]
    one = torch.arange(10.0)
    one[3] = math.nan
    assert auc(one, positive).item() == pytest.approx(by_pairs(one.nan_to_num(-1.0), positive))


@pytest.mark.parametrize("positive", [torch.zeros(4, dtype=torch.bool), torch.ones(4, dtype=torch.bool)])
def test_without_both_sides_there_is_none(positive):
    assert math.isnan(auc(torch.arange(4.0), positive).item())


def test_two_classes_are_ranked_by_the_second():
    logits, labels = drawn(2, 20, 2), torch.arange(20) % 2
    expected = [by_pairs(own[:, 1] - own[:, 0], labels == 1) for own in logits]
    assert class_auc(logits, labels).tolist() == pytest.approx(expected)


def test_several_classes_are_the_mean_of_each_against_the_rest_without_absent_ones():
    logits, labels = torch.randn(2, 24, 4, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3
    shares = torch.softmax(logits.double(), -1)
    expected = [sum(by_pairs(own[:, c], labels == c) for c in range(3)) / 3 for own in shares]
    assert class_auc(logits, labels).tolist() == pytest.approx(expected)


def test_records_of_which_a_model_is_sure_keep_their_order():
    logits = torch.tensor([[60.0, 0.0, 0.0], [50.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 9.0]])
    first = auc(logits[:, 0] - logits[:, 1:].logsumexp(-1), torch.tensor([True, False, False, False]))
    assert first.item() == 1.0
    assert class_auc(logits, torch.tensor([0, 2, 1, 2])).item() == pytest.approx((1 + 1 + 0.75) / 3)
