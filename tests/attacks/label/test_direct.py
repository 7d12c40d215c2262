"""Direct label inference: all labels from gradients of summed logits, and a reason wherever it does not apply."""

from __future__ import annotations

import pytest
import torch

from tests.support import make_system
from vflpriv.attacks.label.direct import LabelDirect
from vflpriv.audits.scoring.labels import label_score
from vflpriv.core.attack import Guess
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, device
from vflpriv.data import loading as datasets


@pytest.mark.parametrize("adversary", ["device(0)", "device(3)", "devices(0, 1)", "eavesdropper"])
def test_split_learning_with_summed_logits_gives_every_label_of_digits_away(adversary, watch, nothing):
    """Margin: all labels are read, and the interval around 1 has no chance in it; one error would be found."""
    data = datasets.load("digits", devices=4)
    system = make_system("split-sum", data=data, rounds=23, batch_size=64)
    attack = LabelDirect()
    view = watch(system, adversary)
    assert attack.refusal(view) is None
    success = label_score(attack.run(view, nothing), data.labels)
    assert success.value == 1.0
    assert success.guesses == 1437
    assert success.low > 0.997
    assert 0.09 < success.chance < 0.12


@pytest.mark.parametrize(
    ("variant", "adversary", "reason"),
    [
        (
            "dpzv-joint",
            "device(0)",
            "needs per-record gradients of summed logits; the server sends one scalar per batch",
        ),
        (
            "split-concat",
            "device(0)",
            "needs per-record gradients of summed logits; the server sends gradients of embeddings",
        ),
        ("split-sum", "outsider", "needs to know which record a message belongs to"),
    ],
)
def test_it_says_why_it_does_not_apply(variant, adversary, reason, watch):
    assert LabelDirect().refusal(watch(make_system(variant), adversary)) == reason


def test_the_smallest_entry_is_taken_not_the_first_negative_one(nothing):
    """With noise many entries are negative; the label's is still the smallest."""
    gradient = torch.tensor([[[-0.1, -0.9, 0.3], [-0.05, 0.2, -0.8]]])
    message = Message(
        round=0,
        sender=SERVER,
        receiver=device(0),
        kind="logit-gradient",
        tensors={"gradient": gradient},
        records=torch.tensor([7, 4]),
    )
    view = View(Adversary.parse("device(0)"), (message,), classes=3)
    guess = LabelDirect().run(view, nothing)
    assert dict(zip(guess.records.tolist(), guess.values[0].tolist(), strict=True)) == {7: 1, 4: 2}


def test_a_blind_guess_scores_at_chance():
    """Margin: five guesses that are given, and no training."""
    truth = torch.tensor([0, 0, 0, 1, 2])
    success = label_score(Guess(torch.arange(5), torch.zeros(1, 5)), truth)
    assert success.value == success.chance == 0.6
    assert success.low < 0.6 < success.high
