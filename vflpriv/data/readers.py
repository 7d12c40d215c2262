"""Readers: one function for each published form of a data set, from its files to whole records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflpriv.common.numerics import Floats
from vflpriv.data.columns import Column
from vflpriv.data.files import Dataset, Raw, contents, fixed_order
from vflpriv.data.parsers import parse_idx, parse_json, parse_numbers, parse_png, parse_rows
from vflpriv.errors import InputError

__all__ = ["adult", "amazon", "bundled", "cifar", "divided", "idx_files", "imdb", "mfeat"]


def divided(features: NDArray[Any], labels: NDArray[Any], train: int, **more: Any) -> Raw:
    """Records of a source without a split: the first `train` of one fixed shuffle are for training."""
    order = fixed_order(len(features))
    features, labels = features[order], labels[order]
    return Raw(
        features=features[:train],
        labels=labels[:train],
        test_features=features[train:],
        test_labels=labels[train:],
        **more,
    )


def bundled(
    dataset: Dataset, folder: Path, *, loader: str, table: str, header: int, shape: tuple[int, ...], train: int
) -> Raw:
    """A data set that comes with scikit-learn, in a table of records of this shape with the label in the last column.

    The table is read without importing scikit-learn, which takes longer than all else that accounting does; where a
    release of scikit-learn keeps it in another place, its own `loader` is asked.
    """
    del folder
    path = _installed_table(table)
    if path.is_file():
        rows = _table(path, header)
        features, labels = rows[:, :-1], rows[:, -1].astype(np.int64)
    else:
        from sklearn import datasets

        features, labels = getattr(datasets, loader)(return_X_y=True)
    return divided(features.reshape(-1, *shape), labels, train)


@cache
def _table(path: Path, header: int) -> Floats:
    """The numbers of a text file, which are read once: that takes longer than a short training."""
    rows: Floats = np.loadtxt(path, delimiter=",", skiprows=header)
    rows.flags.writeable = False
    return rows


def _installed_table(name: str) -> Path:
    """Where scikit-learn keeps one of its tables; finding it does not import it."""
    spec = find_spec("sklearn")
    places = (spec and spec.submodule_search_locations) or [""]
    return Path(places[0]) / "datasets" / "data" / name


def idx_files(dataset: Dataset, folder: Path) -> Raw:
    """The four IDX files of MNIST and of what is stored like it."""
    arrays = [parse_idx(content, path) for content, path in contents(dataset, folder).values()]
    return Raw(features=arrays[0], labels=arrays[1], test_features=arrays[2], test_labels=arrays[3])


def cifar(dataset: Dataset, folder: Path, *, side: int = 32) -> Raw:
    """PNG pictures in which each row of pixels is one image, and JSON lists of labels (`lables`, as published)."""
    images: dict[bool, list[NDArray[np.uint8]]] = {True: [], False: []}
    labels: dict[bool, NDArray[np.int64]] = {}
    for name, (content, path) in contents(dataset, folder).items():
        test = name.startswith("test")
        if name.endswith(".json"):
            labels[test] = _labels(parse_json(content, path), path)
            continue
        picture = parse_png(content, path)
        if picture.shape[1] != side * side:
            raise InputError("data.file", path, f"{side * side} pixels in each row, found {picture.shape[1]}")
        images[test].append(picture.reshape(-1, side, side, 3))
    train, test_ = np.concatenate(images[False]), np.concatenate(images[True])
    return Raw(features=train, labels=labels[False], test_features=test_, test_labels=labels[True])


def _labels(values: Sequence[Any], path: str) -> NDArray[np.int64]:
    for value in values:
        if type(value) is not int:
            raise InputError("data.file", path, f"whole numbers, found {value!r}")
    return np.array(values, dtype=np.int64)


def imdb(dataset: Dataset, folder: Path, *, train: int) -> Raw:
    """One JSON list of {"t": text, "s": 0 or 1}, without the published split: this one is ours."""
    ((content, path),) = contents(dataset, folder).values()
    reviews = parse_json(content, path)
    for review in reviews:
        if not isinstance(review, dict) or not isinstance(review.get("t"), str):
            raise InputError("data.file", path, f'objects with "t" and "s", found {review!r}')
    labels = _labels([review.get("s") for review in reviews], path)
    return divided(np.array([review["t"] for review in reviews], dtype=object), labels, train)


def amazon(dataset: Dataset, folder: Path, *, train: int) -> Raw:
    """`id<TAB>mean rating<TAB>text`, the rating from -4 to 4; class 1 is a rating above 0, class 0 the others."""
    ((content, path),) = contents(dataset, folder).values()
    rows = parse_rows(content, path, delimiter="\t", columns=3)
    try:
        ratings = np.array([float(row[1]) for row in rows])
    except ValueError as error:
        raise InputError("data.file", path, f"a rating in the second column ({error})") from error
    return divided(np.array([row[2] for row in rows], dtype=object), (ratings > 0).astype(np.int64), train)


def mfeat(dataset: Dataset, folder: Path, *, train: int) -> Raw:
    """Six tables, one for each view, with a header line and the digit in the last column, all in the same order."""
    tables = [parse_numbers(content, path, header=1) for content, path in contents(dataset, folder).values()]
    labels = tables[0][:, -1]
    for name, table in zip(dataset.files, tables, strict=True):
        if not np.array_equal(table[:, -1], labels):
            raise InputError("data.file", name, "the same digits in the same order as in the other files")
    features = np.concatenate([table[:, :-1] for table in tables], axis=1)
    views = tuple(table.shape[1] - 1 for table in tables)
    return divided(features, labels.astype(np.int64), train, views=views)


_ADULT_NUMBERS = (0, 2, 4, 10, 11, 12)
_ADULT_COLUMNS = 15
_ADULT_NAMES = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
)


def adult(dataset: Dataset, folder: Path) -> Raw:
    """The census table: 6 numbers, and 8 categories with one 0/1 column for each value; each attribute is a view.

    `?` (unknown) is a value like any other. The values are those of the training file, all of which the description of
    the data set lists: they are public. Another value is all zeros.
    """
    parts = []
    for name, (content, path) in contents(dataset, folder).items():
        # The first line of adult.test is a comment.
        rows = parse_rows(content, path, delimiter=",", columns=_ADULT_COLUMNS, header=int(name.endswith(".test")))
        parts.append((np.array(rows, dtype=object), path))
    (train, _), _ = parts
    values = [None if c in _ADULT_NUMBERS else sorted(set(train[:, c])) for c in range(_ADULT_COLUMNS - 1)]
    views = tuple(1 if v is None else len(v) for v in values)
    (features, labels), (test_features, test_labels) = (_encoded(rows, values, path) for rows, path in parts)
    return Raw(
        features=features,
        labels=labels,
        test_features=test_features,
        test_labels=test_labels,
        views=views,
        columns=tuple(
            Column(name, value, public=known is not None)
            for name, known in zip(_ADULT_NAMES, values, strict=True)
            for value in known or (None,)
        ),
    )


def _encoded(
    rows: NDArray[np.object_], values: Sequence[Sequence[str] | None], path: str
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    incomes = {"<=50K": 0, ">50K": 1}
    try:
        labels = np.array([incomes[income.removesuffix(".")] for income in rows[:, -1]], dtype=np.int64)
        columns = [
            rows[:, c : c + 1].astype(np.float32) if known is None else rows[:, c : c + 1] == np.array([known], object)
            for c, known in enumerate(values)
        ]
    except (KeyError, ValueError) as error:
        raise InputError("data.file", path, f"numbers, and an income <=50K or >50K ({error})") from error
    return np.concatenate(columns, axis=1, dtype=np.float32), labels
