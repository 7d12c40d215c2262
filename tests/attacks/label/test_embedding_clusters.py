"""Clusters of embeddings: any number of classes, from one's own model or from what was sent last."""

from __future__ import annotations

import pytest
import torch

from vflpriv.attacks.label.clusters import LabelEmbeddingClusters
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, device


def sent(classes, *, spread=0.3, records=240, rounds=6, devices=2, scale=1.0):
    """Embeddings around one centre for each class; in early rounds they tell nothing."""
    generator = torch.Generator().manual_seed(0)
    labels, messages = torch.arange(records) % classes, []
    for m in range(devices):
        centres = torch.randn(classes, 5, generator=generator)
        for t in range(rounds):
            ids = torch.randperm(records, generator=generator)[: records // 2] if t < rounds - 2 else None
            ids = torch.arange(t % 2, records, 2) if ids is None else ids
            noise = torch.randn(len(ids), 5, generator=generator)
            rows = noise if t < rounds - 2 else centres[labels[ids]] + spread * noise
            rows = rows * torch.tensor([scale, 1, 1, 1, 1])
            where = {"round": t, "sender": device(m), "receiver": SERVER, "records": ids}
            messages.append(Message(kind="embeddings", tensors={"embedding": rows.unsqueeze(0)}, **where))
    return labels, View(Adversary("eavesdropper"), tuple(messages), classes)


def known(labels, per_class):
    records = torch.cat([(labels == c).nonzero().flatten()[:per_class] for c in labels.unique()]).sort().values
    return Auxiliary(records=records, labels=labels[records], seed=1)


@pytest.mark.parametrize("classes", [2, 4, 10])
def test_what_was_sent_last_is_clustered_by_class(classes):
    labels, view = sent(classes)
    guess = LabelEmbeddingClusters().run(view, known(labels, 2))
    assert (guess.values[0] == labels[guess.records]).float().mean() > 0.95


def test_an_entry_that_is_large_without_telling_anything_does_not_hide_the_others():
    labels, view = sent(4, scale=1e4)
    assert (LabelEmbeddingClusters().run(view, known(labels, 2)).values[0] == labels).float().mean() > 0.95


def test_embeddings_that_tell_nothing_are_read_at_chance():
    labels, view = sent(3, spread=1e3)
    assert (LabelEmbeddingClusters().run(view, known(labels, 2)).values[0] == labels).float().mean() < 0.5


def test_a_view_without_embeddings_is_refused():
    _, view = sent(3)
    empty = View(view.adversary, (), 3)
    assert LabelEmbeddingClusters().refusal(empty) == "needs embeddings of each record; this view holds none"


def test_a_sample_of_many_records_is_attacked(monkeypatch):
    monkeypatch.setattr(LabelEmbeddingClusters, "most", 60)
    labels, view = sent(3)
    guess = LabelEmbeddingClusters().run(view, known(labels, 2))
    assert len(guess.records) == 60
    assert guess.population == 240 - 6
    assert (guess.values[0] == labels[guess.records]).float().mean() > 0.95
