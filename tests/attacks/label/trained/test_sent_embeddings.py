"""Completion where a recording has a device's features and messages, but not its model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support import make_system
from vflpriv.attacks._estimators import standardised
from vflpriv.attacks._observations import last_values
from vflpriv.attacks.label.clusters import LabelEmbeddingClusters
from vflpriv.attacks.label.trained._sent_embeddings import features_of, has_sent, sent_embeddings
from vflpriv.attacks.label.trained.completion import LabelCompletionPassive
from vflpriv.audits.scoring.labels import draw_auxiliary
from vflpriv.core.attack import Auxiliary


def without_models(view):
    return replace(view, own={m: replace(b, trained={}, initial={}) for m, b in view.own.items()})


@pytest.fixture
def view(watch):
    return without_models(watch(make_system("split-concat", rounds=6, batch_size=8), "devices(0, 2)"))


def test_rows_have_the_last_embedding_the_mean_of_all_and_the_features(view):
    rows = sent_embeddings(view)
    sent = [m for m in view.of_kind("embeddings") if m.device.index == 0]
    assert torch.equal(rows.records, torch.cat([m.records for m in sent]).unique())
    record = int(rows.records[0])
    observed = [m.tensors["embedding"][0][(m.records == record).nonzero()[0, 0]] for m in sent if record in m.records]
    width = len(observed[0])
    assert rows.tables[0].shape == (len(rows.records), 2 * width + view.own[0].features.shape[1])
    last = last_values(sent, "embedding", rows.records)[0]
    assert torch.equal(last[0], observed[-1])
    assert torch.allclose(rows.tables[0][:, :width], standardised(last))
    features = view.own[0].features[rows.records]
    expected = (features[0] - features.mean(0)) / features.std(0)
    assert torch.allclose(rows.tables[0][0, 2 * width :], expected, atol=1e-4)


def test_the_baseline_reads_features_alone(view):
    rows = features_of(view.silent())
    assert len(rows.records) == len(view.own[0].features)
    assert [table.shape[1] for table in rows.tables] == [own.features.shape[1] for own in view.own.values()]


def test_it_guesses_about_the_records_that_were_sent(view):
    assert LabelCompletionPassive().refusal(view) is None
    known = draw_auxiliary(torch.arange(len(view.own[0].features)) % 3, 3, per_class=9, seed=0)
    ((guess,), (blind,)) = LabelCompletionPassive().run_and_blind(view, [known])
    assert torch.equal(guess.records, sent_embeddings(view).records)
    assert len(blind.records) == len(view.own[0].features)
    again = LabelCompletionPassive().run(view, known)
    assert torch.equal(guess.values, again.values)


def test_what_it_lacks_is_said(view):
    of_other = tuple(m for m in view.messages if m.device.index == 0)
    lacking = replace(view, messages=of_other)
    assert has_sent(view)
    assert not has_sent(lacking)
    refusal = LabelCompletionPassive().refusal(lacking)
    assert refusal == "needs the device's model, or embeddings of records that it sent; this view holds neither"
    never = torch.tensor([r for r in range(len(view.own[0].features)) if r not in sent_embeddings(view).records])
    nobody = Auxiliary(records=never, labels=never % 3)
    with pytest.raises(ValueError, match="no record with a known label"):
        sent_embeddings(view).known(nobody)


def test_other_attacks_read_the_messages_where_there_is_no_model(view):
    """A device whose model is not known is attacked by the embeddings that it sent."""
    known = draw_auxiliary(torch.arange(len(view.own[0].features)) % 3, 3, per_class=2, seed=0)
    guess = LabelEmbeddingClusters().run(view, known)
    assert torch.equal(guess.records, sent_embeddings(view).records)
