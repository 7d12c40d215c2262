"""Transcripts: what is recorded is read back, what was killed is kept, what does not fit is refused in one line."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import vflpriv
from tests.recording.transcript_files import unprotected
from vflpriv.core.views import Adversary
from vflpriv.core.wire import SERVER, device
from vflpriv.errors import InputError, OutputError
from vflpriv.recording.files.ending import end_recordings
from vflpriv.recording.recorder import RecordingWire
from vflpriv.recording.transcripts import read_answers, read_names, read_transcript

RECORDS, CLASSES = 12, 3


def make(folder, rounds=3, devices=2, **options):
    """A small transcript, and what was put into it."""
    sent = []
    generator = torch.Generator().manual_seed(0)
    options = {"rounds_per_file": 1} | options
    with vflpriv.record(folder, devices=devices, classes=CLASSES, records=RECORDS, **options) as wire:
        labels, canaries = vflpriv.plant(torch.arange(RECORDS) % CLASSES, classes=CLASSES, canaries=4, seed=1)
        wire.labels(labels, canaries=canaries)
        for t in range(rounds):
            ids = torch.randperm(RECORDS, generator=generator)[:4]
            for m in range(devices):
                up, down = torch.randn(2, 4, CLASSES, generator=generator)
                wire.up(t, m, "logits", {"embedding": up.requires_grad_()}, ids)
                wire.down(t, m, "logit-gradient", {"gradient": down}, ids)
                sent += [(t, m, "logits", up, ids), (t, m, "logit-gradient", down, ids)]
        wire.accuracy(0.5, tests=10)
    return sent, labels, canaries


def test_what_is_recorded_is_read_back(tmp_path):
    sent, labels, canaries = make(tmp_path / "run")
    recording = read_transcript(tmp_path / "run")
    assert (recording.rounds, recording.head.devices, recording.head.finished) == (3, 2, True)
    assert recording.head.messages == {"logits": 6, "logit-gradient": 6}
    assert recording.head.shapes["logits"] == {"embedding": (4, CLASSES)}
    for message, (t, m, kind, value, ids) in zip(recording.transcript.messages, sent, strict=True):
        assert (message.round, message.kind, message.device) == (t, kind, device(m))
        assert (message.sender == SERVER) is (kind == "logit-gradient")
        assert torch.equal(next(iter(message.tensors.values())), value.detach().unsqueeze(0))
        assert torch.equal(message.records, ids)
    answers = read_answers(tmp_path / "run", recording.head)
    assert torch.equal(answers.labels, labels)
    assert answers.canaries.records == canaries.records
    assert torch.equal(answers.canaries.worlds, canaries.worlds)


def test_messages_are_read_without_the_answers(tmp_path):
    make(tmp_path / "run")
    (tmp_path / "run" / "answers.safetensors").write_bytes(b"not to be opened")
    recording = read_transcript(tmp_path / "run")
    assert len(recording.transcript.messages) == 12
    with pytest.raises(InputError, match="it was changed"):
        read_answers(tmp_path / "run", recording.head)


def test_arrays_kinds_of_ones_own_and_later_changes(tmp_path):
    value = np.ones((2, 2), dtype=np.float32)
    with vflpriv.record(tmp_path, devices=1, classes=2, records=5) as wire:
        wire.up(0, 0, "my-statistics", {"sum": value, "count": 3})
        value[:] = 7
    (message,) = read_transcript(tmp_path).transcript.messages
    assert message.tensors["sum"].eq(1).all()
    assert message.tensors["count"].item() == 3
    assert message.records is None


KILLED = """
import os, sys, torch, vflpriv
def train(folder, per_file):
    with vflpriv.record(folder, devices=1, classes=2, records=5, rounds_per_file=per_file) as wire:
        for t in range(7):
            wire.up(t, 0, "embeddings", {"embedding": torch.full((2, 3), float(t))}, [0, 1])
            if t == 5:
                os._exit(9)
            wire.down(t, 0, "embedding-gradient", {"gradient": torch.zeros(2, 3)}, [0, 1])
for folder, per_file in zip(sys.argv[1:], (1, 2)):
    if os.fork() == 0:  # rather than another interpreter, which would load torch again
        train(folder, per_file)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 9
"""


def test_a_killed_training_leaves_the_rounds_that_were_over(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    subprocess.run([sys.executable, "-c", KILLED, *map(str, folders)], check=True)
    for folder, kept in zip(folders, (5, 4), strict=True):
        recording = read_transcript(folder)
        assert (recording.rounds, recording.head.finished) == (kept, False)
        assert len(recording.transcript.messages) == 2 * kept


def test_an_error_in_the_training_keeps_whole_rounds_and_goes_on_up(tmp_path):
    def train():
        with vflpriv.record(tmp_path, devices=1, classes=2, records=5, rounds_per_file=10) as wire:
            for t in range(4):
                wire.up(t, 0, "note", {"x": torch.zeros(1)})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    recording = read_transcript(tmp_path)
    assert (recording.rounds, recording.head.finished) == (3, False)


BAD_CALLS = {
    "kind": lambda w: w.up(0, 0, "../escape", {"x": [1.0]}),
    "kind: letters": lambda w: w.up(0, 0, "9lives", {"x": [1.0]}),
    "device": lambda w: w.up(0, 2, "note", {"x": [1.0]}),
    "negative": lambda w: w.up(-1, 0, "note", {"x": [1.0]}),
    "nan": lambda w: w.up(0, 0, "note", {"x": [float("nan")]}),
    "infinity": lambda w: w.down(0, 0, "note", {"x": torch.tensor([float("inf")])}),
    "complex": lambda w: w.up(0, 0, "note", {"x": torch.zeros(1, dtype=torch.complex64)}),
    "no tensor": lambda w: w.up(0, 0, "note", {"x": object()}),
    "no mapping": lambda w: w.up(0, 0, "note", torch.zeros(2)),
    "list": lambda w: w.up(0, 0, "note", [("x", 1.0)]),
    "number for a name": lambda w: w.up(0, 0, "note", {3: [1.0]}),
    "sparse": lambda w: w.up(0, 0, "note", {"x": torch.zeros(2, 2).to_sparse()}),
    "without values": lambda w: w.up(0, 0, "note", {"x": torch.zeros(2, device="meta")}),
    "number too large": lambda w: w.up(0, 0, "note", {"x": 10**30}),
    "name": lambda w: w.up(0, 0, "note", {"a/b": [1.0]}),
    "to itself": lambda w: w.across(0, 1, 1, "note", {"x": [1.0]}),
    "to nobody": lambda w: w.across(0, 1, 2, "note", {"x": [1.0]}),
    "names for numbers": lambda w: w.up(0, 0, "note", {"x": [1.0]}, ["anna"]),
    "half a round": lambda w: w.up(0.5, 0, "note", {"x": [1.0]}),
    "whole logits": lambda w: w.up(0, 0, "logits", {"embedding": torch.zeros(1, CLASSES, dtype=torch.int64)}, [0]),
    "half a label": lambda w: w.labels([0.5] * RECORDS),
    "twice": lambda w: w.up(0, 0, "note", {"x": [1.0]}, [1, 1]),
    "id": lambda w: w.up(0, 0, "note", {"x": [1.0]}, [RECORDS]),
    "float ids": lambda w: w.up(0, 0, "note", {"x": [1.0]}, [0.5]),
    "classes": lambda w: w.down(0, 0, "logit-gradient", {"gradient": torch.zeros(2, 5)}, [0, 1]),
    "rows": lambda w: w.down(0, 0, "logit-gradient", {"gradient": torch.zeros(3, CLASSES)}, [0, 1]),
    "no ids": lambda w: w.down(0, 0, "logit-gradient", {"gradient": torch.zeros(2, CLASSES)}),
    "tensors": lambda w: w.down(0, 0, "logit-gradient", {"grad": torch.zeros(2, CLASSES)}, [0, 1]),
    "labels": lambda w: w.labels([0, 1]),
    "label": lambda w: w.labels([CLASSES] * RECORDS),
    "accuracy": lambda w: w.accuracy(1.5, tests=3),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_a_wrong_call_is_one_line_and_leaves_nothing(tmp_path, case):
    wire = RecordingWire(tmp_path, per_file=1, devices=2, classes=CLASSES, records=RECORDS)
    with pytest.raises(InputError) as caught:
        BAD_CALLS[case](wire)
    assert "\n" not in str(caught.value)
    wire.up(0, 0, "note", {"x": [1.0]})
    wire.finish()
    assert len(read_transcript(tmp_path).transcript.messages) == 1


AFTER_THE_END = {
    "up": lambda w: w.up(5, 0, "note", {"x": [1.0]}),
    "down": lambda w: w.down(5, 0, "note", {"x": [1.0]}),
    "labels": lambda w: w.labels([0] * RECORDS),
    "accuracy": lambda w: w.accuracy(0.5, tests=3),
}


@pytest.mark.parametrize("case", AFTER_THE_END)
@pytest.mark.parametrize("fails", [False, True])
def test_a_call_after_the_with_block_is_one_line_and_changes_nothing(tmp_path, case, fails):
    try:
        with vflpriv.record(tmp_path, devices=2, classes=CLASSES, records=RECORDS) as wire:
            wire.up(0, 0, "note", {"x": [1.0]})
            wire.up(1, 0, "note", {"x": [1.0]})
            if fails:
                raise KeyError("a bug of the training")
    except KeyError:
        assert fails
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match="the recording has ended"):
        AFTER_THE_END[case](wire)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_byte_order_mark_in_the_head_is_no_error(tmp_path):
    make(tmp_path)
    path = tmp_path / "transcript.json"
    path.write_text(f"\ufeff{path.read_text('utf-8')}", encoding="utf-8")
    assert read_transcript(tmp_path).rounds == 3


def test_a_folder_that_is_taken(tmp_path):
    with vflpriv.record(tmp_path, devices=1, classes=2, records=5) as wire:
        wire.up(3, 0, "note", {"x": [1.0]})
    with (
        pytest.raises(InputError, match="without a transcript"),
        vflpriv.record(tmp_path, devices=1, classes=2, records=5),
    ):
        pass
    (tmp_path / "notes.txt").write_text("of mine")
    with vflpriv.record(tmp_path, devices=1, classes=2, records=5, fresh=True) as wire:
        wire.up(0, 0, "note", {"x": [2.0]})
    (message,) = read_transcript(tmp_path).transcript.messages
    assert (message.round, (tmp_path / "notes.txt").exists()) == (0, True)


@pytest.mark.parametrize("change", [{"devices": 0}, {"classes": 1}, {"records": 0}, {"rounds_per_file": 0}])
def test_sizes_of_a_recording_are_checked(tmp_path, change):
    sizes = {"devices": 1, "classes": 2, "records": 5} | change
    with pytest.raises(InputError, match=next(iter(change))), vflpriv.record(tmp_path / "run", **sizes):
        pass


def head(folder, **changes):
    path = folder / "transcript.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def shard(folder, change, place=0):
    path = folder / f"round-{place:08d}.safetensors"
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        entries = json.loads(file.metadata()["messages"])
    change(tensors, entries["messages"])
    save_file(tensors, path, metadata={"messages": json.dumps(entries)})


def edit(name, value):
    return lambda folder: shard(folder, lambda _, messages: messages[0].__setitem__(name, value))


def put(name, value):
    return lambda folder: shard(folder, lambda tensors, _: tensors.__setitem__(name, value))


BAD_FILES = {
    "version": (lambda f: head(f, schema_version="vflpriv-transcript/9"), "vflpriv-transcript/3"),
    "no version": (lambda f: (f / "transcript.json").write_text("[]"), "vflpriv-transcript/3"),
    "no json": (lambda f: (f / "transcript.json").write_text("{"), "valid JSON"),
    "no head": (lambda f: (f / "transcript.json").unlink(), "a folder with transcript.json"),
    "field": (lambda f: head(f, surprise=1), "surprise"),
    "devices": (lambda f: head(f, devices=1), "device"),
    "huge": (lambda f: head(f, records=10**15), "records"),
    "rounds": (lambda f: head(f, rounds=2), "as the messages say"),
    "gap": (lambda f: (f / "round-00000001.safetensors").unlink(), "gap"),
    "surplus": (lambda f: head(f, files=2), "as many as there are"),
    "countless files": (lambda f: head(f, files=10**15), "gap"),
    "fewer than no files": (lambda f: head(f, files=-1), "files"),
    "files as text": (lambda f: head(f, files="3"), "files"),
    "no number of files": (lambda f: head(f, files=float("nan")), "files"),
    "countless rounds": (lambda f: head(f, rounds=10**15), "as the messages say"),
    "countless devices": (lambda f: head(f, devices=10**9), "devices"),
    "countless classes": (lambda f: head(f, classes=10**9), "classes"),
    "long head": (lambda f: head(f, name="x" * 10**7), "at most 10 MB"),
    "deep head": (lambda f: (f / "transcript.json").write_text("[" * 10**5), "valid JSON"),
    "cut": (lambda f: (f / "round-00000001.safetensors").write_bytes(b"\x08\x00"), "whole safetensors"),
    "kind": (edit("kind", "../../etc"), "kind"),
    "way": (edit("way", "sideways"), "way"),
    "far device": (lambda f: head(f, devices=1), "0 to 0"),
    "another device": (edit("device", 5), "its messages list"),
    "across to nobody": (edit("way", "across"), "its messages list"),
    "up to a device": (edit("to", 1), "its messages list"),
    "missing tensor": (edit("rows", {"embedding": 4, "other": 4}), "its messages list"),
    "stray tensor": (put("9/x", torch.zeros(1)), "its messages list"),
    "dtype": (put("logits/embedding/up-0", torch.zeros(4, CLASSES, dtype=torch.int64)), "int64"),
    "shape": (put("logits/embedding/up-0", torch.zeros(4, CLASSES + 1)), "classes"),
    "fewer rows": (put("logits/embedding/up-0", torch.zeros(3, CLASSES)), "at least 4 rows"),
    "more rows": (put("logits/embedding/up-0", torch.zeros(5, CLASSES)), "as its messages say"),
    "number for rows": (edit("rows", {"embedding": None}), "rows"),
    "a cut without a sample": (edit("cut", {"embedding": 0}), "each record that is kept"),
    "nan": (put("logits/embedding/up-0", torch.full((4, CLASSES), float("nan"))), "finite"),
    "ids": (put("batch/0", torch.tensor([0, 1, 2, RECORDS])), f"0 to {RECORDS - 1}"),
    "ids twice": (put("batch/0", torch.tensor([0, 1, 2, 2])), "twice"),
    "float ids": (put("batch/0", torch.zeros(4)), "int64"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_that_does_not_fit_is_one_line(tmp_path, case):
    spoil, complaint = BAD_FILES[case]
    make(tmp_path / "run")
    spoil(unprotected(tmp_path / "run"))
    with pytest.raises(InputError, match=complaint) as caught:
        read_transcript(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_rounds_out_of_order_are_read_in_order(tmp_path):
    """A pipelined training sends the next batch up before the gradients of the one before come down."""
    with vflpriv.record(tmp_path, devices=1, classes=2, records=5) as wire:
        for t in range(3):
            wire.up(t + 1, 0, "note", {"x": [float(t)]})
            wire.down(t, 0, "note", {"x": [10.0 + t]})
    messages = read_transcript(tmp_path).transcript.messages
    assert [(m.round, m.tensors["x"].item()) for m in messages] == [(0, 10), (1, 0), (1, 11), (2, 1), (2, 12), (3, 2)]


def test_shapes_may_change_from_message_to_message(tmp_path):
    with vflpriv.record(tmp_path, devices=2, classes=2, records=5) as wire:
        for t, width in enumerate((3, 3, 4, 3)):
            for m in range(2):
                wire.up(t, m, "note", {"x": torch.full((2, width + m), float(t)), "n": t})
    messages = read_transcript(tmp_path).transcript.messages
    assert [tuple(m.tensors["x"].shape[1:]) for m in messages] == [(2, w + m) for w in (3, 3, 4, 3) for m in range(2)]
    assert all(m.tensors["x"].eq(m.round).all() and m.tensors["n"].item() == m.round for m in messages)


def test_devices_may_send_to_each_other(tmp_path):
    with vflpriv.record(tmp_path, devices=3, classes=2, records=5) as wire:
        wire.across(0, 0, 2, "note", {"x": [1.0]})
    (message,) = read_transcript(tmp_path).transcript.messages
    assert (message.sender, message.receiver, message.device) == (device(0), device(2), device(0))
    seen = {view: Adversary.parse(view).sees(message, 3) for view in ("device(0)", "device(1)", "device(2)", "server")}
    assert seen == {"device(0)": True, "device(1)": False, "device(2)": True, "server": False}
    assert Adversary.parse("eavesdropper").sees(message, 3)


def test_a_recording_goes_on_after_a_restart(tmp_path):
    def train(rounds, **options):
        with vflpriv.record(tmp_path, devices=1, classes=2, records=5, **options) as wire:
            for t in rounds:
                wire.up(t, 0, "note", {"x": [float(t)]}, [t])
            if rounds[0] == 0:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(range(3))
    assert read_transcript(tmp_path).rounds == 2
    train(range(2, 5), resume=True)
    recording = read_transcript(tmp_path)
    assert [m.tensors["x"].item() for m in recording.transcript.messages] == [0, 1, 2, 3, 4]
    assert (recording.head.finished, recording.head.messages) == (True, {"note": 5})
    with (
        pytest.raises(InputError, match="records = 6: expected 5, as before"),
        vflpriv.record(tmp_path, devices=1, classes=2, records=6, resume=True),
    ):
        pass


@pytest.mark.parametrize("ids", [["anna", "bert", "carl"], [2**60, 7, -5], np.array([10**12, 3, 4])])
def test_records_may_have_ids_of_their_own(tmp_path, ids):
    with vflpriv.record(tmp_path, devices=1, classes=2, records=ids) as wire:
        wire.labels([0, 1, 1])
        wire.up(0, 0, "note", {"x": [1.0, 2.0]}, [ids[2], ids[0]])
        with pytest.raises(InputError, match="an id from those"):
            wire.up(0, 0, "note", {"x": [1.0]}, ["dora"])
    recording = read_transcript(tmp_path)
    assert recording.transcript.messages[0].records.tolist() == [2, 0]
    assert read_names(tmp_path, recording.head) == tuple(ids if isinstance(ids, list) else ids.tolist())


LABELS = {
    "whole": [0, 2, 1, 2],
    "numpy": np.array([0, 2, 1, 2], dtype=np.uint8),
    "floats": torch.tensor([0.0, 2.0, 1.0, 2.0]),
    "column": np.array([[0], [2], [1], [2]]),
    "names": ["no", "yes", "perhaps", "yes"],
    "array of names": np.array(["no", "yes", "perhaps", "yes"]),
}


@pytest.mark.parametrize("form", LABELS)
def test_labels_in_any_form(tmp_path, form):
    with vflpriv.record(tmp_path, devices=1, classes=3, records=4) as wire:
        wire.labels(LABELS[form])
        wire.up(0, 0, "note", {"x": [1.0]})
    head = read_transcript(tmp_path).head
    assert read_answers(tmp_path, head).labels.tolist() == [0, 2, 1, 2]
    assert head.class_names == (("no", "perhaps", "yes") if "names" in form else ())


def test_the_targets_of_a_regression_are_kept(tmp_path):
    with vflpriv.record(tmp_path, devices=1, records=3) as wire:
        wire.labels([0.5, -2.0, 1e6])
        wire.down(0, 0, "logit-gradient", {"gradient": torch.zeros(2, 1)}, [0, 1])
    answers = read_answers(tmp_path, read_transcript(tmp_path).head)
    assert answers.targets.tolist() == [0.5, -2.0, 1e6]
    assert answers.labels.tolist() == [-1, -1, -1]


class Array:
    """An array of a library that this package does not know."""

    def __array__(self, dtype=None, copy=None):
        return np.ones((2, 3), dtype=np.float32)


class OnDlpack:
    """An array that can be read by DLPack alone, as one of a type that NumPy does not know."""

    def __init__(self):
        self._values = torch.ones(2, 3, dtype=torch.bfloat16)

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


@pytest.mark.parametrize("value", [Array(), OnDlpack(), [[1.0] * 3] * 2, np.ones((3, 2)).T])
def test_arrays_of_any_library(tmp_path, value):
    with vflpriv.record(tmp_path, devices=1, classes=2, records=5) as wire:
        received = wire.up(0, 0, "embeddings", {"embedding": value}, [0, 1])
    (message,) = read_transcript(tmp_path).transcript.messages
    assert message.tensors["embedding"].shape == (1, 2, 3)
    assert message.tensors["embedding"].eq(1).all()
    assert received["embedding"].eq(1).all()


def test_a_sample_of_the_records_keeps_their_rows_and_everybodys_ids(tmp_path):
    labels, canaries = vflpriv.plant(torch.zeros(100, dtype=torch.int64), classes=2, canaries=5, seed=0)
    sizes = {"devices": 1, "classes": 2, "records": 100}
    with vflpriv.record(tmp_path, **sizes, keep=vflpriv.sample(records=10, seed=4)) as wire:
        wire.labels(labels, canaries=canaries)
        for t in range(5):
            ids = torch.arange(20) + 20 * t
            wire.up(t, 0, "embeddings", {"embedding": ids.float().unsqueeze(1)}, ids)
            wire.down(t, 0, "zo-scalar", {"delta": 1.0}, ids)
    recording = read_transcript(tmp_path)
    rows, scalars = (recording.transcript.messages[first::2] for first in (0, 1))
    kept = torch.cat([m.records for m in rows])
    assert len(kept) == recording.head.sampled
    assert 10 <= len(kept) <= 15
    assert set(canaries.records) <= set(kept.tolist())
    assert all(torch.equal(m.tensors["embedding"][0, :, 0], m.records.float()) for m in rows)
    assert torch.cat([m.contributors for m in rows]).tolist() == list(range(100))
    assert torch.cat([m.records for m in scalars]).tolist() == list(range(100))


def test_half_precision_rounds_and_refuses_what_it_cannot_hold(tmp_path):
    value = torch.tensor([[1 / 3, 1000.5]])
    with vflpriv.record(tmp_path, devices=1, classes=2, records=5, precision="half") as wire:
        wire.up(0, 0, "note", {"x": value, "n": 7})
        with pytest.raises(InputError, match="65504"):
            wire.up(0, 0, "note", {"x": torch.tensor([[1e5, 0.0]]), "n": 7})
    (message,) = read_transcript(tmp_path).transcript.messages
    assert torch.equal(message.tensors["x"][0], value.half())
    assert message.tensors["n"].dtype == torch.int64


def test_a_full_disk_ends_the_recording_with_one_line(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with vflpriv.record(tmp_path, devices=1, classes=2, records=5) as wire:
        wire.up(0, 0, "note", {"x": [1.0]})
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OutputError, match="No space left"):
            wire.finish()
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("labels", torch.full((RECORDS,), CLASSES), "0 to 2"),
        ("labels", torch.zeros(RECORDS), "int64"),
        ("labels", torch.zeros(3, dtype=torch.int64), "shape"),
        ("worlds", torch.full((4,), 2), "0 to 1"),
        ("canary_labels", torch.ones(4, 2, dtype=torch.int64), "two different labels"),
        ("canaries", torch.tensor([0, 0, 1, 2]), "twice"),
        ("extra", torch.zeros(1), "records and labels"),
    ],
)
def test_answers_that_do_not_fit_are_one_line(tmp_path, name, value, complaint):
    make(tmp_path / "run")
    unprotected(tmp_path / "run")
    path = tmp_path / "run" / "answers.safetensors"
    save_file(load_file(path) | {name: value}, path)
    with pytest.raises(InputError, match=complaint):
        read_answers(tmp_path / "run", read_transcript(tmp_path / "run").head)


def test_coins_that_do_not_fit_the_labels_are_refused(tmp_path):
    make(tmp_path / "run")
    unprotected(tmp_path / "run")
    path = tmp_path / "run" / "answers.safetensors"
    held = load_file(path)
    save_file(held | {"worlds": 1 - held["worlds"]}, path)
    with pytest.raises(InputError, match="the coins by which"):
        read_answers(tmp_path / "run", read_transcript(tmp_path / "run").head)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    make(folder)
    return folder, {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@settings(max_examples=150)
@given(st.data())
def test_no_change_of_bytes_escapes_the_reader(whole, data):
    """A transcript with changed bytes is read, or refused in one line: never a traceback, never half of it."""
    folder, files = whole
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(len(content) - 1, 700)))
        content[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    (folder / name).write_bytes(bytes(content))
    complaint = ""
    try:
        recording = read_transcript(folder)
        read_answers(folder, recording.head)
    except InputError as error:
        complaint = str(error)
    finally:
        (folder / name).write_bytes(files[name])
    assert "\n" not in complaint


@pytest.mark.parametrize("form", [list, np.array, torch.tensor, lambda values: np.array(values)[:, None]])
def test_canaries_are_planted_in_labels_of_any_form(form):
    numbers = [0, 1, 2] * 10
    given = form(numbers)
    planted, canaries = vflpriv.plant(given, classes=3, canaries=6, seed=0)
    assert type(planted) is type(given)
    expected, _ = vflpriv.plant(torch.tensor(numbers), classes=3, canaries=6, seed=0)
    assert np.asarray(planted).reshape(-1).tolist() == expected.tolist()
    assert np.asarray(given).reshape(-1).tolist() == numbers
    assert sum(a != b for a, b in zip(expected.tolist(), numbers, strict=True)) == int(canaries.worlds.sum())


@pytest.mark.parametrize("labels", [["no", "yes"], [0.5, 1.0], object()])
def test_canaries_need_class_numbers(labels):
    with pytest.raises(InputError, match="class numbers"):
        vflpriv.plant(labels, classes=2, canaries=1, seed=0)


def test_a_recording_without_a_block_ends_with_the_program(tmp_path):
    wire = vflpriv.record(tmp_path / "run", devices=1, classes=2, labels=[0, 1, 1], fresh=True)
    wire.up(0, 0, "own", {"x": torch.ones(3)}, [0, 1, 2])
    assert not json.loads((tmp_path / "run" / "transcript.json").read_text("utf-8"))["finished"]
    end_recordings()  # what the end of the program calls
    recording = read_transcript(tmp_path / "run")
    assert (recording.head.finished, recording.head.records, recording.rounds) == (True, 3, 1)
    assert read_answers(tmp_path / "run", recording.head).labels.tolist() == [0, 1, 1]
    with pytest.raises(InputError, match="the recording has ended"):
        wire.up(1, 0, "own", {"x": torch.ones(3)}, [0, 1, 2])


def test_a_program_that_failed_leaves_its_recording_unfinished(monkeypatch, tmp_path):
    wire = vflpriv.record(tmp_path / "run", devices=1, records=3)
    for t in range(2):
        wire.up(t, 0, "own", {"x": torch.ones(3)}, [0, 1, 2])
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    end_recordings()
    recording = read_transcript(tmp_path / "run")
    assert (recording.head.finished, recording.rounds) == (False, 1)


def test_the_number_of_records_is_needed_where_labels_do_not_tell_it(tmp_path):
    with pytest.raises(InputError, match="record: records = None: expected how many"):
        vflpriv.record(tmp_path / "run", devices=1, classes=2)
