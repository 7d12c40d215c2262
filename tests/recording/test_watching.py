"""Hooks on a system's modules record the messages that a hand-written recording of the same training has."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import vflpriv
from vflpriv.errors import InputError
from vflpriv.recording.transcripts import read_transcript

RECORDS, CLASSES, BATCH = 12, 3, 4


class Parties:
    """Two bottoms and a top, with all that a training step needs."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.blocks = torch.randn(2, RECORDS, 5)
        self.labels = torch.arange(RECORDS) % CLASSES
        self.bottoms, self.top = [nn.Linear(5, 2) for _ in range(2)], nn.Linear(4, CLASSES)
        self.modules = [*self.bottoms, self.top]
        self.optimiser = torch.optim.SGD([p for m in self.modules for p in m.parameters()], lr=0.1)

    def step(self, records, noise=0.0):
        sent = [
            b(x[records]) + noise * torch.randn(len(records), 2) for b, x in zip(self.bottoms, self.blocks, strict=True)
        ]
        self.optimiser.zero_grad()
        cross_entropy(self.top(torch.cat(sent, dim=1)), self.labels[records]).backward()
        self.optimiser.step()
        return sent


def recording(folder, **options):
    return vflpriv.record(folder, devices=2, classes=CLASSES, records=RECORDS, **options)


def messages(folder):
    return read_transcript(folder).transcript.messages


def by_hand(folder):
    """The same training with a line for every message."""
    parties = Parties()
    with recording(folder) as wire:
        for round_ in range(3):
            records = torch.arange(BATCH) + BATCH * round_
            sent = [b(x[records]) for b, x in zip(parties.bottoms, parties.blocks, strict=True)]
            received = [h.detach().requires_grad_() for h in sent]
            parties.optimiser.zero_grad()
            cross_entropy(parties.top(torch.cat(received, dim=1)), parties.labels[records]).backward()
            for m, (h, copy) in enumerate(zip(sent, received, strict=True)):
                wire.up(round_, m, "embeddings", {"embedding": h}, records)
                wire.down(round_, m, "embedding-gradient", {"gradient": copy.grad}, records)
                h.backward(copy.grad)
            parties.optimiser.step()
    return messages(folder)


def test_hooks_record_what_lines_by_hand_record(tmp_path):
    parties = Parties()
    with recording(tmp_path / "watched") as wire:
        wire.watch(parties.bottoms)
        for round_ in range(3):
            parties.step(wire.batch(torch.arange(BATCH) + BATCH * round_))

    def key(message):
        return message.round, message.sender, message.receiver, message.kind

    expected, found = (sorted(m, key=key) for m in (by_hand(tmp_path / "hand"), messages(tmp_path / "watched")))
    assert [key(m) for m in found] == [key(m) for m in expected]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.records, other.records)
        assert all(torch.allclose(one.tensors[name], other.tensors[name]) for name in other.tensors)


def test_evaluation_is_no_message(tmp_path):
    parties = Parties()
    with recording(tmp_path) as wire:
        wire.watch(parties.bottoms)
        parties.step(wire.batch(range(BATCH)))
        with torch.no_grad():
            parties.bottoms[0](parties.blocks[0])
        parties.bottoms[1].eval()
        parties.bottoms[1](parties.blocks[1])
    assert len(messages(tmp_path)) == 4


def test_with_the_top_watched_a_message_is_what_the_server_gets(tmp_path):
    parties = Parties()
    with recording(tmp_path) as wire:
        wire.watch(parties.bottoms, top=parties.top)
        sent = parties.step(wire.batch(range(BATCH)), noise=5.0)
    found = messages(tmp_path)
    uplinks = [m.tensors["embedding"][0] for m in found if m.kind == "embeddings"]
    assert all(torch.equal(one, other) for one, other in zip(uplinks, sent, strict=True))
    assert sum(m.kind == "embedding-gradient" for m in found) == 2


def test_hooks_end_with_the_recording(tmp_path):
    parties = Parties()
    with recording(tmp_path) as wire:
        wire.watch(parties.bottoms)
        parties.step(wire.batch(range(BATCH)))
    parties.step(torch.arange(BATCH))
    assert len(messages(tmp_path)) == 4


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_carries_the_ids(tmp_path, workers):
    parties = Parties()
    data = TensorDataset(torch.arange(RECORDS))
    loader = DataLoader(
        data, batch_size=5, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(3)
    )
    seen = []
    with recording(tmp_path) as wire:
        wire.watch(parties.bottoms)
        for _ in range(2):
            for (positions,) in wire.ids(loader):
                parties.step(positions)
                seen.append(positions)
    assert [len(s) for s in seen] == [5, 5, 2] * 2
    assert sorted(torch.cat(seen[:3]).tolist()) == list(range(RECORDS))
    ups = [m.records for m in messages(tmp_path) if m.kind == "embeddings" and m.device.index == 0]
    assert all(torch.equal(one, other) for one, other in zip(ups, seen, strict=True))


def test_embeddings_of_any_rank_keep_their_shape(tmp_path):
    bottoms = [nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3)]
    with recording(tmp_path) as wire:
        wire.watch(bottoms)
        wire.batch(range(BATCH))
        sum(b(torch.randn(BATCH, 1, 6, 6)).sum() for b in bottoms).backward()
    assert {tuple(t.shape) for m in messages(tmp_path) for t in m.tensors.values()} == {(1, BATCH, 2, 4, 4)}


def test_what_cannot_be_watched_is_one_clear_line(tmp_path):
    parties = Parties()
    with recording(tmp_path) as wire:
        for bottoms, expected in (
            (parties.bottoms[:1], "2, one for each device"),
            ([parties.bottoms[0]] * 2, "bottoms[1] = 'shared with bottoms[0]'"),
            ([parties.bottoms[0], 3], "a torch.nn.Module"),
        ):
            with pytest.raises(InputError, match=re.escape(expected)):
                wire.watch(bottoms)
        with pytest.raises(InputError, match="before"):
            wire.batch(range(BATCH))
        with pytest.raises(InputError, match="embeddings or logits"):
            wire.watch(parties.bottoms, kind="losses")
        wire.watch(parties.bottoms)
        with pytest.raises(InputError, match="whose records"):
            parties.step(torch.arange(BATCH))
        wire.batch(range(BATCH))
        parties.step(torch.arange(BATCH))
        wire.batch(range(BATCH - 1))
        with pytest.raises(InputError, match="embeddings: embedding"):
            parties.step(torch.arange(BATCH))
        with pytest.raises(InputError, match="a torch DataLoader"):
            next(wire.ids([1, 2]))


@pytest.mark.parametrize("caught_at", ["the end", "a full file"])
def test_values_that_are_not_finite_are_found_before_they_are_written(tmp_path, caught_at, monkeypatch):
    if caught_at == "a full file":
        monkeypatch.setattr("vflpriv.recording.recorder._FILE_BYTES", 1)
        monkeypatch.setattr("vflpriv.recording.watching.held._HELD", 1)
    parties, begun = Parties(), []

    def train():
        with recording(tmp_path) as wire:
            wire.labels(parties.labels)
            wire.watch(parties.bottoms)
            for t in range(8):
                begun.append(t)
                if t == 2:
                    parties.bottoms[1].weight.data[0, 0] = torch.inf
                parties.step(wire.batch(torch.arange(6)))

    with pytest.raises(InputError, match="embeddings: embedding = 'NaN or infinity in round 2'"):
        train()
    assert begun[-1] == (7 if caught_at == "the end" else 3)
    assert {m.round for m in messages(tmp_path)} == {0, 1}


def test_messages_that_are_handed_over_later_are_those_of_their_time(tmp_path):
    """Held back over many rounds, or not at all: the same recording, although the training overwrites its outputs."""
    found = {}
    for held in (1, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("vflpriv.recording.watching.held._HELD", held)
            patch.setattr("vflpriv.recording.watching.held._SECONDS", 1000.0)
            parties, folder = Parties(), tmp_path / str(held)
            with recording(folder) as wire:
                wire.watch(parties.bottoms)
                for t in range(6):
                    records = torch.arange(BATCH - t % 2)
                    parties.step(wire.batch(records))
                    if t == 4:
                        wire.up(4, 0, "note", {"x": [1.0]})
            found[held] = messages(folder)
    assert [(m.round, m.kind, m.sender, m.receiver) for m in found[1]] == [
        (m.round, m.kind, m.sender, m.receiver) for m in found[1000]
    ]
    for one, other in zip(found[1], found[1000], strict=True):
        for name, value in one.tensors.items():
            assert torch.equal(value, other.tensors[name])


def test_a_training_that_fails_keeps_its_complete_rounds(tmp_path):
    parties = Parties()

    def train():
        with recording(tmp_path) as wire:
            wire.watch(parties.bottoms)
            for t in range(6):
                wire.batch(torch.arange(BATCH))
                if t == 5:
                    parties.bottoms[0](parties.blocks[0][:BATCH])
                    raise RuntimeError("stop")
                parties.step(torch.arange(BATCH))

    with pytest.raises(RuntimeError, match="stop"):
        train()
    assert {m.round for m in messages(tmp_path)} == {0, 1, 2, 3, 4}


def test_rounds_of_a_watched_training_are_on_disk_as_often_as_is_asked(tmp_path):
    parties, seen = Parties(), []
    with recording(tmp_path, rounds_per_file=1) as wire:
        wire.watch(parties.bottoms)
        for _ in range(3):
            parties.step(wire.batch(torch.arange(BATCH)))
            seen.append(len(list(tmp_path.glob("round-*"))))
    assert seen == [0, 1, 2]
