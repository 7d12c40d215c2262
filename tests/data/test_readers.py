"""Each data set on small files of its true format: what is read, how it is split, and what is wrong with a file."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vflpriv.config.loading import load_config
from vflpriv.data import folders as data_trees
from vflpriv.data import readers as data_readers
from vflpriv.data.catalogue import DATASETS
from vflpriv.data.folders import MODELNET40_CLASSES, NUS_WIDE_CONCEPTS
from vflpriv.data.loading import load
from vflpriv.data.tokens import VOCABULARY, encode
from vflpriv.errors import InputError
from vflpriv.run.systems import load_data

Put = Callable[..., None]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts files into a data set's folder and makes their checksums the expected ones."""

    def make(name: str, files: dict[str, bytes], **changes: object) -> None:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        sums = {file: hashlib.sha256(content).hexdigest() for file, content in files.items()}
        assert set(sums) == set(DATASETS[name].files)
        changed = replace(DATASETS[name], files={file: sums[file] for file in DATASETS[name].files}, **changes)  # type: ignore[arg-type]
        monkeypatch.setitem(DATASETS, name, changed)

    return make


def png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def cifar_files(train: list[int], test: list[int]) -> tuple[dict[str, bytes], np.ndarray]:
    """Two images a picture, a row each, as wide as the true ones."""
    pixels = np.random.default_rng(1).integers(0, 256, (12, 1024, 3), dtype=np.uint8)
    names = [*(f"data_batch_{i}.png" for i in range(1, 6)), "test_batch.png"]
    files = {name: png(pixels[2 * i : 2 * i + 2]) for i, name in enumerate(names)}
    files |= {"train_lables.json": json.dumps(train).encode(), "test_lables.json": json.dumps(test).encode()}
    return files, pixels.reshape(12, 32, 32, 3)


def test_cifar_images_keep_their_pixels_and_their_labels(tmp_path: Path, put: Put) -> None:
    labels = list(range(10))
    files, pixels = cifar_files(labels, [9, 8])
    put("cifar10", files)
    data = load("cifar10", devices=4, keep_shape=True, folder=tmp_path)
    assert (data.labels.tolist(), data.test_labels.tolist()) == (labels, [9, 8])
    assert [tuple(b.shape) for b in data.blocks] == [(10, 3, 16, 16)] * 4
    assert data.grid == (2, 2)
    halves = load("cifar10", devices=2, keep_shape=True, folder=tmp_path)
    assert ([tuple(b.shape) for b in halves.blocks], halves.grid) == ([(10, 3, 32, 16)] * 2, (1, 2))
    assert load("cifar10", devices=2, partition="rows", keep_shape=True, folder=tmp_path).grid == (2, 1)
    top, bottom = torch.cat(data.blocks[:2], dim=3), torch.cat(data.blocks[2:], dim=3)
    image = torch.cat([top, bottom], dim=2).permute(0, 2, 3, 1)  # channels first, as convolutions expect them
    np.testing.assert_allclose(image.numpy(), pixels[:10] / 255, rtol=1e-6)
    flat = load("cifar10", devices=2, partition="rows", folder=tmp_path)
    np.testing.assert_allclose(torch.cat(flat.test_blocks, 1).numpy(), pixels[10:].reshape(2, -1) / 255, rtol=1e-6)


def test_cifar_files_that_do_not_fit(tmp_path: Path, put: Put) -> None:
    files, _ = cifar_files(list(range(10)), [9, 8])
    for name, content, message in (
        ("test_lables.json", b"[1]", "2 labels"),
        ("test_lables.json", b"[1, 10]", "labels 0 to 9"),
        ("test_lables.json", b'[1, "2"]', "whole numbers, found '2'"),
        ("test_lables.json", b"[1, true]", "whole numbers, found True"),
        ("test_batch.png", png(np.zeros((2, 1000, 3), np.uint8)), "1024 pixels in each row, found 1000"),
        ("data_batch_3.png", b"no picture", "a PNG picture"),
    ):
        put("cifar10", files | {name: content})
        with pytest.raises(InputError, match=message):
            load("cifar10", devices=1, folder=tmp_path)


REVIEWS = [{"t": f"review number {i} was {'good' if i % 2 else 'bad'}<br />", "s": i % 2} for i in range(10)]


def test_imdb_reviews_become_segments_of_token_ids(tmp_path: Path, put: Put) -> None:
    read = partial(data_readers.imdb, train=7)
    put("imdb", {"reviews.json": json.dumps(REVIEWS).encode()}, read=read, tokens=6)
    data = load("imdb", devices=3, folder=tmp_path).checked()
    assert (data.records, len(data.test_labels)) == (7, 3)
    assert [(tuple(b.shape), b.dtype) for b in data.blocks] == [((7, 2), torch.int64)] * 3
    ids = torch.cat([torch.cat(data.blocks, 1), torch.cat(data.test_blocks, 1)])
    ours = sorted(tuple(row[row != 0].tolist()) for row in ids)
    texts = encode([str(review["t"]) for review in REVIEWS], 6)
    assert ours == sorted(tuple(row[row != 0].tolist()) for row in texts)
    good = int(encode(["good"], 1)[0, 0])
    for row, label in zip(ids, torch.cat([data.labels, data.test_labels]), strict=True):
        assert bool((row == good).any()) == bool(label)  # labels stay with their texts
    few = load("imdb", devices=1, folder=tmp_path, train=2)
    assert torch.equal(few.blocks[0], load("imdb", devices=1, folder=tmp_path).blocks[0][:2])


def test_a_vocabulary_takes_the_place_of_hashing(tmp_path: Path, put: Put) -> None:
    put("imdb", {"reviews.json": json.dumps(REVIEWS).encode()}, read=partial(data_readers.imdb, train=7), tokens=6)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nreview\ngood\nbad\n", "utf-8")
    data = load("imdb", devices=1, folder=tmp_path, vocabulary=tmp_path)
    assert set(data.blocks[0].flatten().tolist()) == {0, 1, 2, 3, 4}
    assert ((data.blocks[0] == 3).any(1) == data.labels.bool()).all()
    assert data.vocabulary == 5
    assert load("imdb", devices=1, folder=tmp_path).vocabulary == VOCABULARY
    raw = {"name": "imdb", "devices": 1, "partition": "segments", "folder": str(tmp_path), "vocabulary": str(tmp_path)}
    config = load_config(None, {f"data.{field}": value for field, value in raw.items()})
    assert torch.equal(load_data(config).blocks[0], data.blocks[0])
    with pytest.raises(InputError, match="none, since digits is not text"):
        load("digits", devices=2, vocabulary=tmp_path)
    with pytest.raises(InputError, match=r"data\.tokens = 3: expected none"):
        load("digits", devices=2, tokens=3)
    assert load("imdb", devices=1, folder=tmp_path, tokens=3).blocks[0].shape[1] == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "a JSON list"),
        (b"[[1, 2]]", 'objects with "t" and "s"'),
        (b'[{"s": 1}]', 'objects with "t" and "s"'),
        (b'[{"t": "x"}]', "whole numbers, found None"),
        (b'[{"t": "x", "s": 2}, {"t": "y", "s": 0}]', "labels 0 to 1"),
        (b"[]", "at least one record"),
    ],
)
def test_reviews_that_do_not_fit(tmp_path: Path, put: Put, content: bytes, message: str) -> None:
    put("imdb", {"reviews.json": content}, read=partial(data_readers.imdb, train=1))
    with pytest.raises(InputError, match=message):
        load("imdb", devices=1, folder=tmp_path)


def test_amazon_ratings_above_zero_are_positive(tmp_path: Path, put: Put) -> None:
    file = "amazonReviewSnippets_GroundTruth.txt"
    lines = [f"{i}_1\t{rating}\tword{i} rated" for i, rating in enumerate((-2.5, -0.05, 0.0, 0.05, 3.85))]
    put("amazon", {file: "\r\n".join([*lines, ""]).encode()}, read=partial(data_readers.amazon, train=3))
    data = load("amazon", devices=3, folder=tmp_path).checked()
    assert [tuple(b.shape) for b in data.blocks] == [(3, 16)] * 3
    ids = torch.cat([torch.cat(data.blocks, 1), torch.cat(data.test_blocks, 1)])
    labels = dict(zip(ids.max(1).values.tolist(), [*data.labels.tolist(), *data.test_labels.tolist()], strict=True))
    words = encode([f"word{i} rated" for i in range(5)], 2).max(axis=1).tolist()
    assert [labels[word] for word in words] == [0, 0, 0, 1, 1]
    for content, message in ((b"1\t2\n", "3 fields in each line"), (b"1\tgood\tx\n", "a rating in the second column")):
        put("amazon", {file: content})
        with pytest.raises(InputError, match=message):
            load("amazon", devices=1, folder=tmp_path)


ADULT = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K\n"
    "50, Private, 83311, HS-grad, 9, Divorced, ?, Husband, White, Female, 0, 0, 13, Cuba, >50K\n\n"
)
ADULT_TEST = (
    "|1x3 Cross validator\n"
    "25, Without-pay, 226802, HS-grad, 7, Divorced, ?, Own-child, Black, Male, 0, 0, 40, United-States, >50K.\n"
)


def test_adult_keeps_whole_attributes_on_one_device(tmp_path: Path, put: Put) -> None:
    put("adult", {"adult.data": ADULT.encode(), "adult.test": ADULT_TEST.encode()})
    data = load("adult", devices=14, folder=tmp_path).checked()
    assert [b.shape[1] for b in data.blocks] == [1, 2, 1, 2, 1, 2, 2, 2, 1, 2, 1, 1, 1, 2]
    assert (data.labels.tolist(), data.test_labels.tolist()) == ([0, 1], [1])
    assert data.blocks[0].flatten().tolist() == [-1.0, 1.0]  # ages, standardised
    assert data.blocks[1].tolist() == [[0.0, 1.0], [1.0, 0.0]]  # Private, State-gov: 0 and 1 stay
    assert data.test_blocks[1].tolist() == [[0.0, 0.0]]  # a value that training does not have
    assert data.test_blocks[0].item() == pytest.approx((25 - 44.5) / 5.5)
    assert data.test_blocks[6].tolist() == [[1.0, 0.0]]  # `?` is a value
    assert [b.shape[1] for b in load("adult", devices=4, folder=tmp_path).blocks] == [6, 7, 4, 4]
    assert data.fitted == ("the means and deviations of the columns",)
    numbers = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
    assert load("adult", devices=4, folder=tmp_path, ranges=dict.fromkeys(numbers, (0.0, 99.0))).fitted == ()
    with pytest.raises(InputError, match="at most 14 for partition 'views'"):
        load("adult", devices=15, folder=tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("39, ", "thirty, ", "numbers, and an income"),
        ("<=50K", "50K", "numbers, and an income"),
        ("Male, ", "", "15 fields in each line; line 1 has 14"),
    ],
)
def test_adult_rows_that_do_not_fit(tmp_path: Path, put: Put, old: str, new: str, message: str) -> None:
    put("adult", {"adult.data": ADULT.replace(old, new, 1).encode(), "adult.test": ADULT_TEST.encode()})
    with pytest.raises(InputError, match=message):
        load("adult", devices=2, folder=tmp_path)


def mfeat_files(records: int = 6) -> tuple[dict[str, bytes], np.ndarray]:
    widths, blocks, files = (4, 3, 2, 1, 5, 2), [], {}
    for name, width in zip(DATASETS["mfeat"].files, widths, strict=True):
        block = np.random.default_rng(width).integers(0, 99, (records, width))
        lines = [",".join(map(str, [*range(width), 0]))]
        lines += [",".join(map(str, [*row, i % 3])) for i, row in enumerate(block.tolist())]
        files[name] = "\n".join([*lines, ""]).encode()
        blocks.append(block)
    return files, np.concatenate(blocks, axis=1)


def test_mfeat_has_a_view_a_device(tmp_path: Path, put: Put) -> None:
    files, table = mfeat_files()
    put("mfeat", files, read=partial(data_readers.mfeat, train=4), scale=1.0)
    data = load("mfeat", devices=6, folder=tmp_path).checked()
    assert [b.shape[1] for b in data.blocks] == [4, 3, 2, 1, 5, 2]
    mine = torch.cat([torch.cat(data.blocks, 1), torch.cat(data.test_blocks, 1)]).int().tolist()
    labels = [*data.labels.tolist(), *data.test_labels.tolist()]
    both = sorted([*row, label] for row, label in zip(mine, labels, strict=True))
    assert both == sorted([*row, i % 3] for i, row in enumerate(table.tolist()))
    assert [b.shape[1] for b in load("mfeat", devices=4, folder=tmp_path).blocks] == [7, 3, 5, 2]
    first = load("mfeat", devices=2, partition="first-views", folder=tmp_path)
    assert [torch.equal(a, b) for a, b in zip(first.blocks, data.blocks, strict=False)] == [True, True]
    files["mfeat-pix.csv"] = files["mfeat-pix.csv"].replace(b",2\n", b",1\n", 1)
    put("mfeat", files)
    with pytest.raises(InputError, match=r"mfeat-pix\.csv.*the same digits in the same order"):
        load("mfeat", devices=6, folder=tmp_path)


WIDTHS = {"CM55": 225, "CH": 64, "EDH": 73, "CORR": 144, "WT": 128}


def nus_wide_tree(folder: Path, records: int) -> dict[str, np.ndarray]:
    """Files of the upstream form: numbers with a blank behind each, tags with a tab, a 0 or 1 a line."""
    values = np.random.default_rng(2)
    tables = {}
    for part in ("Train", "Test"):
        for name, width in WIDTHS.items():
            tables[f"Low_Level_Features/{part}_Normalized_{name}.dat"] = values.random((records, width)).round(4)
        tables[f"NUS_WID_Tags/{part}_Tags1k.dat"] = values.integers(0, 2, (records, 1000))
        flags = values.integers(0, 2, (records, 5))
        flags[0], flags[1], flags[2] = (0, 0, 1, 0, 0), (1, 0, 1, 0, 0), 0  # one concept, two of them, none
        for k, concept in enumerate(NUS_WIDE_CONCEPTS):
            tables[f"Groundtruth/TrainTestLabels/Labels_{concept}_{part}.txt"] = flags[:, k : k + 1]
    for path, table in tables.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        end = "" if "Labels" in path else "\t" if "Tags" in path else " "
        text = "\n".join("".join(f"{value}{end}" for value in row) for row in table.tolist())
        (folder / path).write_text(text + "\n", "ascii")
    return tables


def nus_wide_expected(tables: dict[str, np.ndarray], part: str) -> tuple[np.ndarray, list[int]]:
    flags = np.concatenate([tables[f"Groundtruth/TrainTestLabels/Labels_{c}_{part}.txt"] for c in NUS_WIDE_CONCEPTS], 1)
    chosen = [i for i, row in enumerate(flags.tolist()) if sum(row) == 1]
    image = [tables[f"Low_Level_Features/{part}_Normalized_{name}.dat"][chosen] for name in WIDTHS]
    tags = tables[f"NUS_WID_Tags/{part}_Tags1k.dat"][chosen]
    return np.concatenate([*image, tags], axis=1), [flags[i].tolist().index(1) for i in chosen]


def test_nus_wide_takes_records_with_exactly_one_concept(tmp_path: Path) -> None:
    tables = nus_wide_tree(tmp_path / "nus-wide" / "unpacked", 40)
    data = load("nus-wide", devices=4, folder=tmp_path).checked()
    assert [b.shape[1] for b in data.blocks] == [300, 334, 500, 500]
    for part, blocks, labels in (("Train", data.blocks, data.labels), ("Test", data.test_blocks, data.test_labels)):
        features, expected = nus_wide_expected(tables, part)
        np.testing.assert_allclose(torch.cat(blocks, 1).numpy(), features, rtol=1e-6)
        assert labels.tolist() == expected
    assert 2 < data.records < 40
    assert data.labels[0] == 2


def test_nus_wide_takes_the_first_records_of_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nus_wide_tree(tmp_path / "nus-wide", 40)
    whole = load("nus-wide", devices=4, folder=tmp_path)
    monkeypatch.setattr(data_trees, "_NUS_WIDE_LIMIT", {"Train": 3, "Test": 2})
    few = load("nus-wide", devices=4, folder=tmp_path)
    assert (few.records, len(few.test_labels)) == (3, 2)
    assert torch.equal(few.blocks[1], whole.blocks[1][:3])


def broken_nus_wide() -> Iterator[tuple[str, Callable[[Path], object], str]]:
    features, tags = "Low_Level_Features/Train_Normalized_EDH.dat", "NUS_WID_Tags/Test_Tags1k.dat"
    labels = "Groundtruth/TrainTestLabels/Labels_grass_Train.txt"
    yield "missing", lambda f: (f / features).unlink(), "one Train_Normalized_EDH.dat in it, found 0; put NUS-WIDE's"
    yield "twice", lambda f: (f / "Test_Tags1k.dat").write_bytes(b""), "one Test_Tags1k.dat in it, found 2"
    yield "short", lambda f: (f / labels).write_text("1\n0\n", "ascii"), "40 lines, found 2"
    yield "cut", lambda f: (f / features).write_text("0.5 " * 73, "ascii"), "73 numbers in each line; line .* has 0"
    yield "narrow", lambda f: (f / tags).write_text("1\t0\n" * 40, "ascii"), "1000 numbers in each line; line 1 has 2"
    yield "words", lambda f: (f / features).write_text(("x " * 73 + "\n") * 40, "ascii"), "numbers; line 1"


@pytest.mark.parametrize(("name", "harm", "message"), [pytest.param(*c, id=c[0]) for c in broken_nus_wide()])
def test_nus_wide_files_that_do_not_fit(
    tmp_path: Path, name: str, harm: Callable[[Path], object], message: str
) -> None:
    nus_wide_tree(tmp_path / "nus-wide", 40)
    harm(tmp_path / "nus-wide")
    with pytest.raises(InputError, match=message):
        load("nus-wide", devices=4, folder=tmp_path)


def modelnet_tree(folder: Path, *, side: int = 8) -> None:
    """One object a class and part; a view's brightness says which class, part and view it is."""
    for k, name in enumerate(MODELNET40_CLASSES):
        for p, part in enumerate(("train", "test")):
            place = folder / name / part
            place.mkdir(parents=True)
            for view in range(12):
                pixels = np.full((side, side, 3), 12 * (k % 20) + view + 5 * p, np.uint8)
                (place / f"{name}_{k:04}.obj.shaded_v{view + 1:03}.png").write_bytes(png(pixels))


def test_modelnet_objects_have_a_view_a_device(tmp_path: Path) -> None:
    modelnet_tree(tmp_path / "modelnet40")
    data = load("modelnet40", devices=12, keep_shape=True, folder=tmp_path).checked()
    assert (data.records, len(data.test_labels), data.classes) == (40, 40, 40)
    assert [tuple(b.shape) for b in data.blocks] == [(40, 1, 56, 56)] * 12
    assert sorted(data.labels.tolist()) == list(range(40))
    assert data.labels.tolist() != list(range(40))
    for m, (block, test) in enumerate(zip(data.blocks, data.test_blocks, strict=True)):
        for labels, pixels, part in ((data.labels, block, 0), (data.test_labels, test, 5)):
            expected = (12 * (labels % 20) + m + part).float() / 255
            torch.testing.assert_close(pixels[:, 0, 3, 3], expected)
            torch.testing.assert_close(pixels.amax((1, 2, 3)), expected)
    four = load("modelnet40", devices=4, partition="first-views", keep_shape=True, folder=tmp_path)
    assert [torch.equal(a, b) for a, b in zip(four.blocks, data.blocks, strict=False)] == [True] * 4
    thirds = load("modelnet40", devices=4, keep_shape=True, folder=tmp_path)
    assert torch.equal(thirds.blocks[3], torch.cat(data.blocks[9:], dim=1))
    with pytest.raises(InputError, match="views or slices"):
        load("modelnet40", devices=4, partition="rows", folder=tmp_path)


def test_modelnet_trees_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"airplane.*a folder; put the class folders"):
        load("modelnet40", devices=12, folder=tmp_path)
    modelnet_tree(tmp_path / "modelnet40")
    chair = tmp_path / "modelnet40" / "chair" / "test"
    (chair / "chair_0008.obj.shaded_v012.png").rename(chair / "note.png")  # not a view, and not counted
    with pytest.raises(InputError, match="12 views of chair_0008, found 11"):
        load("modelnet40", devices=12, folder=tmp_path)
    (chair / "note.png").rename(chair / "chair_0008.obj.shaded_v012.png")
    (chair / "chair_0008.obj.shaded_v003.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"chair_0008\.obj\.shaded_v003\.png.*a PNG picture"):
        load("modelnet40", devices=12, folder=tmp_path)
