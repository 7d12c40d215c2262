"""Equality solving: exact with as many equations as unknowns, better than the mean with fewer."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.support import attack, two_blocks
from vflpriv.attacks.feature.esa import FeatureEsa
from vflpriv.core.attack import FeatureAuxiliary, KnownModel
from vflpriv.core.views import Adversary, Belongings, View
from vflpriv.core.wire import SERVER, Message, device

SUMS = ["fdml", "split-sum", "linear-admm"]


@pytest.mark.parametrize("variant", SUMS)
@pytest.mark.parametrize("unknown", [1, 5, 9])
def test_it_is_exact_with_one_reply_and_at_most_classes_less_one_unknowns(variant, unknown):
    """One epoch: every record is in one batch, and has 9 equations."""
    tried = attack("feature_esa", variant, two_blocks(6, unknown), "device(0)")
    assert tried.refusal is None
    assert tried.mean.numbers["error"] < 1e-8
    assert tried.mean.guesses == 300
    assert tried.mean.leakage.value > 0.99


@pytest.mark.parametrize("variant", SUMS)
def test_with_more_unknowns_it_beats_the_mean(variant):
    tried = attack("feature_esa", variant, two_blocks(6, 20), "device(0)")
    assert 1e-3 < tried.mean.numbers["error"] < tried.mean.numbers["mean_error"]
    assert tried.mean.low > 0.2
    assert tried.mean.leakage.low > 0.2


@pytest.mark.parametrize("variant", SUMS)
def test_it_is_exact_with_thirty_unknowns_and_as_many_equations(variant):
    assert attack("feature_esa", variant, two_blocks(6, 30, classes=31), "device(0)").mean.numbers["error"] < 1e-8


def test_replies_of_several_rounds_add_up_to_more_equations():
    tried = attack("feature_esa", "fdml", two_blocks(6, 12), "device(0)", rounds=32)
    assert tried.mean.numbers["error"] < 1e-8


def test_noise_on_the_uplink_costs_it():
    settings = {"protection": "client", "clip": 100.0}
    little, much = (
        attack("feature_esa", "fdml", two_blocks(6, 5), "device(0)", noise_std=std, **settings).mean
        for std in (0.01, 0.5)
    )
    assert 0.95 < little.value < 1
    assert much.value < 0.5


@pytest.mark.parametrize(
    ("variant", "adversary", "reason"),
    [
        ("fdml", "server", "needs an adversary that controls a device; this one sees the embeddings directly"),
        ("fdml", "outsider", "needs to know which record a message belongs to"),
        ("fdml", "device(1)", "needs a victim that is not part of the adversary; device 1 is"),
        ("split-concat", "device(0)", "needs summed logits of each record, or messages that determine them"),
        ("dpzv-joint", "device(0)", "needs summed logits of each record, or messages that determine them"),
        (
            "vimadmm",
            "device(0)",
            "needs logits that the other devices compute; here the server computes them with its heads",
        ),
        (
            "vimadmm-j",
            "device(0)",
            "needs linear models at the other devices; theirs are not linear, or their outputs are clipped",
        ),
    ],
)
def test_it_says_why_it_does_not_apply(variant, adversary, reason):
    assert attack("feature_esa", variant, two_blocks(6, 5), adversary).refusal == reason


def from_predictions(*, own: int, other: int, classes: int, moves: float, replies: int, dtype: torch.dtype) -> float:
    """Mean squared error from confidences of a logistic regression whose weights move a little between replies."""
    generator = torch.Generator().manual_seed(1)
    rows = [torch.rand(60, width, generator=generator, dtype=torch.float64) for width in (own, other)]
    weights = [torch.randn(1, width, classes, generator=generator, dtype=torch.float64) for width in (own, other)]
    everyone, messages, rounds = torch.arange(60), [], []
    for t in range(replies):
        now = [w + moves * torch.randn(w.shape, generator=generator, dtype=torch.float64) for w in weights]
        logits = [x @ w for x, w in zip(rows, now, strict=True)]
        sent = {"embedding": logits[0].to(dtype)}, {"confidences": torch.softmax(sum(logits), -1).to(dtype)}
        ends = ((device(0), SERVER, "logits"), (SERVER, device(0), "predictions"))
        messages += [
            Message(round=t, sender=a, receiver=b, kind=kind, tensors=tensors, records=everyone)
            for (a, b, kind), tensors in zip(ends, sent, strict=True)
        ]
        rounds.append(now)
    models = [
        KnownModel(apply=lambda p, x: x @ p["w"], rounds={t: {"w": now[m]} for t, now in enumerate(rounds)})
        for m in range(2)
    ]
    mine = Belongings(features=rows[0], apply=models[0].apply, initial={}, trained={})
    view = View(Adversary.parse("device(0)"), tuple(messages), classes=classes, own={0: mine})
    blocks = {m: x[:20] for m, x in enumerate(rows)}
    auxiliary = FeatureAuxiliary(victim=1, records=everyone[:20], blocks=blocks, models=dict(enumerate(models)))
    assert FeatureEsa().refusal(view, auxiliary) is None
    guess = FeatureEsa().run(view, auxiliary)
    return float((guess.values[0] - rows[1]).square().mean())


def test_predictions_alone_are_enough():
    """As published: confidences of a logistic regression that both parties' features went into."""
    settings = {"own": 4, "other": 4, "classes": 6, "moves": 0.0, "replies": 1}
    assert from_predictions(**settings, dtype=torch.float64) < 1e-20
    assert from_predictions(**settings, dtype=torch.float32) < 1e-8


def test_what_is_left_of_a_hard_system_is_the_messages_rounding():
    """30 unknowns from four replies of 9 equations, under weights that moved by 1e-5."""
    settings = {"own": 4, "other": 30, "classes": 10, "moves": 1e-5, "replies": 4}
    assert from_predictions(**settings, dtype=torch.float64) < 1e-12
    assert 1e-8 < from_predictions(**settings, dtype=torch.float32) < 0.05


def test_of_many_records_the_last_are_solved_for(monkeypatch):
    monkeypatch.setattr("vflpriv.attacks.feature.esa._MOST", 100)
    leak = attack("feature_esa", "fdml", two_blocks(6, 5), "device(0)").mean
    assert 50 <= leak.guesses <= 100
    assert leak.numbers["error"] < 1e-8
