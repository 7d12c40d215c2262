"""Transcripts that parties recorded on their own, merged into that of the whole training."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import vflpriv
from tests.cli.test_cli import run
from vflpriv.errors import InputError
from vflpriv.recording.merging import merge_transcripts
from vflpriv.recording.recorder import RecordingWire
from vflpriv.recording.transcripts import read_answers, read_names, read_transcript

RECORDS, CLASSES, ROUNDS, BATCH = 240, 2, 30, 48
LEDGER = """
[[release]]
kind = "logits"
noise = "none"
independent_of = ["label"]
[[release]]
kind = "logit-gradient"
noise = "none"
[[claim]]
key = "labels"
unit = "label"
view = "device"
epsilon = 1.0
"""


class _Party:
    """What one party of the training notes: everything it sends and receives."""

    def __init__(self, wire: RecordingWire, devices: tuple[int, ...], names: list[str] | None):
        self.wire, self.devices, self.names = wire, devices, names

    def note(self, way: str, round_: int, device: int, kind: str, tensors, ids) -> None:
        if device in self.devices:
            records = ids if self.names is None else [self.names[i] for i in ids.tolist()]
            getattr(self.wire, way)(round_, device, kind, tensors, records)


def train(parties: list[_Party], rounds: int = ROUNDS) -> None:
    """Logistic regression of two devices with residuals, which each party notes for itself."""
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randn(2, RECORDS, 3, generator=generator)
    labels = planted()[0]
    weights = torch.zeros(2, 3)
    for t in range(rounds):
        ids = torch.randperm(RECORDS, generator=generator)[:BATCH]
        scores = [blocks[m, ids] @ weights[m] for m in range(2)]
        residuals = torch.sigmoid(sum(scores)) - labels[ids]
        for party in parties:
            for m in range(2):
                party.note("up", t, m, "logits", {"embedding": scores[m]}, ids)
        for party in parties:
            for m in range(2):
                party.note("down", t, m, "logit-gradient", {"gradient": residuals}, ids)
        weights -= torch.stack([blocks[m, ids].T @ residuals for m in range(2)]) / BATCH


def planted():
    return vflpriv.plant(torch.arange(RECORDS) % 2, classes=CLASSES, canaries=80, seed=1)


def opened(folder, devices, *, labels=False, names=None, classes=CLASSES, **options):
    truth, canaries = planted()
    known = {"labels": truth, "canaries": canaries} if labels else {}
    records = RECORDS if names is None else names
    wire = vflpriv.record(folder, devices=2, classes=classes, records=records, **known, **options)
    return _Party(wire, devices, names)


def record_apart(folder, rounds=ROUNDS, **options):
    """Transcripts of both devices and of the server, in folders of their own."""
    parties = [opened(folder / f"device{m}", (m,), **options) for m in range(2)]
    parties.append(opened(folder / "server", (0, 1), labels=True, **options))
    train(parties, rounds)
    for party in parties:
        party.wire.finish()
    return [folder / name for name in ("device0", "device1", "server")]


def record_at_once(folder, rounds=ROUNDS, **options):
    party = opened(folder, (0, 1), labels=True, **options)
    train([party], rounds)
    party.wire.finish()
    return folder


def same_messages(one, other) -> bool:
    pairs = zip(read_transcript(one).transcript.messages, read_transcript(other).transcript.messages, strict=True)
    return all(
        (a.round, a.sender, a.receiver, a.kind) == (b.round, b.sender, b.receiver, b.kind)
        and torch.equal(a.records, b.records)
        and torch.equal(a.contributors, b.contributors)
        and all(torch.equal(value, b.tensors[name]) for name, value in a.tensors.items())
        for a, b in pairs
    )


@pytest.mark.parametrize("without_server", [False, True])
def test_merged_transcripts_are_that_of_the_whole_training(tmp_path, without_server):
    folders = record_apart(tmp_path, 4)
    whole = record_at_once(tmp_path / "whole", 4)
    merged = merge_transcripts(folders[:2] if without_server else folders, tmp_path / "merged")
    assert (merged.rounds, merged.messages) == (4, 16)
    assert merged.both_ends == (0 if without_server else 16)
    assert merged.labels_from == (None if without_server else folders[2])
    assert same_messages(tmp_path / "merged", whole)
    if not without_server:
        heads = [json.loads((folder / "transcript.json").read_text("utf-8")) for folder in (tmp_path / "merged", whole)]
        own = dict.fromkeys(("name", "files", "run", "last", "beside", "vflpriv-seal"))
        assert heads[0] | own == heads[1] | own


def test_a_merged_transcript_has_the_findings_of_the_whole_one(tmp_path):
    ledger = tmp_path / "ledger.toml"
    ledger.write_text(LEDGER, encoding="utf-8")
    merge_transcripts(record_apart(tmp_path), tmp_path / "same" / "transcript")
    whole = record_at_once(tmp_path / "whole" / "transcript")
    reports = [vflpriv.audit(transcript=folder, ledger=ledger) for folder in (tmp_path / "same" / "transcript", whole)]
    systems = [json.loads(report.to_json())["systems"] for report in reports]
    texts = [
        json.dumps(system).replace(str(tmp_path / name), "")
        for system, name in zip(systems, ("same", "whole"), strict=True)
    ]
    assert texts[0] == texts[1]
    assert [report.exit_code for report in reports] == [1, 1]


def test_ids_in_other_orders_are_mapped(tmp_path):
    names = [f"customer-{i}" for i in range(RECORDS)]
    device = opened(tmp_path / "device0", (0,), names=names)
    server = opened(tmp_path / "server", (0, 1), names=names, labels=True)
    shuffled = np.random.default_rng(0).permutation(names).tolist()
    other = opened(tmp_path / "device1", (1,), names=shuffled)
    other.names = names
    train([device, other, server], 3)
    for party in (device, other, server):
        party.wire.finish()
    merge_transcripts([tmp_path / "device1", tmp_path / "device0", tmp_path / "server"], tmp_path / "merged")
    assert same_messages(tmp_path / "merged", tmp_path / "server")
    head = read_transcript(tmp_path / "merged").head
    assert read_names(tmp_path / "merged", head) == tuple(names)
    assert torch.equal(read_answers(tmp_path / "merged", head).labels, planted()[0])


def test_samples_and_halves_are_merged(tmp_path):
    options = {"keep": vflpriv.sample(records=60), "precision": "half"}
    parties = [opened(tmp_path / f"device{m}", (m,), **options) for m in range(2)]
    whole = opened(tmp_path / "whole", (0, 1), **options)
    train([*parties, whole], 4)
    for party in (*parties, whole):
        party.wire.finish()
    merge_transcripts([tmp_path / "device0", tmp_path / "device1"], tmp_path / "merged")
    assert same_messages(tmp_path / "merged", tmp_path / "whole")
    merged, at_once = (read_transcript(tmp_path / name).head for name in ("merged", "whole"))
    own = {name: getattr(merged, name) for name in ("name", "run", "last", "beside", "seal")}
    assert merged == at_once.model_copy(update=own)


def test_an_unfinished_transcript_ends_the_merged_one(tmp_path):
    parties = [opened(tmp_path / f"device{m}", (m,), rounds_per_file=1) for m in range(2)]
    train(parties, 5)
    parties[0].wire.finish()
    parties[1].wire.abandon()
    merged = merge_transcripts([tmp_path / "device0", tmp_path / "device1"], tmp_path / "merged")
    assert (merged.rounds, merged.cut_off_by) == (4, tmp_path / "device1")
    recording = read_transcript(tmp_path / "merged")
    assert (recording.rounds, recording.head.finished, len(recording.transcript.messages)) == (4, False, 16)


def test_a_party_without_labels_need_not_know_the_classes(tmp_path):
    party = opened(tmp_path / "device0", (0,), classes=None)
    server = opened(tmp_path / "server", (0, 1), labels=True)
    train([party, server], 1)
    party.wire.finish()
    server.wire.finish()
    merge_transcripts([tmp_path / "device0", tmp_path / "server"], tmp_path / "merged")
    assert read_transcript(tmp_path / "merged").head.classes == CLASSES
    answers = load_file(tmp_path / "merged" / "answers.safetensors")
    assert set(answers) == {"records", "labels", "canaries", "canary_labels", "worlds"}


def one_message(folder, value=1.0, *, kind="own", ids=(0, 1), round_=3, **options):
    settings = {"devices": 2, "records": 4, "classes": 2} | options
    with vflpriv.record(folder, **settings) as wire:
        wire.up(round_, 0, kind, {"x": torch.full((2, 3), value)}, ids)
    return folder


@pytest.mark.parametrize(
    ("difference", "complaint"),
    [
        ({"value": 1.5}, "round 3: own from device(0) to server = 'x: values that differ by up to 0.5 in"),
        ({"ids": (1, 0)}, "round 3: own from device(0) to server = 'other records in"),
        ({"devices": 3}, "b: devices = 3: expected 2, as in"),
        ({"records": 5}, "b: records = 5: expected 4, as in"),
        ({"records": ["p", "q", "r", "s"], "ids": ["p", "q"]}, "b: records = 'ids': expected the same kind as in"),
        ({"classes": 3}, "b: classes = 3: expected 2, as in"),
        ({"precision": "half"}, "b: precision = 'half': expected full, as in"),
        ({"keep": vflpriv.sample(records=2)}, "b: sampled = "),
        ({"labels": torch.tensor([0, 1, 0, 1])}, "b: answers.safetensors = 'other labels or canaries'"),
    ],
)
def test_what_does_not_fit_together_is_one_line(tmp_path, difference, complaint):
    first = one_message(tmp_path / "a", **({"labels": torch.zeros(4).long()} if "labels" in difference else {}))
    second = one_message(tmp_path / "b", **difference)
    with pytest.raises(InputError) as error:
        merge_transcripts([first, second], tmp_path / "merged")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "merged").exists() or not list((tmp_path / "merged").iterdir())


def test_samples_of_other_seeds_are_refused(tmp_path):
    for name, seed, device in (("a", 0, 0), ("b", 1, 1)):
        with vflpriv.record(tmp_path / name, devices=2, records=40, keep=vflpriv.sample(records=20, seed=seed)) as wire:
            wire.up(0, device, "own", {"x": torch.ones(40, 2)}, range(40))
    with pytest.raises(InputError, match=r"b: sampled = .* the same keep=vflpriv.sample"):
        merge_transcripts([tmp_path / "a", tmp_path / "b"], tmp_path / "merged")


def test_unknown_ids_are_refused(tmp_path):
    first = one_message(tmp_path / "a", records=["p", "q"], ids=["p", "q"])
    second = one_message(tmp_path / "b", records=["p", "z"], ids=["p", "z"])
    with pytest.raises(InputError, match="b: records = 'z': expected an id that"):
        merge_transcripts([first, second], tmp_path / "merged")


def test_the_command_says_what_it_merged(monkeypatch, capsys, tmp_path):
    first = str(one_message(tmp_path / "a"))
    second = str(one_message(tmp_path / "b", round_=5))
    out = str(tmp_path / "merged")
    code, printed, _ = run(monkeypatch, capsys, "merge", first, second, "--out", out)
    assert code == 0
    assert f"wrote {out}: 6 rounds, 2 messages" in printed
    assert run(monkeypatch, capsys, "merge", first, second, "--out", out)[0] == 2
    assert run(monkeypatch, capsys, "merge", first, second, "--out", out, "--force")[0] == 0
    code, _, error = run(monkeypatch, capsys, "merge", first, "--out", out)
    assert (code, error.count("\n")) == (2, 1)
    assert "two or more folders" in error
    assert "another folder" in run(monkeypatch, capsys, "merge", first, second, "--out", first)[2]
