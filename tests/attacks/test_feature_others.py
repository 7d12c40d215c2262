"""CAFE, binary reconstruction, the generator, a sensitive column, and one device against another."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.feature_support import attack, two_blocks
from vflpriv.attacks._estimators import conditional_gaussian, decode, gaussian
from vflpriv.attacks.feature_reconstruction import binary_vectors


@pytest.mark.parametrize("variant", ["split-concat", "split-sum"])
def test_cafe_solves_for_everything_once_there_are_enough_gradients(variant):
    words = {"embedding": 16, "device_rate": 0.3, "known": 50}
    few, many = (
        attack("feature_cafe", variant, two_blocks(6, 12, records=200), "server", rounds=r, **words).leak
        for r in (8, 60)
    )
    assert 0 < few.value < 0.9
    assert many.error < 1e-6


@pytest.mark.parametrize(
    ("variant", "changes", "reason"),
    [
        ("fdml", {}, "needs gradients of each record; the server sends none"),
        ("split-concat", {"momentum": 0.9}, "needs plain steps along the gradients that the server sent"),
        (
            "split-concat",
            {"hidden": (5,)},
            "needs a model of one layer; with more, a record's gradient at the first layer depends on its features",
        ),
    ],
)
def test_cafe_says_why_it_does_not_apply(variant, changes, reason):
    assert attack("feature_cafe", variant, two_blocks(6, 5), "server", **changes).refusal == reason


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
    found = binary_vectors(mixed @ torch.randn(5, 7, generator=generator).double())
    expected = {tuple(v.tolist()) for c in columns.T for v in (c, 1 - c)}
    assert {tuple(v.tolist()) for v in found} == expected


@pytest.mark.slow
def test_the_generator_explains_logits_through_known_models():
    tried = attack("feature_grn", "fdml", two_blocks(6, 12), "device(0)")
    assert tried.leak.leakage_low > 0.3


@pytest.mark.slow
def test_the_published_generator_says_no_more_than_the_mean_of_features_unlike_its_own():
    """The two devices' features are independent, and a generator that is not shown logits has nothing else to go by."""
    tried = attack("feature_grn_published", "fdml", two_blocks(6, 12), "device(0)")
    assert tried.refusal is None
    assert tried.leak.value < 0.05


@pytest.mark.parametrize("adversary", ["server", "device(0)"])
def test_a_sensitive_column_shows(adversary):
    """Device 1's first column is 0 or 1 and device 0 knows nothing of it: all that is right comes from the protocol."""
    data = two_blocks(6, 3, binary=1, classes=4)
    tried = attack("feature_attribute", "split-sum", data, adversary, attribute=0, rounds=24, device_rate=0.5)
    assert tried.leak.measure == "AUC"
    assert tried.leak.leakage_low > 0.1
    assert abs((tried.leak.blind or 0.5) - 0.5) < 0.1


def test_without_a_sensitive_column_there_is_nothing_to_guess():
    tried = attack("feature_attribute", "split-sum", two_blocks(6, 3), "server")
    assert tried.refusal == "needs a sensitive column; none is named"


@pytest.mark.parametrize(
    "variant",
    ["fdml", "vimadmm-j", "vimadmm", "linear-admm", "split-sum", "vafl-concat", "vafl-sum", "vafl-tsync-some"],
)
def test_a_device_learns_of_another_from_what_it_is_sent(variant):
    """VAFL's other device is never active in the same round: its embeddings come out of the server's table."""
    rate = {} if "admm" in variant else {"device_rate": 0.5}
    rate |= {"together": 1} if "tsync" in variant else {}
    rounds = 160 if variant.startswith("vafl") else 48
    data = two_blocks(6, 3, classes=6)
    leak = attack("feature_downlink", variant, data, "device(0)", rounds=rounds, known=150, **rate).leak
    assert leak.blind < 0.05
    assert leak.leakage_low > 0.05


def test_a_decoder_finds_a_curve_and_admits_when_there_is_none():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, generator=generator)
    y = torch.stack((x[:, 0] ** 2, x[:, 0] - x[:, 1]), dim=1)
    left = decode(x[:200], y[:200], x[200:], bounded=False) - y[200:]
    assert float(left.square().mean() / y.var()) < 0.02
    bounded = decode(x[:200], y[:200], 100 * x[200:])
    assert bool((bounded.amax(0) <= y[:200].amax(0)).all())
    noise = torch.randn(300, 2, generator=generator)
    assert float(decode(x[:200], noise[:200], x[200:]).square().mean()) < 0.1


def test_gaussians_of_known_records():
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(5000, 1, generator=generator).double()
    block = 2 * given + 0.5 * torch.randn(5000, 1, generator=generator).double() + 1
    mean, root = gaussian(block)
    assert float(mean) == pytest.approx(1, abs=0.1)
    assert float(root.square()) == pytest.approx(4.25, rel=0.1)
    means, left = conditional_gaussian(block, given, torch.tensor([[1.0]]))
    assert float(means) == pytest.approx(3, abs=0.1)
    assert float(left.square()) == pytest.approx(0.25, rel=0.1)
