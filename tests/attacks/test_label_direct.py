"""Direct label inference: all labels from gradients of summed logits, and a reason wherever it does not apply."""

from __future__ import annotations

import pytest
import torch

from tests.support import make_system
from vflpriv.attacks.label_direct import LabelDirect
from vflpriv.audits.scoring.labels import label_success
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, Transcript, Wire, device
from vflpriv.data import loading as datasets

NOTHING = Auxiliary(records=torch.empty(0, dtype=torch.int64), labels=torch.empty(0, dtype=torch.int64))


def view_of(system, adversary: str, rounds: int | None = None) -> View:
    transcript = Transcript()
    engine = system.train([0])
    for t in range(rounds or system.schedule.rounds):
        engine.round(t, Wire(transcript))
    shape = {"devices": system.data.devices, "classes": system.data.classes}
    return View.of(transcript, Adversary.parse(adversary), **shape)


@pytest.mark.parametrize("adversary", ["device(0)", "device(3)", "devices(0, 1)", "eavesdropper"])
def test_split_learning_with_summed_logits_gives_every_label_of_digits_away(adversary):
    data = datasets.load("digits", devices=4)
    system = make_system("split-sum", data=data, rounds=23, batch_size=64)
    attack = LabelDirect()
    view = view_of(system, adversary)
    assert attack.refusal(view) is None
    found = label_success(attack.run(view, NOTHING), data.labels, confidence=0.95)
    assert found.rate == 1.0
    assert found.guesses == 1437
    assert found.low > 0.997
    assert 0.09 < found.chance < 0.12


@pytest.mark.parametrize(
    ("variant", "adversary", "reason"),
    [
        (
            "dpzv-joint",
            "device(0)",
            "needs per-record gradients of summed logits; the server sends one scalar for the whole batch",
        ),
        (
            "split-concat",
            "device(0)",
            "needs per-record gradients of summed logits; gradients of embeddings have no entry for each class",
        ),
        ("split-sum", "outsider", "needs to know which record a message belongs to"),
    ],
)
def test_it_says_why_it_does_not_apply(variant, adversary, reason):
    assert LabelDirect().refusal(view_of(make_system(variant), adversary)) == reason


def test_the_smallest_entry_is_taken_not_the_first_negative_one():
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
    guess = LabelDirect().run(view, NOTHING)
    assert dict(zip(guess.records.tolist(), guess.labels[0].tolist(), strict=True)) == {7: 1, 4: 2}


def test_a_blind_guess_scores_at_chance():
    from vflpriv.core.attack import LabelGuess

    truth = torch.tensor([0, 0, 0, 1, 2])
    found = label_success(LabelGuess(torch.arange(5), torch.zeros(1, 5)), truth, confidence=0.95)
    assert found.rate == found.chance == 0.6
    assert found.low < 0.6 < found.high
