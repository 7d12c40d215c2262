"""Labels from gradients of boosting: all of them in clear, fewer with noise, and a reason where it does not apply."""

from __future__ import annotations

import pytest
import torch

from vflpriv.attacks.label.boosting import LabelBoosting
from vflpriv.audits.scoring.labels import label_score
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, device
from vflpriv.recording.files.checks import check_shapes

RECORDS = 300


def view_of(messages, classes):
    return View(Adversary.parse("device(0)"), tuple(messages), classes)


def sent(tensors, round_=0, records=RECORDS):
    shapes = {name: value.shape[1:] for name, value in tensors.items()}
    check_shapes("tree-gradients", shapes, records, None)
    ids = torch.arange(records)
    return Message(round=round_, sender=SERVER, receiver=device(0), kind="tree-gradients", tensors=tensors, records=ids)


def softmax_gradients(labels, classes, trees, noise=0.0):
    generator = torch.Generator().manual_seed(1)
    for _ in range(trees):
        scores = torch.randn(1, len(labels), classes, generator=generator)
        p = scores.softmax(-1)
        gradient = p - torch.nn.functional.one_hot(labels, classes)
        yield gradient + noise * torch.randn(gradient.shape, generator=generator), p * (1 - p)


def right(messages, labels, classes, nothing):
    view = view_of(messages, classes)
    assert LabelBoosting().refusal(view) is None
    return label_score(LabelBoosting().run(view, nothing), labels).value


@pytest.mark.parametrize("column", [False, True])
def test_two_classes_with_one_gradient_each(column, nothing):
    labels = torch.arange(RECORDS) % 2
    p = torch.rand(1, RECORDS, generator=torch.Generator().manual_seed(0))
    gradient = p - labels
    tensors = {"gradient": gradient, "hessian": p * (1 - p)}
    tensors = {name: value.unsqueeze(-1) for name, value in tensors.items()} if column else tensors
    assert right([sent(tensors)], labels, 2, nothing) == 1.0


def test_several_classes_with_a_column_for_each(nothing):
    labels = torch.arange(RECORDS) % 5
    messages = [sent({"gradient": g, "hessian": h}) for g, h in softmax_gradients(labels, 5, 1)]
    assert right(messages, labels, 5, nothing) == 1.0


def test_several_classes_with_a_tree_for_each(nothing):
    labels = torch.arange(RECORDS) % 3
    ((gradient, hessian),) = softmax_gradients(labels, 3, 1)
    messages = [
        sent({"gradient": gradient[..., c], "hessian": hessian[..., c], "class": torch.tensor([c])}) for c in range(3)
    ]
    assert right(messages, labels, 3, nothing) == 1.0


def test_noise_hides_labels_in_one_tree_and_averages_out_over_many(nothing):
    """Margin: 0.61 of the labels are right after one tree and 0.98 after many; 0.75 and 0.9 lie far from both."""
    labels = torch.arange(RECORDS) % 2
    rates = [
        right([sent({"gradient": g}) for g, _ in softmax_gradients(labels, 2, trees, noise=3.0)], labels, 2, nothing)
        for trees in (1, 60)
    ]
    assert 0.5 < rates[0] < 0.75
    assert rates[1] > 0.9


def test_it_says_why_it_does_not_apply():
    attack = LabelBoosting()
    assert attack.refusal(view_of([], 2)) == "needs gradients of boosted trees; this view holds none"
    unnamed = view_of([sent({"gradient": torch.zeros(1, RECORDS)})], 3)
    assert "of which class they are" in (attack.refusal(unnamed) or "")
    outsider = View(Adversary.parse("outsider"), (), 2)
    assert attack.refusal(outsider) == "needs to know which record a message belongs to"
