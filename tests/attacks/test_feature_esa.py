"""Equality solving: exact where there are as many equations as unknowns, better than the mean where there are fewer."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.feature_support import attack, two_blocks
from vflpriv.attacks.feature_esa import FeatureEsa
from vflpriv.feature_attempts import FeatureAuxiliary, KnownModel
from vflpriv.parties import SERVER, device
from vflpriv.views import Adversary, Belongings, View
from vflpriv.wire import Message

SUMS = ["fdml", "split-sum", "linear-admm"]


@pytest.mark.parametrize("variant", SUMS)
@pytest.mark.parametrize("unknown", [1, 5, 9])
def test_it_is_exact_with_one_reply_and_at_most_classes_less_one_unknowns(variant, unknown):
    """One epoch: every record is in one batch, and has 9 equations."""
    tried = attack("feature_esa", variant, two_blocks(6, unknown), "device(0)")
    assert tried.refusal is None
    assert tried.leak.error < 1e-8
    assert tried.leak.records == 300
    assert tried.leak.leakage > 0.99


@pytest.mark.parametrize("variant", SUMS)
def test_with_more_unknowns_it_beats_the_mean(variant):
    tried = attack("feature_esa", variant, two_blocks(6, 20), "device(0)")
    assert 1e-3 < tried.leak.error < tried.leak.mean_error
    assert tried.leak.low > 0.2
    assert tried.leak.leakage_low > 0.2


def test_replies_of_several_rounds_add_up_to_more_equations():
    tried = attack("feature_esa", "fdml", two_blocks(6, 12), "device(0)", rounds=32)
    assert tried.leak.error < 1e-8


def test_noise_on_the_uplink_costs_it():
    words = {"protection": "client", "clip": 100.0}
    little, much = (
        attack("feature_esa", "fdml", two_blocks(6, 5), "device(0)", noise_std=std, **words).leak for std in (0.01, 0.5)
    )
    assert 0.95 < little.value < 1
    assert much.value < 0.5


@pytest.mark.parametrize(
    ("variant", "adversary", "reason"),
    [
        ("fdml", "server", "needs a device of its own; a server has the embeddings themselves"),
        ("fdml", "outsider", "needs to know which record a message belongs to"),
        ("fdml", "device(1)", "needs a victim other than itself; device 1 is the adversary's own"),
        ("split-concat", "device(0)", "needs summed logits, in any form, of each record"),
        ("dpzv-joint", "device(0)", "needs summed logits, in any form, of each record"),
        (
            "vimadmm",
            "device(0)",
            "needs logits that the other devices make themselves; here the server's heads make them",
        ),
        (
            "vimadmm-j",
            "device(0)",
            "needs linear models; the other devices' are not, or what they send is clipped",
        ),
    ],
)
def test_it_says_why_it_does_not_apply(variant, adversary, reason):
    assert attack("feature_esa", variant, two_blocks(6, 5), adversary).refusal == reason


def test_predictions_alone_are_enough():
    """As published: confidences of a logistic regression that both parties' features went into."""
    generator = torch.Generator().manual_seed(1)
    own, other = torch.rand(2, 60, 4, generator=generator)
    weights = torch.randn(2, 4, 6, generator=generator)
    logits = own @ weights[0]
    confidences = torch.softmax((logits + other @ weights[1]).double(), -1)
    everyone = torch.arange(60)
    messages = (
        Message(
            round=0,
            sender=device(0),
            receiver=SERVER,
            kind="logits",
            tensors={"embedding": logits[None]},
            records=everyone,
        ),
        Message(
            round=0,
            sender=SERVER,
            receiver=device(0),
            kind="predictions",
            tensors={"confidences": confidences[None]},
            records=everyone,
        ),
    )
    models = [
        KnownModel(apply=lambda p, x: x @ p["weight0"], rounds={0: {"weight0": weights[m : m + 1]}}) for m in range(2)
    ]
    mine = Belongings(features=own, apply=models[0].apply, initial={}, trained={})
    view = View(Adversary.parse("device(0)"), messages, classes=6, own={0: mine})
    auxiliary = FeatureAuxiliary(
        victim=1, records=everyone[:20], blocks={0: own[:20], 1: other[:20]}, models=dict(enumerate(models))
    )
    assert FeatureEsa().refusal(view, auxiliary) is None
    guess = FeatureEsa().run(view, auxiliary)
    assert float((guess.blocks[0] - other).square().mean()) < 1e-8


def test_of_many_records_the_last_are_solved_for(monkeypatch):
    monkeypatch.setattr("vflpriv.attacks.feature_esa._MOST", 100)
    leak = attack("feature_esa", "fdml", two_blocks(6, 5), "device(0)").leak
    assert 50 <= leak.records <= 100
    assert leak.error < 1e-8
