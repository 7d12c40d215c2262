"""The pseudo-top: trained on what known records' embeddings were in each late round, then on the trained model's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.attacks.support import view_of
from tests.support import make_system, toy_data
from vflpriv.attacks.label.trained import pcat
from vflpriv.attacks.label.trained.pcat import LabelPcat, _replayed
from vflpriv.audits.scoring.labels import draw_auxiliary, label_score
from vflpriv.audits.scoring.trainings import train
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Transcript, Wire
from vflpriv.data import loading as datasets

TRAINING = {"rounds": 200, "batch_size": 64, "embedding": 16, "device_rate": 0.3, "server_rate": 0.3}


@pytest.fixture(scope="module")
def two_seeds():
    """What all devices saw of two seeds, the data, and what they are told in each."""
    data = datasets.load("digits", devices=4)
    system = make_system("split-concat", data=data, top_hidden=(32,), **TRAINING)
    party = Adversary.parse("devices(all)")
    view = train(system, 2, LabelPcat.needs).views([party])[party]
    known = [draw_auxiliary(data.labels, data.classes, per_class=5, seed=0, replica=r) for r in range(2)]
    return view, data, known


def test_the_trained_bottoms_tell_more_than_the_features(two_seeds):
    view, data, known = two_seeds
    blind = LabelPcat().blind_together(view.silent(), known)
    for guess, without, told in zip(LabelPcat().run_together(view, known), blind, known, strict=True):
        reached = label_score(guess, data.labels, auxiliary=told, blind=without)
        assert reached.leakage.value > 0.02
        assert reached.value > 0.75


@pytest.mark.parametrize("most", [200, 4000])
def test_a_seed_is_attacked_alike_however_many_are_beside_it(most, two_seeds, monkeypatch):
    view, _, known = two_seeds
    monkeypatch.setattr(LabelPcat, "most", most)
    together = LabelPcat().run_together(view, known)
    for r, guess in enumerate(together):
        alone = LabelPcat().run(view.replica(r), known[r])
        assert torch.equal(guess.records, alone.records)
        assert float((guess.values == alone.values).float().mean()) > 0.99
    assert not torch.equal(together[0].values, together[1].values)


def test_what_is_replayed_is_what_was_last_sent_of_each_known_record(monkeypatch):
    monkeypatch.setattr(pcat, "_LATE", 0.0)
    system, transcript = make_system("vafl-concat", rounds=9), Transcript()
    engine = system.train([0, 1])
    engine.run(Wire(transcript))
    view, known = view_of(system, engine, transcript, "devices(0, 2)"), torch.tensor([3, 8, 21])
    columns = {m: torch.zeros(2, 5, 4) for m in (0, 2)}
    last: dict[tuple[int, int], torch.Tensor] = {}
    rounds = sorted({m.round for m in view.of_kind("embeddings")})
    for number, (table, seen) in zip(rounds, _replayed(view, known, columns), strict=True):
        for m in view.of_kind("embeddings"):
            if m.round == number:
                last |= {(m.device.index, int(i)): m.tensors["embedding"][:, row] for row, i in enumerate(m.records)}
        for place, record in enumerate(known.tolist()):
            expected = [last.get((m, record), torch.zeros(2, 4)) for m in (0, 2)]
            assert torch.equal(table[:, place], torch.cat(expected, dim=1))
            assert bool(seen[place]) == all((m, record) in last for m in (0, 2))


def test_the_first_rounds_are_left_out(two_seeds, monkeypatch):
    view, _, known = two_seeds
    columns = {m: torch.zeros(2, 1, 16) for m in range(4)}
    assert len(list(_replayed(view, known[0].records, columns))) == 100
    monkeypatch.setattr(pcat, "_ROUNDS", 30)
    assert len(list(_replayed(view, known[0].records, columns))) == 30


def test_embeddings_that_do_not_depend_on_the_record_give_nothing_away(watch):
    """Every record has one embedding: the pseudo-top predicts one label for all."""
    data = toy_data(classes=3)
    view = watch(make_system("split-concat", data=data), "eavesdropper")
    flat = [
        replace(m, tensors={"embedding": torch.ones_like(m.tensors["embedding"])}) for m in view.of_kind("embeddings")
    ]
    known = draw_auxiliary(data.labels, 3, per_class=2, seed=0)
    guess = LabelPcat().run(replace(view, messages=tuple(flat)), known)
    assert len(guess.values.unique()) == 1


def test_known_records_that_were_never_sent_are_left_out(watch):
    view = watch(make_system("split-concat", rounds=2), "eavesdropper")
    seen = torch.cat([m.records for m in view.of_kind("embeddings")]).unique()
    unseen = torch.tensor([i for i in range(60) if i not in set(seen.tolist())][:3])
    records = torch.cat((seen[:6], unseen)).sort().values
    told = Auxiliary(records=records, labels=toy_data().labels[records])
    only = Auxiliary(records=seen[:6], labels=toy_data().labels[seen[:6]])
    assert torch.equal(LabelPcat().run(view, told).values, LabelPcat().run(view, only).values)


def test_it_says_what_it_lacks(watch):
    view = watch(make_system("dpzv-joint", rounds=2), "eavesdropper")
    assert LabelPcat().refusal(view) == "needs embeddings of each record; this view holds none"
