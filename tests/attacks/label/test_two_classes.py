"""Attacks on two classes: by the direction and the norm of gradients, and by the embeddings' first axis."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.support import split_rows
from tests.support import make_system
from vflpriv.attacks.label.two_classes import LabelDirection, LabelNorm, LabelSpectral, two_means
from vflpriv.audits.scoring.labels import counted, draw_auxiliary
from vflpriv.audits.statistics.resampling import auc_interval
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.data import VerticalData
from vflpriv.data import loading as datasets

TRAINING = {"rounds": 60, "batch_size": 64, "device_rate": 0.1, "server_rate": 0.1, "top_hidden": ()}


@pytest.fixture(scope="module")
def cancer():
    return datasets.load("breast-cancer", devices=2)


def imbalanced(share: float = 0.1, records: int = 1200) -> VerticalData:
    """Two classes that overlap, one of them rare."""
    generator = torch.Generator().manual_seed(1)
    labels = (torch.rand(records, generator=generator) < share).long()
    blocks = [0.5 * labels.unsqueeze(1) + torch.randn(records, 6, generator=generator) for _ in range(2)]
    return split_rows("rare", 2, [block.roll(-200, 0) for block in blocks], labels.roll(-200), test=200)


def auc(guess: Guess, truth: torch.Tensor, auxiliary: Auxiliary | None = None) -> float:
    """The chance that a record of label 1 scores higher than one of label 0."""
    assert guess.scores is not None
    rows = counted(guess, truth, auxiliary)
    labels, scores = truth[guess.records[rows]], guess.scores[0][rows]
    return auc_interval(scores[labels == 0], scores[labels == 1], 0.95)[0]


@pytest.mark.parametrize("adversary", ["device(0)", "devices(all)", "eavesdropper"])
def test_directions_separate_the_classes_of_breast_cancer(adversary, cancer, watch, rate):
    """Margin: all labels are read where 0.98 are asked."""
    view = watch(make_system("split-concat", data=cancer, **TRAINING), adversary)
    assert rate(LabelDirection(), view, cancer, few=1) > 0.98


def test_the_rare_class_has_the_longer_gradients(watch):
    """Margin: both areas are 1, and 0.95 is asked."""
    data = imbalanced()
    view = watch(make_system("split-concat", data=data, **TRAINING), "device(0)")
    known = draw_auxiliary(data.labels, 2, per_class=4, seed=0)
    assert auc(LabelNorm().run(view, known), data.labels, auxiliary=known) > 0.95
    assert auc(LabelDirection().run(view, known), data.labels, auxiliary=known) > 0.95


def test_the_first_axis_of_the_embeddings_separates_the_classes(cancer, watch, rate):
    """Margin: 0.92 of the labels are read, 68 records more than are asked."""
    view = watch(make_system("split-concat", data=cancer, **TRAINING), "devices(all)")
    assert rate(LabelSpectral(), view, cancer, few=4) > 0.8


def test_ten_classes_are_refused(watch):
    view = watch(make_system("split-concat", data=datasets.load("digits", devices=2)), "device(0)")
    for attack in (LabelNorm(), LabelDirection(), LabelSpectral()):
        assert attack.refusal(view) == "needs two classes; here there are 10"


def test_two_means_splits_where_the_gap_is():
    threshold = two_means(torch.tensor([0.0, 5.0, 0.2, 5.5, 0.1]))
    assert 0.2 < float(threshold) < 5.0


def test_auc_counts_ties_half():
    truth = torch.tensor([0, 0, 1, 1])
    guess = Guess(torch.arange(4), truth.unsqueeze(0), torch.tensor([[0.1, 0.5, 0.5, 0.9]]))
    assert auc(guess, truth) == pytest.approx(3.5 / 4)
    known = Auxiliary(records=torch.tensor([1]), labels=torch.tensor([0]))
    assert auc(guess, truth, auxiliary=known) == 1.0
