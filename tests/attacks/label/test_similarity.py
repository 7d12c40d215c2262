"""Similar gradients: directions give labels away, whatever their lengths; noise alone does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support import make_system
from vflpriv.attacks.label.clusters import LabelGradientClusters
from vflpriv.attacks.label.similarity import LabelSimilarity
from vflpriv.audits.scoring.labels import draw_auxiliary
from vflpriv.audits.scoring.trials import Trials
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, device
from vflpriv.data import loading as datasets

RECORDS, CLASSES, WIDTH = 120, 4, 6
DEVICE = Adversary.parse("device(0)")


def seen(*, noise: float = 0.0, rounds: int = 6, signal: float = 1.0) -> tuple[torch.Tensor, View]:
    """Labels, and rounds of gradients along a direction of each label, of very different lengths."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(RECORDS) % CLASSES
    rows = signal * torch.randn(CLASSES, WIDTH, generator=generator)[labels]
    messages = []
    for round_ in range(rounds):
        lengths = torch.rand(RECORDS, 1, generator=generator).mul(4).exp()
        gradient = (rows + noise * torch.randn(RECORDS, WIDTH, generator=generator)) * lengths
        message = Message(
            round=round_,
            sender=SERVER,
            receiver=device(0),
            kind="embedding-gradient",
            tensors={"gradient": gradient.unsqueeze(0)},
            records=torch.arange(RECORDS),
        )
        messages.append(message)
    return labels, View(DEVICE, tuple(messages), CLASSES)


def told(labels: torch.Tensor, per_class: int) -> Auxiliary:
    return draw_auxiliary(labels, CLASSES, per_class=per_class, seed=0)


@pytest.mark.parametrize("most", [60, 4000])
def test_one_known_record_of_each_class_is_enough_whatever_the_lengths(most, monkeypatch):
    monkeypatch.setattr(LabelSimilarity, "most", most)
    labels, view = seen()
    guess = LabelSimilarity().run(view, told(labels, 1))
    assert torch.equal(guess.values[0], labels[guess.records])
    assert len(guess.records) == min(most, RECORDS)


def test_noise_that_is_drawn_anew_averages_out_over_rounds():
    shares = []
    for rounds in (1, 40):
        labels, view = seen(noise=3.0, rounds=rounds)
        guess = LabelSimilarity().run(view, told(labels, 8))
        shares.append(float((guess.values[0] == labels[guess.records]).double().mean()))
    assert shares[1] > shares[0] + 0.2


def test_noise_alone_is_read_at_chance():
    labels, view = seen(noise=1.0, signal=0.0, rounds=20)
    known = told(labels, 4)
    right = LabelSimilarity().run(view, known).values[0] == labels
    right[known.records] = False
    assert float(right.double().sum()) / (RECORDS - len(known.records)) < 1 / CLASSES + 0.17


def test_a_class_of_which_nobody_is_known_is_never_guessed():
    labels, view = seen()
    known = told(labels, 2)
    others = known.labels != 2
    guess = LabelSimilarity().run(view, replace(known, records=known.records[others], labels=known.labels[others]))
    assert set(guess.values.unique().tolist()) == {0, 1, 3}


def test_one_device_of_split_learning_finds_more_than_by_clusters():
    system = make_system("split-concat", data=datasets.load("digits", devices=4), rounds=69, batch_size=64)
    attacks = [LabelSimilarity(), LabelGradientClusters()]
    ours, clusters = Trials(system=system, seeds=2, confidence=0.95).run(attacks, [DEVICE])
    assert ours.mean.value > 0.8
    assert ours.mean.value > clusters.mean.value + 0.05
    assert ours.mean.leakage.value > 0.3


def test_it_is_refused_where_no_gradients_are_sent():
    trials = Trials(system=make_system("dpzv-joint", rounds=8), seeds=1, confidence=0.95)
    (refused,) = trials.run([LabelSimilarity()], [DEVICE])
    assert refused.refusal == "needs gradients of each record; the server sends one scalar per batch"
