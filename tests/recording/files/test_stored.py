"""Tensors of a transcript stay on disk until they are asked for, and few files are mapped at a time."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import vflpriv
from tests.recording.transcript_files import unprotected
from vflpriv.errors import InputError
from vflpriv.recording.files import stored
from vflpriv.recording.files.stored import StoredFiles, content_hash
from vflpriv.recording.transcripts import read_hash, read_transcript


def record(folder, rounds=6, **options):
    with vflpriv.record(folder, devices=2, classes=2, records=10, rounds_per_file=1, **options) as wire:
        wire.labels(torch.arange(10) % 2)
        for t in range(rounds):
            ids = torch.tensor([t, 9 - t, (t + 4) % 9])
            for m in range(2):
                wire.up(t, m, "embeddings", {"embedding": torch.full((3, 4), 10.0 * t + m)}, ids)
                wire.down(t, m, "note", {"n": float(t)})
    return folder


def test_only_the_last_files_are_mapped_and_messages_hold_no_tensor(tmp_path, monkeypatch):
    mapped = weakref.WeakSet()

    class Watched(stored.StoredFile):
        def __init__(self, path):
            super().__init__(path)
            mapped.add(self)

    monkeypatch.setattr(stored, "StoredFile", Watched)
    messages = read_transcript(record(tmp_path)).transcript.messages
    gc.collect()
    assert len(mapped) <= stored._MAPPED < 6
    for message in messages:
        value = message.tensors["embedding" if message.kind == "embeddings" else "n"]
        expected = 10.0 * message.round + message.device.index if message.kind == "embeddings" else message.round
        assert value.shape[0] == 1
        assert value.eq(expected).all()
    del value
    gc.collect()
    assert len(mapped) <= stored._MAPPED


def test_messages_about_one_batch_share_its_ids(tmp_path):
    messages = [m for m in read_transcript(record(tmp_path)).transcript.messages if m.kind == "embeddings"]
    assert all(one.records is other.records for one, other in zip(messages[::2], messages[1::2], strict=True))
    sampled = record(tmp_path / "sampled", keep=vflpriv.sample(records=4))
    messages = [m for m in read_transcript(sampled).transcript.messages if m.kind == "embeddings"]
    for one, other in zip(messages[::2], messages[1::2], strict=True):
        assert one.records is other.records
        assert one.batch is other.batch
        assert one.records.dtype == torch.int64
        assert one.tensors["embedding"].shape[1] == len(one.records) < len(one.batch) == 3


def test_a_file_that_vanishes_after_it_was_read_is_one_line(tmp_path):
    messages = read_transcript(record(tmp_path)).transcript.messages
    for path in tmp_path.glob("round-*"):
        path.unlink()
    with pytest.raises(InputError, match="a whole safetensors file"):
        messages[0].tensors["embedding"]
    with pytest.raises(KeyError):
        messages[0].tensors["other"]


def test_the_hash_is_of_all_that_a_transcript_holds(tmp_path):
    folder = record(tmp_path / "a")
    before = read_hash(folder)
    assert read_hash(folder) == before
    folder = unprotected(folder)
    before = read_hash(folder)
    for name in ("round-00000003.safetensors", "answers.safetensors", "transcript.json"):
        content = (folder / name).read_bytes()
        changed = content.replace(b'"name": "a"', b'"name": "b"') if name.endswith("json") else content[:-1] + b"\1"
        assert changed != content
        (folder / name).write_bytes(changed)
        assert read_hash(folder) != before
        (folder / name).write_bytes(content)
    assert read_hash(folder) == before
    with pytest.raises(InputError, match="a file that can be read"):
        content_hash([folder / "nothing"])


def test_a_file_stays_mapped_while_it_is_used(tmp_path):
    paths, files = sorted(record(tmp_path).glob("round-*")), StoredFiles()
    first = files.file(paths[0])
    for path in paths[1 : stored._MAPPED]:
        files.file(path)
    assert files.file(paths[0]) is first
    for path in paths[1 : stored._MAPPED + 1]:
        files.file(path)
    assert files.file(paths[0]) is not first
