"""Data sets: what is bundled, files of the true format, and files that are damaged."""

from __future__ import annotations

import gzip
import hashlib
import struct
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from vflpriv.data import catalogue as datasets
from vflpriv.data.catalogue import DATASETS
from vflpriv.data.files import Dataset, Raw, data_folder
from vflpriv.data.loading import load
from vflpriv.data.parsers import parse_idx
from vflpriv.data.partitions import PARTITIONS
from vflpriv.errors import InputError


def idx(array: NDArray[np.uint8]) -> bytes:
    """The IDX format as its authors describe it."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def small() -> dict[str, NDArray[np.uint8]]:
    values = np.random.default_rng(5)
    return {
        "train-images-idx3-ubyte": values.integers(0, 256, (12, 4, 5), dtype=np.uint8),
        "train-labels-idx1-ubyte": values.integers(0, 10, 12, dtype=np.uint8),
        "t10k-images-idx3-ubyte": values.integers(0, 256, (3, 4, 5), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": values.integers(0, 10, 3, dtype=np.uint8),
    }


def tiny(monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> None:
    """A data set `tiny` whose checksums are those of these files."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setitem(DATASETS, "tiny", replace(DATASETS["mnist"], name="tiny", files=sums))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with `tiny` in it: two files plain, two compressed."""
    contents = {name: idx(array) for name, array in small().items()}
    tiny(monkeypatch, contents)
    (tmp_path / "tiny").mkdir()
    for number, (name, content) in enumerate(contents.items()):
        if number % 2:
            (tmp_path / "tiny" / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (tmp_path / "tiny" / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "devices", "train", "test", "widths"),
    [("digits", 4, 1437, 360, [16, 16, 16, 16]), ("breast-cancer", 4, 455, 114, [8, 8, 7, 7])],
)
def test_bundled_sizes(name: str, devices: int, train: int, test: int, widths: list[int]) -> None:
    data = load(name, devices=devices)
    assert (data.records, len(data.test_labels), data.devices) == (train, test, devices)
    assert [block.shape[1] for block in data.blocks] == widths
    assert {block.dtype for block in data.blocks} == {torch.float32}
    assert data.labels.dtype == torch.int64
    assert data.labels.unique().tolist() == list(range(data.classes))


def test_digits_are_the_ones_of_scikit_learn_each_once_scaled_to_one() -> None:
    from sklearn.datasets import load_digits

    data, source = load("digits", devices=4), load_digits()
    mine = torch.cat([torch.cat(data.blocks, dim=1), torch.cat(data.test_blocks, dim=1)]).numpy() * 16
    labels = torch.cat([data.labels, data.test_labels]).numpy()
    ours = sorted(map(tuple, np.column_stack([mine, labels]).astype(int).tolist()))
    assert ours == sorted(map(tuple, np.column_stack([source.data, source.target]).astype(int).tolist()))


@pytest.mark.parametrize("name", ["digits", "breast-cancer"])
def test_a_bundled_table_reads_as_the_loader_of_scikit_learn_does(name: str, tmp_path: Path) -> None:
    dataset = DATASETS[name]
    assert isinstance(dataset.read, partial)
    by_loader = partial(dataset.read.func, **{**dataset.read.keywords, "table": "no-such.csv"})(dataset, tmp_path)
    own = dataset.read(dataset, tmp_path)
    for field in ("features", "labels", "test_features", "test_labels"):
        ours, theirs = getattr(own, field), getattr(by_loader, field)
        assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())


def test_the_split_of_digits_never_changes() -> None:
    """A published number rests on it; measured once with `load("digits", devices=1)`."""
    data = load("digits", devices=1)
    assert data.labels[:10].tolist() == [6, 0, 2, 3, 4, 1, 0, 7, 7, 1]
    assert torch.equal(load("digits", devices=1).blocks[0], data.blocks[0])
    assert torch.bincount(data.test_labels).min() >= 25


def test_breast_cancer_is_standardised_by_the_training_records_in_use() -> None:
    for train in (None, 100):
        data = load("breast-cancer", devices=3, train=train)
        joined, test = torch.cat(data.blocks, dim=1), torch.cat(data.test_blocks, dim=1)
        assert joined.mean(dim=0).abs().max() < 1e-5
        assert (joined.std(dim=0, correction=0) - 1).abs().max() < 1e-4
        assert test.mean(dim=0).abs().max() > 1e-3  # own statistics would make this 0


def test_a_constant_column_becomes_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(dataset: Dataset, folder: Path) -> Raw:
        features, labels = np.array([[1.0, 5.0], [2.0, 5.0]]), np.array([0, 1])
        return Raw(features=features, labels=labels, test_features=features, test_labels=labels)

    monkeypatch.setitem(DATASETS, "x", replace(DATASETS["breast-cancer"], name="x", read=read))
    assert load("x", devices=2).blocks[1].tolist() == [[0.0], [0.0]]


def test_idx_files_are_read_plain_and_compressed(folder: Path) -> None:
    data, arrays = load("tiny", devices=2, folder=folder), small()
    images = arrays["train-images-idx3-ubyte"].reshape(12, -1)
    np.testing.assert_allclose(torch.cat(data.blocks, dim=1).numpy(), images / 255, rtol=1e-6)
    assert data.labels.tolist() == arrays["train-labels-idx1-ubyte"].tolist()
    assert data.test_labels.tolist() == arrays["t10k-labels-idx1-ubyte"].tolist()
    assert [tuple(b.shape) for b in load("tiny", devices=2, folder=folder, keep_shape=True).blocks] == [(12, 2, 5)] * 2
    assert load("tiny", devices=3, partition="slices", folder=folder).blocks[0].shape == (12, 7)


def test_the_folder_comes_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VFLPRIV_DATA", str(folder))
    assert load("tiny", devices=1).records == 12
    assert data_folder("elsewhere") == Path("elsewhere")
    monkeypatch.delenv("VFLPRIV_DATA")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/x")
    assert data_folder() == Path("/x/vflpriv")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert data_folder().parts[-3:] == ("Library", "Application Support", "vflpriv")


def test_missing_files_are_one_line_that_names_both_ways(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load("mnist", devices=7, folder=tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert "`vflpriv data fetch mnist`" in message
    assert str(tmp_path / "mnist") in message
    assert all(name in message for name in DATASETS["mnist"].files)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-1], "SHA-256"),
        (lambda content: content + b"x", "SHA-256"),
        (lambda content: b"", "(0 bytes)"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "SHA-256"),
    ],
)
def test_a_damaged_file_is_named(folder: Path, damage: object, message: str) -> None:
    assert callable(damage)
    path = folder / "tiny" / "train-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError) as caught:
        load("tiny", devices=2, folder=folder)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "garbage", "flipped"])
def test_a_damaged_compressed_file_is_named(folder: Path, damage: str) -> None:
    path = folder / "tiny" / "train-labels-idx1-ubyte.gz"
    whole = path.read_bytes()
    flipped = whole[:12] + bytes([whole[12] ^ 255]) + whole[13:]
    path.write_bytes({"cut": whole[:-6], "garbage": b"not gzip at all", "flipped": flipped}[damage])
    with pytest.raises(InputError, match=r"train-labels-idx1-ubyte\.gz.*expected (a file that can be read|SHA-256)"):
        load("tiny", devices=2, folder=folder)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("train-labels-idx1-ubyte", np.zeros(11, np.uint8), "12 labels"),
        ("train-labels-idx1-ubyte", np.full(12, 10, np.uint8), "labels 0 to 9"),
        ("train-images-idx3-ubyte", np.zeros((0, 4, 5), np.uint8), "at least one record"),
        ("t10k-labels-idx1-ubyte", np.zeros(0, np.uint8), "at least one record"),
        ("t10k-images-idx3-ubyte", np.zeros((3, 4, 4), np.uint8), "records of shape (4, 5)"),
    ],
)
def test_files_that_do_not_belong_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, array: NDArray[np.uint8], message: str
) -> None:
    contents = {key: idx(value) for key, value in (small() | {name: array}).items()}
    tiny(monkeypatch, contents)
    (tmp_path / "tiny").mkdir()
    for key, content in contents.items():
        (tmp_path / "tiny" / key).write_bytes(content)
    with pytest.raises(InputError) as caught:
        load("tiny", devices=1, folder=tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an IDX file of bytes"),
        (b"\x00\x00\x08", "an IDX file of bytes"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00\x00\x00\x00", "its first four bytes are 00 00 0d 01"),
        (b"\x00\x00\x08\x00", "an IDX file of bytes"),
        (b"\x00\x00\x08\x05" + bytes(20), "an IDX file of bytes"),
        (b"\x1f\x8b\x08\x00", "an IDX file of bytes"),
        (b"\x00\x00\x08\x03\x00\x00", "a header of 16 bytes, the file has 6"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x03ab", "3 values as its header says, found 2"),
        (b"\x00\x00\x08\x01\xff\xff\xff\xffab", "4294967295 values as its header says, found 2"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x01ab", "1 values as its header says, found 2"),
    ],
)
def test_what_is_not_idx_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_idx(content, "some-file")
    assert "'some-file'" in str(caught.value)
    assert message in str(caught.value)


@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_idx_round_trip(shape: list[int], seed: int) -> None:
    array = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(parse_idx(idx(array), "x"), array)


@given(content=st.binary(max_size=40) | st.binary(max_size=20).map(lambda rest: b"\x00\x00\x08\x01\x00\x00\x00" + rest))
def test_any_bytes_are_an_array_or_an_input_error(content: bytes) -> None:
    try:
        array = parse_idx(content, "x")
    except InputError:
        return
    assert idx(array) == content


@pytest.mark.parametrize(("train", "records"), [(1, 1), (5, 5), (12, 12), (None, 12)])
def test_train_keeps_the_first_records(folder: Path, train: int | None, records: int) -> None:
    data = load("tiny", devices=2, folder=folder, train=train)
    assert data.records == records
    assert torch.equal(data.blocks[1], load("tiny", devices=2, folder=folder).blocks[1][:records])
    assert len(data.test_labels) == 3


@pytest.mark.parametrize("train", [0, -1, 13])
def test_train_outside_the_data_is_an_error(folder: Path, train: int) -> None:
    with pytest.raises(InputError, match="1 to 12 training records of tiny"):
        load("tiny", devices=2, folder=folder, train=train)


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(InputError, match=r"data\.name = 'mnits': expected one of digits, breast-cancer, mnist"):
        load("mnits", devices=2)


def test_the_table_is_whole() -> None:
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert dataset.summary
        assert "\n" not in dataset.summary
        assert all(len(checksum) == 64 for checksum in dataset.files.values())
        assert dataset.partition in PARTITIONS
        bundled = isinstance(dataset.read, partial) and "loader" in dataset.read.keywords
        assert [bool(dataset.files), bool(dataset.by_hand), bundled].count(True) == 1
        assert (dataset.source is not None) == bool(dataset.files)
    assert len({checksum for d in DATASETS.values() for checksum in d.files.values()}) == 26


def test_listing_does_not_wait_for_torch_scikit_learn_or_pillow() -> None:
    code = f"import sys, {datasets.__name__}; print([m for m in ('torch', 'sklearn', 'PIL') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
