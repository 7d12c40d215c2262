"""Clusters of mean gradients: any number of classes, noise that is drawn anew, any names of the clusters."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.support import two_blocks
from tests.support import make_system
from vflpriv.attacks.label.clusters import LabelGradientClusters
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, device

TRAINING = {"rounds": 40, "batch_size": 64, "device_rate": 0.1, "server_rate": 0.1, "top_hidden": ()}


def gradients(classes, *, rounds=30, records=200, flips=0.0, devices=1, seed=0):
    """Gradients of a linear head with random weights; labels are redrawn in each batch with probability `flips`."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(records) % classes
    messages = []
    heads = [torch.randn(classes, 6, generator=generator) for _ in range(devices)]
    for t in range(rounds):
        ids = torch.randperm(records, generator=generator)[: records // 2]
        drawn = torch.randint(0, classes, (len(ids),), generator=generator)
        used = torch.where(torch.rand(len(ids), generator=generator) < flips, drawn, labels[ids])
        rows = 1 / classes - torch.nn.functional.one_hot(used, classes).float()
        for m, head in enumerate(heads):
            tensors = {"gradient": (0.9**t * rows @ head).unsqueeze(0)}
            where = {"round": t, "sender": SERVER, "receiver": device(m), "records": ids}
            messages.append(Message(kind="embedding-gradient", tensors=tensors, **where))
    return labels, View(Adversary.parse("devices(all)"), tuple(messages), classes)


def known(labels, per_class):
    records = torch.cat([(labels == c).nonzero().flatten()[:per_class] for c in labels.unique()]).sort().values
    return Auxiliary(records=records, labels=labels[records], seed=1)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_noise_that_is_redrawn_in_every_batch_is_averaged_away(classes):
    labels, view = gradients(classes, rounds=200, flips=0.5)
    guess = LabelGradientClusters().run(view, known(labels, 4))
    assert (guess.values[0] == labels[guess.records]).float().mean() > 0.95


def test_one_known_label_of_each_class_names_the_clusters_and_none_leaves_them_unnamed():
    labels, view = gradients(4, devices=2)
    assert torch.equal(LabelGradientClusters().run(view, known(labels, 1)).values[0], labels)
    guess = LabelGradientClusters().run(view, known(labels, 0)).values[0]
    pairs = {(int(a), int(b)) for a, b in zip(guess, labels, strict=True)}
    assert len(pairs) == 4


def test_the_known_labels_are_needed_of_no_more_than_some_classes():
    labels, view = gradients(3)
    records = torch.tensor([0, 1])
    guess = LabelGradientClusters().run(view, Auxiliary(records=records, labels=labels[records], seed=0))
    assert torch.equal(guess.values[0], labels)


def test_gradients_that_hold_no_label_are_read_at_chance():
    labels, view = gradients(3, flips=1.0)
    guess = LabelGradientClusters().run(view, known(labels, 4))
    assert (guess.values[0] == labels).float().mean() < 0.45


def test_the_number_of_threads_changes_nothing():
    labels, view = gradients(5, rounds=60, flips=0.7)
    threads, guesses = torch.get_num_threads(), []
    for number in (1, 2):
        torch.set_num_threads(number)
        guesses.append(LabelGradientClusters().run(view, known(labels, 4)).values)
    torch.set_num_threads(threads)
    assert torch.equal(*guesses)


def test_a_trained_system_is_read_and_scalars_are_refused(watch, rate):
    """Margin: all labels are read where 0.6 are asked."""
    data = two_blocks(6, 6, classes=3, records=300)
    view = watch(make_system("split-concat", data=data, **TRAINING), "device(0)")
    assert rate(LabelGradientClusters(), view, data, few=4) > 0.6
    scalars = watch(make_system("dpzv-joint", data=data, rounds=3), "device(0)")
    assert (
        LabelGradientClusters().refusal(scalars)
        == "needs gradients of each record; the server sends one scalar per batch"
    )


def test_of_many_records_a_random_sample_is_attacked(monkeypatch):
    labels, view = gradients(3, records=400)
    told = known(labels, 2)
    monkeypatch.setattr(LabelGradientClusters, "most", 100)
    guess = LabelGradientClusters().run(view, told)
    assert (len(guess.records), guess.population) == (100, 400 - 6)
    assert int(guess.drawn.sum()) == 100 - 6
    assert torch.equal(guess.values[0], labels[guess.records])
