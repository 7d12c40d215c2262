"""Inversion of a batch's gradients by embeddings, which have no entry per class."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support import make_system
from vflpriv.attacks.label.trained.batch import LabelBatch, _Matching
from vflpriv.audits.scoring.labels import counted, draw_auxiliary, label_score
from vflpriv.audits.scoring.trainings import train
from vflpriv.core.views import Adversary
from vflpriv.data import loading as datasets

TRAINING = {"rounds": 23, "batch_size": 64, "embedding": 16, "device_rate": 0.1, "server_rate": 0.1}


@pytest.mark.parametrize("hidden", [(), (32,)])
def test_labels_come_out_of_the_gradients_of_embeddings(hidden, watch, rate):
    """Margin: 0.69 of 1,421 labels are read and 0.6 are asked, seven standard errors less."""
    data = datasets.load("digits", devices=4)
    view = watch(make_system("split-concat", data=data, top_hidden=hidden, **TRAINING), "device(0)")
    assert rate(LabelBatch(), view, data, few=4) > 0.6


def test_label_noise_is_not_seen_through(watch, rate):
    """Margin: 0.11 of the labels are read, and 0.35 are allowed."""
    data = datasets.load("digits", devices=4)
    noised = {"label_protection": "rr", "label_noise": 1.0}
    system = make_system("split-concat", data=data, top_hidden=(), **TRAINING, **noised)
    assert rate(LabelBatch(), watch(system, "devices(all)"), data, few=4) < 0.35


@pytest.fixture(scope="module")
def three_seeds():
    """The view of two devices on three seeds, the data, and what the attack is told in each seed."""
    data = datasets.load("digits", devices=4)
    system = make_system("split-concat", data=data, top_hidden=(), **TRAINING)
    adversary = Adversary.parse("devices(0, 1)")
    view = train(system, 3, LabelBatch.needs).views([adversary])[adversary]
    known = [draw_auxiliary(data.labels, data.classes, per_class=4, seed=0, replica=r) for r in range(3)]
    return view, data, known


@pytest.mark.parametrize("most", [200, 4000])
def test_a_seed_is_attacked_alike_however_many_are_beside_it(most, three_seeds, monkeypatch):
    view, _, known = three_seeds
    monkeypatch.setattr(LabelBatch, "most", most)
    together = LabelBatch().run_together(view, known)
    for r, guess in enumerate(together):
        alone = LabelBatch().run(view.replica(r), known[r])
        assert torch.equal(guess.records, alone.records)
        assert float((guess.values == alone.values).float().mean()) > 0.999
    assert not torch.equal(together[0].values, together[1].values)


def test_a_sample_of_many_records_succeeds_like_the_whole(three_seeds, monkeypatch):
    view, data, known = three_seeds
    whole = LabelBatch().run_together(view, known)
    monkeypatch.setattr(LabelBatch, "most", 400)
    sampled = LabelBatch().run_together(view, known)
    for guess, some, told in zip(whole, sampled, known, strict=True):
        all_, part = (label_score(g, data.labels, auxiliary=told) for g in (guess, some))
        assert (all_.population, part.population) == (None, len(guess.records) - len(told.records))
        assert part.guesses == 400 - len(told.records)
        assert abs(all_.value - part.value) < 0.1
    assert not torch.equal(sampled[0].records, sampled[1].records)


def test_the_sample_depends_on_the_seed_and_on_no_label(three_seeds, monkeypatch):
    view, _, (told, *_) = three_seeds
    monkeypatch.setattr(LabelBatch, "most", 200)
    one = view.replica(0)
    guess = LabelBatch().run(one, told)
    relabelled = LabelBatch().run(one, replace(told, labels=told.labels.flip(0)))
    other = LabelBatch().run(one, replace(told, seed=told.seed + 1))
    assert torch.equal(guess.records, relabelled.records)
    assert not torch.equal(guess.records, other.records)


def test_records_that_are_asked_for_are_guessed_beside_the_sample(three_seeds, monkeypatch):
    """The canaries of a recorded training must be guessed, but would bias the success on the sample."""
    view, data, (told, *_) = three_seeds
    monkeypatch.setattr(LabelBatch, "most", 200)
    others = torch.arange(data.records)[~torch.isin(torch.arange(data.records), told.records)]
    asked = others[:50]
    guess = LabelBatch().run(view.replica(0), replace(told, asked=asked))
    assert bool(torch.isin(asked, guess.records).all())
    chosen = guess.records[counted(guess, data.labels, told)]
    assert len(chosen) == 200 - len(told.records)
    assert not bool(torch.isin(chosen, torch.cat((asked, told.records))).any())
    assert guess.population == data.records - len(told.records) - len(asked)


def test_each_seed_takes_the_steps_that_it_takes_alone(three_seeds, monkeypatch):
    view, _, known = three_seeds
    taken = []
    step = _Matching._step
    monkeypatch.setattr(_Matching, "_step", lambda self: taken.append(len(self.gradients)) or step(self))
    alone = []
    for r, told in enumerate(known):
        taken.clear()
        LabelBatch().run(view.replica(r), told)
        alone.append(len(taken))
    taken.clear()
    LabelBatch().run_together(view, known)
    assert len(set(alone)) > 1
    assert (len(taken), sum(taken)) == (max(alone), sum(alone))
    assert all(count % 20 == 0 and count < 200 for count in alone)
