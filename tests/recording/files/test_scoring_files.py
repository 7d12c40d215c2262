"""Features and membership canaries of a recording: what is recorded is read back, what does not fit is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import vflpriv
from tests.recording.transcript_files import unprotected
from vflpriv.core.canaries import plant_members
from vflpriv.errors import InputError
from vflpriv.recording.files.scoring_files import MEMBERS, features_name, read_features, read_members
from vflpriv.recording.merging import merge_transcripts
from vflpriv.recording.own_folder import Earlier
from vflpriv.recording.recorder import RecordingWire
from vflpriv.recording.transcripts import read_hash, read_transcript

RECORDS = 12
BLOCK = torch.arange(RECORDS * 3.0).reshape(RECORDS, 3)


def opened(folder, **options):
    return RecordingWire(folder, devices=2, classes=2, records=options.pop("records", RECORDS), **options)


def recorded(folder, **options):
    with vflpriv.record(folder, devices=2, classes=2, records=RECORDS, **options) as wire:
        wire.features(0, BLOCK, sensitive_column=2)
        wire.features(1, BLOCK.reshape(RECORDS, 1, 3).double().numpy() / 40)
        wire.members(plant_members(records=RECORDS, canaries=4, seed=0)[1])
        wire.up(0, 0, "embeddings", {"embedding": torch.ones(RECORDS, 2)}, range(RECORDS))
    return folder


def test_features_and_members_are_read_back_and_no_view_holds_them(tmp_path):
    folder = recorded(tmp_path / "run")
    recording = read_transcript(folder)
    blocks, members = read_features(folder, recording.head), read_members(folder, recording.head)
    assert torch.equal(blocks[0].rows, BLOCK)
    assert (blocks[0].sensitive_column, blocks[1].sensitive_column) == (2, None)
    assert (blocks[1].rows.shape, blocks[1].rows.dtype) == ((RECORDS, 1, 3), torch.float32)
    planted = plant_members(records=RECORDS, canaries=4, seed=0)[1]
    assert torch.equal(members.candidates, planted.candidates)
    assert torch.equal(members.worlds, planted.worlds)
    assert recording.head.messages == {"embeddings": 1}


@pytest.mark.parametrize("block", [BLOCK.tolist(), BLOCK.numpy().astype(np.int16), BLOCK.half(), BLOCK > 4])
def test_blocks_may_be_arrays_of_any_kind(tmp_path, block):
    wire = opened(tmp_path / "run")
    wire.features(1, block)
    (read,) = read_features(tmp_path / "run", wire.head).values()
    assert torch.equal(read.rows, torch.as_tensor(block).float())


def test_a_column_alone_is_a_block_and_ids_may_be_names(tmp_path):
    wire = opened(tmp_path / "run", records=["a", "b", "c"])
    wire.features(0, [7.0, 8.0], records=["c", "a"])
    (read,) = read_features(tmp_path / "run", wire.head).values()
    assert (read.records.tolist(), read.rows.tolist()) == ([2, 0], [[7.0], [8.0]])


def test_of_a_sample_only_its_rows_are_kept_and_canaries_are_part_of_it(tmp_path):
    planted = plant_members(records=RECORDS, canaries=2, seed=0)[1]
    with vflpriv.record(
        tmp_path / "run", devices=1, classes=2, records=RECORDS, keep=vflpriv.sample(records=3)
    ) as wire:
        wire.members(planted)
        wire.features(0, BLOCK)
        wire.up(0, 0, "embeddings", {"embedding": torch.ones(RECORDS, 2)}, range(RECORDS))
        with pytest.raises(InputError, match="before it"):
            wire.members(plant_members(records=RECORDS, canaries=6, seed=0)[1])
    recording = read_transcript(tmp_path / "run")
    (block,) = read_features(tmp_path / "run", recording.head).values()
    (message,) = recording.transcript.messages
    assert set(planted.records.tolist()) <= set(block.records.tolist())
    assert block.records.tolist() == message.records.tolist()
    assert len(block.records) == recording.head.sampled < RECORDS
    assert torch.equal(block.rows, BLOCK[block.records])


def test_a_fresh_recording_has_nothing_of_the_last_one_and_a_resumed_one_keeps_it(tmp_path):
    folder = recorded(tmp_path / "run")
    with vflpriv.record(folder, devices=2, classes=2, records=RECORDS, resume=True) as wire:
        wire.down(1, 0, "hello", {"x": torch.ones(2)})
        head = wire.head
    assert set(read_features(folder, head)) == {0, 1}
    assert read_members(folder, head) is not None
    wire = opened(folder, earlier=Earlier.DELETED)
    assert not read_features(folder, wire.head)
    assert read_members(folder, wire.head) is None


def test_parties_merge_their_features_and_other_ones_are_other_results(tmp_path):
    names = {0: ["a", "b", "c"], 1: ["c", "a", "b"]}
    canaries = plant_members(records=3, canaries=1, seed=0)[1]
    for m, ids in names.items():
        with vflpriv.record(tmp_path / str(m), devices=2, classes=2, records=ids) as wire:
            wire.features(m, [[float(ord(name))] for name in ids])
            wire.up(0, m, "embeddings", {"embedding": torch.ones(3, 2)}, ids)
            if m == 0:
                wire.members(canaries)
    merge_transcripts([tmp_path / "0", tmp_path / "1"], tmp_path / "merged")
    head = read_transcript(tmp_path / "merged").head
    for block in read_features(tmp_path / "merged", head).values():
        assert block.rows[block.records.argsort()].flatten().tolist() == [97.0, 98.0, 99.0]
    assert torch.equal(read_members(tmp_path / "merged", head).candidates, canaries.candidates)
    before = read_hash(tmp_path / "merged")
    (tmp_path / "merged" / features_name(0)).unlink()
    assert read_hash(tmp_path / "merged") != before


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ((2, BLOCK), "features: device.*0 to 1"),
        ((0, BLOCK[:5]), "a row for each of 12 records"),
        ((0, BLOCK[:, :0]), "a value at least"),
        ((0, torch.tensor(1.0)), "a row for each"),
        ((0, BLOCK.clone().fill_(torch.nan)), "finite"),
        ((0, BLOCK.double() * 1e300), "up to 3.4e38"),
        ((0, BLOCK.to(torch.complex64)), "common type"),
        ((0, np.array([["x"]] * RECORDS)), "a tensor, an array or numbers"),
    ],
)
def test_a_block_that_does_not_fit_is_refused_in_one_line(tmp_path, given, match):
    with pytest.raises(InputError, match=match):
        opened(tmp_path / "run").features(*given)


@pytest.mark.parametrize(("column", "match"), [(3, "0 to 2"), (-1, "0 to 2"), ("age", "a whole number from 0 to 2")])
def test_a_sensitive_column_is_one_of_the_block(tmp_path, column, match):
    with pytest.raises(InputError, match=f"features: sensitive_column.*{match}"):
        opened(tmp_path / "run").features(0, BLOCK, sensitive_column=column)


def test_members_are_what_plant_members_returned(tmp_path):
    wire = opened(tmp_path / "run")
    with pytest.raises(InputError, match=r"vflpriv\.plant_members"):
        wire.members([1, 2, 3])
    with pytest.raises(InputError, match="records from 0 to 11"):
        wire.members(plant_members(records=2 * RECORDS, canaries=12, seed=0)[1])


@pytest.mark.parametrize("unit", ["record", "add-remove"])
def test_coins_decide_which_canaries_are_trained_on(unit):
    members, canaries = plant_members(records=1000, canaries=300, seed=1, unit=unit)
    each = canaries.candidates.shape[1]
    assert (canaries.unit, len(canaries.records)) == (unit, 300 * each)
    assert np.isin(canaries.candidates.numpy(), members).tolist() == canaries.trained.tolist()
    assert sorted({*members.tolist(), *canaries.left_out.tolist()}) == list(range(1000))
    assert len(members) == (700 if unit == "record" else 1000 - int(canaries.worlds.sum()))
    assert 100 < int(canaries.worlds.sum()) < 200
    assert not np.array_equal(members, plant_members(records=1000, canaries=300, seed=2, unit=unit)[0])


@pytest.mark.parametrize(
    ("changes", "match"),
    [({"canaries": 0}, "1 to 5"), ({"canaries": 6}, "a canary takes 2"), ({"unit": "label"}, "record or add-remove")],
)
def test_canaries_must_fit_the_records(changes, match):
    with pytest.raises(InputError, match=match):
        plant_members(**{"records": 10, "canaries": 2, "seed": 0} | changes)


@pytest.mark.parametrize(
    ("file", "name", "value", "match"),
    [
        (features_name(0), "records", torch.arange(RECORDS).float(), "int64"),
        (features_name(0), "records", torch.arange(RECORDS) + 1, "0 to 11"),
        (features_name(0), "records", torch.zeros(RECORDS, dtype=torch.int64), "twice"),
        (features_name(0), "block", BLOCK[:3], "12 rows"),
        (features_name(0), "block", BLOCK[:, 0].clone(), "12 rows"),
        (features_name(0), "block", torch.full((RECORDS, 3), torch.inf), "finite"),
        (features_name(0), "sensitive_column", torch.tensor(3), "0 to 2"),
        (features_name(0), "sensitive_column", torch.tensor([1]), "shape"),
        (features_name(0), "other", torch.tensor([1]), "records and block"),
        (MEMBERS, "candidates", torch.zeros(4, 3, dtype=torch.int64), "two candidates"),
        (MEMBERS, "candidates", torch.zeros(4, 2, dtype=torch.int64), "twice"),
        (MEMBERS, "candidates", torch.arange(8).reshape(4, 2) + 9, "0 to 11"),
        (MEMBERS, "worlds", torch.full((4,), 2), "0 to 1"),
        (MEMBERS, "worlds", torch.zeros(5, dtype=torch.int64), "shape"),
        (MEMBERS, "worlds", torch.zeros(4), "int64"),
        (MEMBERS, "other", torch.zeros(4), "candidates and worlds"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, file, name, value, match):
    folder = unprotected(recorded(tmp_path / "run"))
    tensors = load_file(folder / file)
    save_file(tensors | {name: value}, folder / file)
    head = read_transcript(folder).head
    with pytest.raises(InputError, match=match):
        (read_features(folder, head), read_members(folder, head))


@pytest.mark.parametrize("name", ["features-00002.safetensors", "features-x.safetensors"])
def test_features_are_of_a_device_that_there_is(tmp_path, name):
    folder = unprotected(recorded(tmp_path / "run"))
    (folder / features_name(0)).rename(folder / name)
    with pytest.raises(InputError, match="a device from 0 to 1"):
        read_features(folder, read_transcript(folder).head)
