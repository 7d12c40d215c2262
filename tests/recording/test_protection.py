"""Transcripts as evidence: what was changed, cut off, mixed or left out after the recording is found."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys

import pytest
import torch

import vflpriv
from tests.recording.transcript_files import unprotected
from vflpriv.errors import InputError
from vflpriv.recording.files.format import HEAD, shard_name
from vflpriv.recording.files.scoring_files import read_features, read_members
from vflpriv.recording.transcripts import read_answers, read_names, read_transcript

RECORDS = 8
BESIDE = ("answers.safetensors", "ids.json", "features-00000.safetensors", "members.safetensors")


def record(folder, rounds=6, **options):
    """A transcript of so many rounds, one file each, with everything that can lie beside the messages."""
    options = {"rounds_per_file": 1, "records": [f"r{n}" for n in range(RECORDS)]} | options
    with vflpriv.record(folder, devices=1, classes=2, **options) as wire:
        labels, canaries = vflpriv.plant(torch.arange(RECORDS) % 2, classes=2, canaries=4, seed=1)
        wire.labels(labels, canaries=canaries)
        wire.features(0, torch.arange(3.0 * RECORDS).reshape(RECORDS, 3))
        wire.members(vflpriv.plant_members(records=RECORDS, canaries=2, seed=1)[1])
        for t in range(rounds):
            wire.up(t, 0, "embeddings", {"embedding": torch.full((2, 3), float(t))}, ["r0", f"r{1 + t % 7}"])
    return folder


def read_all(folder):
    """Everything that an audit reads of a transcript."""
    recording = read_transcript(folder)
    head = recording.head
    return (
        recording,
        read_answers(folder, head),
        read_names(folder, head),
        read_features(folder, head),
        read_members(folder, head),
    )


def refused(folder):
    """The line with which a transcript is refused; None if it is accepted."""
    try:
        read_all(folder)
    except InputError as error:
        line = str(error)
    else:
        return None
    assert "\n" not in line
    return line


def test_a_flipped_bit_of_any_file_is_found(tmp_path):
    record(tmp_path / "run")
    read_all(tmp_path / "run")
    draw, accepted = random.Random(1), []
    for path in sorted(path for path in (tmp_path / "run").iterdir() if path.stat().st_size):
        content = path.read_bytes()
        for place in draw.sample(range(len(content)), 12):
            changed = bytearray(content)
            changed[place] ^= 1 << draw.randrange(8)
            path.write_bytes(changed)
            accepted += [(path.name, place)] if refused(tmp_path / "run") is None else []
        path.write_bytes(content)
    assert accepted == []
    assert refused(tmp_path / "run") is None


def drop_first(folder, dropped, rounds=6):
    """Delete the first files, and number the others as if nothing had been before them."""
    for n in range(dropped):
        (folder / shard_name(n)).unlink()
    for n in range(dropped, rounds):
        (folder / shard_name(n)).rename(folder / shard_name(n - dropped))
    head = json.loads((folder / HEAD).read_text())
    (folder / HEAD).write_text(json.dumps(head | {"files": rounds - dropped}))


def test_rounds_that_were_deleted_are_missed(tmp_path):
    drop_first(record(tmp_path / "run"), 5)
    assert "expected" in refused(tmp_path / "run")


def test_counts_of_an_unprotected_transcript_are_checked(tmp_path):
    folder = unprotected(record(tmp_path / "run"))
    assert refused(folder) is None
    assert not read_transcript(folder).protected
    drop_first(folder, 5)
    assert "messages" in refused(folder)


def test_files_of_two_recordings_are_not_one(tmp_path):
    record(tmp_path / "run")
    record(tmp_path / "other")
    shutil.copy(tmp_path / "other" / shard_name(3), tmp_path / "run" / shard_name(3))
    assert shard_name(3) in refused(tmp_path / "run")


def test_a_finished_transcript_cannot_be_cut_short(tmp_path):
    folder = record(tmp_path / "run")
    (folder / shard_name(5)).unlink()
    assert "gap" in refused(folder)


@pytest.mark.parametrize("name", BESIDE)
def test_a_file_beside_the_messages_that_is_gone_is_missed(tmp_path, name):
    folder = record(tmp_path / "run")
    (folder / name).unlink()
    assert name in refused(folder)


def test_two_recordings_in_one_folder_are_refused(tmp_path):
    with vflpriv.record(tmp_path, devices=1, classes=2, records=5) as wire:
        wire.up(0, 0, "note", {"x": [1.0]})
        for options in ({"fresh": True}, {"resume": True}, {}):
            with pytest.raises(InputError, match="another recording"):
                vflpriv.record(tmp_path, devices=1, classes=2, records=5, **options)
    assert len(read_transcript(tmp_path).transcript.messages) == 1


def test_watch_moves_what_is_there_aside_and_says_so(tmp_path, capsys):
    labels = torch.arange(5) % 2
    for value in (1.0, 2.0, 3.0):
        wire = vflpriv.watch(1, labels=labels, classes=2, folder=tmp_path / "run")
        wire.up(0, 0, "note", {"x": [value]})
        wire.finish()
    said = capsys.readouterr().err
    assert "earlier-1" in said
    assert "fresh=True" in said
    values = [
        read_transcript(tmp_path / "run" / place).transcript.messages[0].tensors["x"].item()
        for place in ("earlier-1", "earlier-2", ".")
    ]
    assert values == [1.0, 2.0, 3.0]
    wire = vflpriv.watch(1, labels=labels, classes=2, folder=tmp_path / "run", fresh=True)
    wire.up(0, 0, "note", {"x": [4.0]})
    wire.finish()
    assert not (tmp_path / "run" / "earlier-3").exists()


STOPPED = """
import signal, sys, time, torch, vflpriv
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as it is without nohup, under which the tests may run
wire = vflpriv.record(sys.argv[1], devices=1, classes=2, records=5)
for t in range(10**6):
    wire.up(t, 0, "note", {"x": [float(t)]})
    wire.down(t, 0, "note", {"x": [float(t)]})
    if t == 50:
        print("on", flush=True)
    time.sleep(0.001)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_recording_in_order(tmp_path, number):
    command = [sys.executable, "-c", STOPPED, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"}) as training:
        training.stdout.readline()
        training.send_signal(number)
        try:
            assert training.wait(60) == -number
        finally:
            training.kill()
    recording = read_transcript(tmp_path / "run")
    assert recording.rounds >= 50  # without it, what was not a second old is lost
    assert not recording.head.finished
    assert len(recording.transcript.messages) == 2 * recording.rounds


def test_a_signed_transcript_is_read_with_its_key_alone(tmp_path, monkeypatch):
    unsigned = record(tmp_path / "unsigned")
    monkeypatch.setenv("VFLPRIV_SIGNING_KEY", "a key of this test")
    folder = record(tmp_path / "run")
    assert read_transcript(folder).signed
    assert "signature" in refused(unsigned)
    monkeypatch.setenv("VFLPRIV_SIGNING_KEY", "another key of this test")
    assert "signature" in refused(folder)
    monkeypatch.delenv("VFLPRIV_SIGNING_KEY")
    (tmp_path / "key").write_text("a key of this test\n")
    monkeypatch.setenv("VFLPRIV_SIGNING_KEY_FILE", str(tmp_path / "key"))
    assert refused(folder) is None
    monkeypatch.delenv("VFLPRIV_SIGNING_KEY_FILE")
    assert refused(folder) is None
    assert not read_transcript(folder).signed


def test_a_recording_goes_on_with_its_chain(tmp_path):
    folder = tmp_path / "run"

    def train(rounds, **options):
        with vflpriv.record(folder, devices=1, classes=2, records=5, rounds_per_file=1, **options) as wire:
            for t in rounds:
                wire.up(t, 0, "note", {"x": [float(t)]})
            if rounds[0] == 0:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(range(3))
    train(range(2, 5), resume=True)
    recording = read_transcript(folder)
    assert (recording.rounds, recording.head.finished, recording.protected) == (5, True, True)
