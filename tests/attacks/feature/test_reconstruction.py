"""Reconstruction of features with few values: exact in the span of a linear model; others stay at their mean."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.support import attack, seen, split_rows, two_blocks
from tests.support import make_system
from vflpriv.attacks.feature.reconstruction import FeatureReconstruction
from vflpriv.core.attack import FeatureAuxiliary
from vflpriv.core.data import VerticalData


def few_values(*sizes: int, real: int = 0, one_hot: int = 0, records: int = 400) -> VerticalData:
    """Device 1 holds columns with so many values between -1 and 1, the columns of one category, and real ones."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(records + 50, 6 + len(sizes) + real, generator=generator)
    skewed = [(rows[:, 6 + k].pow(1 + 0.2 * k) * size).floor() / (size - 1) * 2 - 1 for k, size in enumerate(sizes)]
    category = torch.randint(0, max(1, one_hot), (records + 50,), generator=generator)
    coded = torch.nn.functional.one_hot(category, one_hot).float().unbind(1) if one_hot else ()
    victim = torch.stack([*skewed, *coded, *rows[:, 6 + len(sizes) :].unbind(1)], dim=1)
    labels = (
        torch.cat((rows[:, :6], victim), dim=1) @ torch.randn(6 + victim.shape[1], 10, generator=generator)
    ).argmax(1)
    return split_rows("few", 10, (rows[:, :6], victim), labels, test=50)


def answers(data: VerticalData, known: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The truth, the guess and the known records' mean of all records that the attack was not told."""
    view = seen(make_system("split-sum", data=data, rounds=8, batch_size=50), "server")
    chosen = torch.randperm(data.records, generator=torch.Generator().manual_seed(1))[:known].sort().values
    auxiliary = FeatureAuxiliary(victim=1, records=chosen, blocks={1: data.blocks[1][chosen]})
    assert FeatureReconstruction().refusal(view, auxiliary) is None
    guess = FeatureReconstruction().run(view, auxiliary)
    scored = ~torch.isin(guess.records, chosen)
    return data.blocks[1][guess.records[scored]].double(), guess.values[0][scored], auxiliary.block.double().mean(0)


@pytest.mark.parametrize("variant", ["split-sum", "fdml", "linear-admm"])
def test_binary_features_are_found_in_the_span_of_an_unknown_model(variant):
    tried = attack("feature_reconstruction", variant, two_blocks(6, 8, binary=8), "server", known=200)
    assert tried.refusal is None
    assert tried.mean.value > 0.999


@pytest.mark.parametrize(
    ("data", "known", "found"),
    [
        (two_blocks(6, 8, binary=8), 100, 0.95),
        (two_blocks(6, 8, binary=8), 30, 0.2),
        (few_values(5, 5, 5, 5), 24, 0.8),
        (few_values(3, 3, 4, 17, one_hot=4), 60, 0.6),
    ],
    ids=["binary", "binary, few known", "five values", "three to seventeen values and a category"],
)
def test_what_is_answered_is_right_and_the_rest_is_the_mean(data, known, found):
    """The known records leave a doubt about some columns in some batches; no value is guessed there."""
    truth, guess, mean = answers(data, known)
    right, unanswered = (guess - truth).abs() < 1e-4, (guess - mean).abs() < 1e-9
    assert (right | unanswered).all()
    assert right.double().mean() >= found


def test_real_features_stay_at_their_mean():
    """Three of eight features are binary; a feature's share of the variance is what is explained."""
    data = two_blocks(6, 8, binary=3)
    variance = data.blocks[1].var(0)
    leak = attack("feature_reconstruction", "split-sum", data, "server").mean
    assert leak.value == pytest.approx(float(variance[:3].sum() / variance.sum()), abs=0.03)
    refused = attack("feature_reconstruction", "split-sum", two_blocks(6, 8), "server").refusal
    assert refused == "needs features with at most 17 values; others cannot be identified without the model"


def test_noised_embeddings_give_no_column_away():
    words = {"protection": "embedding", "clip": 100.0, "noise_std": 0.05}
    tried = attack("feature_reconstruction", "split-sum", few_values(2, 3, 5), "server", **words)
    assert tried.refusal is None
    assert -0.05 < tried.mean.value < 0.05


@pytest.mark.parametrize(
    ("variant", "data", "known", "reason"),
    [
        (
            "split-concat",
            two_blocks(6, 4, binary=4),
            100,
            "needs embeddings that are linear in the features; these passed through a ReLU",
        ),
        (
            "split-sum",
            two_blocks(6, 14, binary=4),
            100,
            "needs embeddings that span as many dimensions as there are features: 14, not 11",
        ),
        (
            "split-sum",
            few_values(*[17] * 9, records=4000),
            40,
            "needs at most 65536 vectors to try at a time; more are possible in embeddings that span 10 dimensions, of "
            "which known records fix ",
        ),
    ],
)
def test_reconstruction_says_why_it_does_not_apply(variant, data, known, reason):
    refusal = attack("feature_reconstruction", variant, data, "server", embedding=8, known=known).refusal
    assert refusal.startswith(reason)
