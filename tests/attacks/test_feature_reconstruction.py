"""Binary reconstruction: exact in the span of a linear model; features that are not binary stay at their mean."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.support import attack, two_blocks
from vflpriv.attacks.feature_reconstruction import binary_vectors


@pytest.mark.parametrize("variant", ["split-sum", "fdml", "linear-admm"])
def test_binary_features_are_found_in_the_span_of_an_unknown_model(variant):
    tried = attack("feature_reconstruction", variant, two_blocks(6, 8, binary=8), "server")
    assert tried.refusal is None
    assert tried.leak.value > 0.999


def test_real_features_stay_at_their_mean():
    """Three of eight features are binary; a feature's share of the variance is what is explained."""
    data = two_blocks(6, 8, binary=3)
    variance = data.blocks[1].var(0)
    leak = attack("feature_reconstruction", "split-sum", data, "server").leak
    assert leak.value == pytest.approx(float(variance[:3].sum() / variance.sum()), abs=0.03)
    refused = attack("feature_reconstruction", "split-sum", two_blocks(6, 8), "server").refusal
    assert refused == "needs binary features; others cannot be identified without the model"


@pytest.mark.parametrize(
    ("variant", "other", "reason"),
    [
        ("split-concat", 4, "needs embeddings that are linear in the features; these passed through a ReLU"),
        ("split-sum", 14, "needs embeddings that span as many dimensions as there are features: 14, not 11"),
    ],
)
def test_reconstruction_says_why_it_does_not_apply(variant, other, reason):
    data = two_blocks(6, other, binary=4)
    assert attack("feature_reconstruction", variant, data, "server", embedding=8).refusal == reason


def test_all_binary_vectors_of_a_span_are_found():
    generator = torch.Generator().manual_seed(0)
    columns = (torch.rand(40, 3, generator=generator) < 0.5).double()
    mixed = torch.cat((columns, torch.rand(40, 2, generator=generator).double()), dim=1)
    vectors = binary_vectors(mixed @ torch.randn(5, 7, generator=generator).double())
    expected = {tuple(v.tolist()) for c in columns.T for v in (c, 1 - c)}
    assert {tuple(v.tolist()) for v in vectors} == expected
