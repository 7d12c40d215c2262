"""Readers of data sets that no package has: folder trees as published, put into the data folder by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vflpriv.data.files import Dataset, Raw, fixed_order
from vflpriv.data.parsers import parse_numbers, parse_png
from vflpriv.errors import InputError

__all__ = ["MODELNET40_CLASSES", "NUS_WIDE_CONCEPTS", "modelnet40", "nus_wide"]

NUS_WIDE_CONCEPTS = ("buildings", "grass", "animal", "water", "person")
"""The five classes used in published work on vertical learning; a record is used if it has exactly one of them."""

_NUS_WIDE_SETS = {"CM55": 225, "CH": 64, "EDH": 73, "CORR": 144, "WT": 128}  # in the order of the published code
_NUS_WIDE_TAGS = 1000
# "Improving Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM" (VIMADMM),
# Section VI-1 and Table II, training and validation records together.
_NUS_WIDE_VIEWS = (300, 334, 500, 500)
_NUS_WIDE_LIMIT = {"Train": 60_000, "Test": 10_000}

# fmt: off
MODELNET40_CLASSES = (
    "airplane", "bathtub", "bed", "bench", "bookshelf", "bottle", "bowl", "car", "chair", "cone", "cup",
    "curtain", "desk", "door", "dresser", "flower_pot", "glass_box", "guitar", "keyboard", "lamp", "laptop",
    "mantel", "monitor", "night_stand", "person", "piano", "plant", "radio", "range_hood", "sink", "sofa",
    "stairs", "stool", "table", "tent", "toilet", "tv_stand", "vase", "wardrobe", "xbox",
)
# fmt: on
_VIEW = re.compile(r"(?P<object>.+)\.obj\.shaded_v(?P<number>\d{3})\.png")
_VIEWS = 12


def _file_named(dataset: Dataset, folder: Path, name: str) -> Path:
    """The one file of this name at any depth, since archives unpack into differently named folders."""
    paths = sorted(folder.rglob(name)) if folder.is_dir() else []
    if len(paths) != 1:
        raise InputError("data.folder", str(folder), f"one {name} in it, found {len(paths)}; put {dataset.by_hand}")
    return paths[0]


def nus_wide(dataset: Dataset, folder: Path) -> Raw:
    """634 low-level image features in five files, 1000 tags in one, and a file of 0 and 1 for each concept."""
    (features, labels), (test_features, test_labels) = (_nus_wide_part(dataset, folder, p) for p in ("Train", "Test"))
    return Raw(
        features=features,
        labels=labels,
        test_features=test_features,
        test_labels=test_labels,
        views=_NUS_WIDE_VIEWS,
    )


def _nus_wide_part(dataset: Dataset, folder: Path, part: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    columns = []
    for concept in NUS_WIDE_CONCEPTS:
        path = _file_named(dataset, folder, f"Labels_{concept}_{part}.txt")
        columns.append(parse_numbers(path.read_bytes(), str(path))[:, 0] > 0)
        if len(columns[-1]) != len(columns[0]):
            raise InputError("data.file", str(path), f"{len(columns[0])} lines, found {len(columns[-1])}")
    flags = np.stack(columns, axis=1)
    chosen = np.flatnonzero(flags.sum(axis=1) == 1)[: _NUS_WIDE_LIMIT[part]]
    sources = [(f"{part}_Normalized_{name}.dat", width) for name, width in _NUS_WIDE_SETS.items()]
    sources.append((f"{part}_Tags1k.dat", _NUS_WIDE_TAGS))
    blocks = [_chosen_rows(_file_named(dataset, folder, name), chosen, width) for name, width in sources]
    return np.concatenate(blocks, axis=1), flags[chosen].argmax(axis=1)


def _chosen_rows(path: Path, chosen: NDArray[np.int64], width: int) -> NDArray[np.float32]:
    """The chosen lines of a large table of numbers, separated by blanks or tabs; other lines are not parsed."""
    rows = np.empty((len(chosen), width), dtype=np.float32)
    with path.open(encoding="ascii", errors="replace") as file:
        for row, (number, line) in zip(rows, _lines(file, chosen), strict=False):
            fields = line.split()
            if len(fields) != width:
                raise InputError(
                    "data.file", str(path), f"{width} numbers in each line; line {number + 1} has {len(fields)}"
                )
            try:
                row[:] = fields
            except ValueError as error:
                raise InputError("data.file", str(path), f"numbers; line {number + 1}: {error}") from error
    return rows


def _lines(file: Iterator[str], chosen: NDArray[np.int64]) -> Iterator[tuple[int, str]]:
    position = 0
    for number in chosen.tolist():
        # A file that ends too early gives an empty line, which has the wrong number of fields.
        yield number, next(islice(file, number - position, None), "")
        position = number + 1


def modelnet40(dataset: Dataset, folder: Path, *, side: int) -> Raw:
    """`class/train|test/object.obj.shaded_vNNN.png`, 12 views of each object, resized to `side` x `side` grey pixels.

    The shaded pictures have three equal channels; one is kept. The records are shuffled once, in a fixed way: the
    first ones of a sorted tree would all be airplanes.
    """
    parts = []
    for part in ("train", "test"):
        objects = [(k, views) for k in range(len(MODELNET40_CLASSES)) for views in _objects(dataset, folder, k, part)]
        order = fixed_order(len(objects)).tolist()
        pictures = np.empty((len(objects), _VIEWS, side, side), dtype=np.uint8)
        for row, source in zip(pictures, order, strict=True):
            for number, path in enumerate(objects[source][1]):
                row[number] = parse_png(path.read_bytes(), str(path), mode="L", side=side)
        parts.append((pictures, np.array([objects[source][0] for source in order], dtype=np.int64)))
    (features, labels), (test_features, test_labels) = parts
    return Raw(
        features=features,
        labels=labels,
        test_features=test_features,
        test_labels=test_labels,
        views=(1,) * _VIEWS,
    )


def _objects(dataset: Dataset, folder: Path, label: int, part: str) -> list[list[Path]]:
    """The pictures of each object of one class, sorted."""
    class_folder = folder / MODELNET40_CLASSES[label] / part
    if not class_folder.is_dir():
        raise InputError("data.folder", str(class_folder), f"a folder; put {dataset.by_hand}")
    objects: dict[str, list[Path]] = {}
    for path in sorted(class_folder.glob("*.png")):
        if match := _VIEW.fullmatch(path.name):
            objects.setdefault(match["object"], []).append(path)
    for name, views in objects.items():
        if len(views) != _VIEWS:
            raise InputError("data.folder", str(class_folder), f"{_VIEWS} views of {name}, found {len(views)}")
    return list(objects.values())
