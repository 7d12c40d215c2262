"""A user's own data: a folder with one CSV file for each party and `labels.csv`, whose records are joined by ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vflpriv.data.columns import Column
from vflpriv.data.files import Dataset, Raw, fixed_order
from vflpriv.data.tables import Table, read_table
from vflpriv.errors import InputError

__all__ = ["LABELS", "common_records", "every_record"]

LABELS = "labels.csv"
_LABEL, _SPLIT = "label", "split"
_TRAIN_SHARE = 0.8
_DISTINCT = 100
"""How many values a column of texts may have in training records: each becomes a column of 0 and 1."""

Rows = NDArray[np.int64]


def every_record(dataset: Dataset, folder: Path) -> Raw:
    """All records; an id that one of the files lacks is an error."""
    return _raw(dataset, folder, _same_ids)


def common_records(dataset: Dataset, folder: Path) -> Raw:
    """The records whose ids are in every file, as an entity alignment leaves them."""
    return _raw(dataset, folder, _shared_ids)


def _raw(dataset: Dataset, folder: Path, joined: Callable[[Table, Sequence[Table]], list[str]]) -> Raw:
    """Records in a fixed order that depends on their ids alone, not on the order of lines; a party is a view.

    Numbers stay as they are. Each value that a text column has becomes a column of 0 and 1.
    """
    labels, parties = _tables(dataset, folder)
    ids = joined(labels, parties)
    ids = [ids[place] for place in fixed_order(len(ids))]
    trained = _trained(labels, _rows(labels, ids))
    targets, classes = _classes(labels, _rows(labels, ids), trained)
    blocks = [_block(party, _rows(party, ids), trained) for party in parties]
    features = np.concatenate([block for block, _ in blocks], axis=1)
    return Raw(
        features=features[trained],
        labels=targets[trained],
        test_features=features[~trained],
        test_labels=targets[~trained],
        views=tuple(block.shape[1] for block, _ in blocks),
        columns=tuple(column for _, columns in blocks for column in columns),
        classes=classes,
    )


def _tables(dataset: Dataset, folder: Path) -> tuple[Table, list[Table]]:
    """The labels, and the parties in the order of their files' names, numbers by their value."""
    if not folder.is_dir():
        raise InputError("data.folder", str(folder), f"a folder; put {dataset.by_hand}")
    # What is no file, such as a link to nothing, is an error where it is read: a party must not be left out unsaid.
    paths = [path for path in folder.iterdir() if path.suffix.lower() == ".csv" and not path.name.startswith(".")]
    if folder / LABELS not in paths:
        raise InputError("data.folder", str(folder), f"{LABELS} in it; put {dataset.by_hand}")
    parties = sorted((path for path in paths if path.name != LABELS), key=_by_numbers)
    if not parties:
        raise InputError("data.folder", str(folder), f"a party's CSV file beside {LABELS}; put {dataset.by_hand}")
    return read_table(folder / LABELS), [read_table(path) for path in parties]


def _by_numbers(path: Path) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]


def _same_ids(labels: Table, parties: Sequence[Table]) -> list[str]:
    """The ids of the labels, sorted, once every party has these and no others."""
    hint = 'data.alignment = "common" keeps the records that all files have'
    for party in parties:
        for has, lacks in ((labels, party), (party, labels)):
            if missing := sorted(has.rows.keys() - lacks.rows.keys()):
                number = f"{len(missing)} ids" if len(missing) > 1 else "one id"
                expected = f"the ids of {has.path.name}; {missing[0]!r} is missing ({number} in all); {hint}"
                raise lacks.wrong(expected)
    return sorted(labels.rows)


def _shared_ids(labels: Table, parties: Sequence[Table]) -> list[str]:
    shared = set(labels.rows).intersection(*(party.rows for party in parties))
    if not shared:
        raise InputError("data.folder", str(labels.path.parent), "an id that all of its CSV files have, found none")
    return sorted(shared)


def _rows(table: Table, ids: Sequence[str]) -> Rows:
    """The rows of these ids."""
    return np.array([table.rows[own] for own in ids], dtype=np.int64)


def _trained(labels: Table, rows: Rows) -> NDArray[np.bool_]:
    """Which records are for training: those that the column `split` says, or the first 80 % of the fixed order."""
    if _SPLIT not in labels.columns:
        return np.arange(len(rows)) < round(_TRAIN_SHARE * len(rows))
    parts = labels.columns[_SPLIT]
    for row, part in enumerate(parts):
        if part not in ("train", "test"):
            raise labels.wrong(f"train or test in the column {_SPLIT!r}, found {part!r}", row)
    return np.array([part == "train" for part in parts])[rows]


def _classes(labels: Table, rows: Rows, trained: NDArray[np.bool_]) -> tuple[Rows, int]:
    """The class of each record, and how many there are: the labels in sorted order, numbers by their value."""
    names = [name for name in labels.columns if name != _SPLIT]
    if len(names) != 1:
        listed = ", ".join(names) or "none"
        expected = f"one column beside {labels.key!r} and {_SPLIT!r}, the {_LABEL}; found {listed}"
        raise labels.wrong(f"{expected}; features belong into a party's file")
    numbers = labels.numbers(names[0])
    values = np.array(labels.columns[names[0]], dtype=object) if numbers is None else numbers
    distinct, classes = np.unique(values[rows], return_inverse=True)
    if len(distinct) > max(2, len(rows) // 2):
        raise labels.wrong(f"classes in the column {names[0]!r}, found {len(distinct)} values of {len(rows)} records")
    if trained.any() and len(np.unique(classes[trained])) < 2:
        raise labels.wrong(f"training records of two classes or more in the column {names[0]!r}, found one class")
    return classes.astype(np.int64), len(distinct)


def _block(party: Table, rows: Rows, trained: NDArray[np.bool_]) -> tuple[NDArray[np.float64], list[Column]]:
    """The features of one party, and their columns."""
    parts, columns = [], []
    for name in party.columns:
        numbers = party.numbers(name)
        if numbers is not None:
            parts.append(numbers[rows, None])
            columns.append(Column(name))
            continue
        indicators, values = _indicators(party, name, rows, trained)
        parts.append(indicators)
        columns += [Column(name, value) for value in values]
    return np.concatenate(parts, axis=1), columns


def _indicators(
    party: Table, name: str, rows: Rows, trained: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], list[str]]:
    """A column of 0 and 1 for each value that a column of texts has, and these values."""
    texts = np.array(party.columns[name], dtype=object)[rows]
    if (distinct := len(np.unique(texts[trained]))) > _DISTINCT:
        raise party.wrong(f"numbers, or at most {_DISTINCT} different texts, in the column {name!r}, found {distinct}")
    values = np.unique(texts)
    return np.array(texts[:, None] == values, dtype=np.float64), [str(value) for value in values]
