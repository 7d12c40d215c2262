"""Loads a data set of the catalogue, one feature block for each device, as arrays or as tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vflpriv.common.lazy import torch
from vflpriv.core.data import BaseData, VerticalData
from vflpriv.data.catalogue import dataset_named
from vflpriv.data.columns import Column, Ranges, Values, check_declared, decided_by_all, declared
from vflpriv.data.files import DEVICES, Dataset, Raw, data_folder
from vflpriv.data.partitions import grid, split
from vflpriv.data.records import keep_back, long_tail
from vflpriv.data.tokens import VOCABULARY, WordPiece, encode, hashed
from vflpriv.errors import InputError

__all__ = ["Alignment", "VerticalArrays", "load", "read"]

Alignment = Literal["exact", "common"]


@dataclass(frozen=True, eq=False, kw_only=True)
class VerticalArrays(BaseData):
    """Vertical data as NumPy arrays, which need no torch."""

    blocks: tuple[NDArray[Any], ...]
    labels: NDArray[np.int64]
    test_blocks: tuple[NDArray[Any], ...]
    test_labels: NDArray[np.int64]
    validation_blocks: tuple[NDArray[Any], ...] = ()
    validation_labels: NDArray[np.int64] | None = None

    def tensors(self) -> VerticalData:
        """The same data as tensors, which share the memory of these arrays."""
        return VerticalData(
            name=self.name,
            classes=self.classes,
            blocks=tuple(torch.from_numpy(block) for block in self.blocks),
            labels=torch.from_numpy(self.labels),
            test_blocks=tuple(torch.from_numpy(block) for block in self.test_blocks),
            test_labels=torch.from_numpy(self.test_labels),
            validation_blocks=tuple(torch.from_numpy(block) for block in self.validation_blocks),
            validation_labels=None if self.validation_labels is None else torch.from_numpy(self.validation_labels),
            vocabulary=self.vocabulary,
            grid=self.grid,
            fitted=self.fitted,
        )


def load(name: str, **choices: Any) -> VerticalData:
    """A data set as tensors; `read` explains the arguments."""
    return read(name, **choices).tensors()


def read(
    name: str,
    *,
    devices: int | None = None,
    partition: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    train: int | None = None,
    imbalance: float | None = None,
    validation: float | None = None,
    overlap: float = 0.0,
    keep_shape: bool = False,
    vocabulary: str | os.PathLike[str] | None = None,
    tokens: int | None = None,
    ranges: Ranges = MappingProxyType({}),
    values: Values = MappingProxyType({}),
    alignment: Alignment = "exact",
) -> VerticalArrays:
    """A data set, split over devices. `partition` defaults to the data set's own; `train` keeps only the first records.

    Files are looked for in the folder `name` of the data folder; those of `csv` in the folder itself, which has one for
    each device, and of files with different ids the `alignment` "common" keeps the records that all have. The order of
    records is fixed, so that the same call always gives the same numbers. `imbalance` is how many times as many
    training records the first class keeps as the last one, with a long tail between them. `validation` is the share
    (below 1) or number of the training records that are kept back. `overlap` is the share of its neighbour's part that
    a device holds too. With `keep_shape` blocks are images, (N, h, w) or (N, C, h, w). Texts become `tokens`
    token ids, or as many as the data set has by default, hashed or those of the WordPiece `vocabulary` (a folder with a
    vocab.txt). `ranges` and `values` are public knowledge about columns of tables, by name: the limits of numbers, and
    what texts may be.
    """
    dataset = dataset_named(name)
    _check_text(dataset, vocabulary, tokens)
    raw = _reader(dataset, alignment)(dataset, _place(dataset, folder))
    classes, devices = _classes(dataset, raw), _device_count(dataset, raw, devices, partition)
    _check(dataset, raw, classes)
    raw = _with_declared(dataset, raw, ranges, values)
    trained, kept_back = keep_back(_chosen(dataset, raw, classes, train, imbalance), validation)
    parts = [_rows(raw.features, trained), raw.test_features, raw.features[kept_back]]
    token_ids, fitted = None, tuple[str, ...]()
    if dataset.tokens is not None:
        parts, token_ids = _encoded(parts, tokens or dataset.tokens, vocabulary)
    elif dataset.scale is None:
        parts, fitted = _standardised(parts, raw.columns), decided_by_all(raw.columns)
    how = partition or dataset.partition
    cut = partial(split, how=how, devices=devices, keep_shape=keep_shape, views=raw.views, overlap=overlap)
    images = keep_shape and raw.views is None
    blocks, test_blocks, *validation_blocks = (_scaled(cut(part), dataset.scale, images) for part in parts if len(part))
    return VerticalArrays(
        name=name,
        classes=classes,
        blocks=blocks,
        labels=raw.labels[trained].astype(np.int64),
        test_blocks=test_blocks,
        test_labels=raw.test_labels.astype(np.int64),
        validation_blocks=validation_blocks[0] if validation_blocks else (),
        validation_labels=raw.labels[kept_back].astype(np.int64) if len(kept_back) else None,
        vocabulary=token_ids,
        grid={"rows": (devices, 1), "patches": grid(devices)}.get(how) if keep_shape and not overlap else None,
        fitted=fitted,
    )


def _check_text(dataset: Dataset, vocabulary: str | os.PathLike[str] | None, tokens: int | None) -> None:
    """Raise an InputError if something is said about texts of a data set that has none."""
    for field, value in (("data.vocabulary", vocabulary and str(vocabulary)), ("data.tokens", tokens)):
        if value is not None and dataset.tokens is None:
            raise InputError(field, value, f"none, since {dataset.name} is not text")


def _chosen(dataset: Dataset, raw: Raw, classes: int, train: int | None, imbalance: float | None) -> NDArray[np.int64]:
    """The training records that are used, those for validation among them."""
    if train is not None and not 1 <= train <= len(raw.labels):
        raise InputError("data.train", train, f"1 to {len(raw.labels)} training records of {dataset.name}")
    chosen = np.arange(len(raw.labels))[:train]
    return chosen if imbalance is None else long_tail(raw.labels[chosen], classes=classes, imbalance=imbalance)


def _reader(dataset: Dataset, alignment: Alignment) -> Callable[[Dataset, Path], Raw]:
    if alignment == "exact":
        return dataset.read
    if dataset.read_common is None:
        raise InputError("data.alignment", alignment, f"exact, since records of {dataset.name} are not joined by ids")
    return dataset.read_common


def _place(dataset: Dataset, folder: str | os.PathLike[str] | None) -> Path:
    """Where the files of a data set are."""
    if not dataset.own:
        return data_folder(folder) / dataset.name
    if folder is None:
        raise InputError("data.folder", None, f"a folder; put {dataset.by_hand}")
    return Path(folder).expanduser()


def _classes(dataset: Dataset, raw: Raw) -> int:
    classes = dataset.classes or raw.classes
    if classes is None:
        raise ValueError(f"Expected the number of classes from the entry {dataset.name} or from its reader.")
    return classes


def _device_count(dataset: Dataset, raw: Raw, devices: int | None, partition: str | None) -> int:
    """How many devices there are; a user's own files say it themselves."""
    if not dataset.own or raw.views is None:
        return DEVICES if devices is None else devices
    if devices not in (None, len(raw.views)):
        expected = f"{len(raw.views)}, one for each party's file, or nothing"
        raise InputError("data.devices", devices, expected)
    if partition not in (None, dataset.partition):
        expected = f"{dataset.partition} or nothing, since each file of {dataset.name} is one device"
        raise InputError("data.partition", partition, expected)
    return len(raw.views)


def _rows(features: NDArray[Any], records: NDArray[np.int64]) -> NDArray[Any]:
    """The features of these records, which are in ascending order; not copied where they are the first ones."""
    count = len(records)
    return features[:count] if records[-1] == count - 1 else features[records]


def _encoded(
    texts: Sequence[NDArray[Any]], length: int, vocabulary: str | os.PathLike[str] | None
) -> tuple[list[NDArray[Any]], int]:
    """The texts of each part as token ids, and how many ids there are."""
    if vocabulary is None:
        return [encode(part, length, hashed) for part in texts], VOCABULARY
    tokenizer = WordPiece.of(Path(vocabulary))
    return [encode(part, length, tokenizer) for part in texts], len(tokenizer.ids)


def _scaled(blocks: tuple[NDArray[Any], ...], scale: float | None, channels_first: bool) -> tuple[NDArray[Any], ...]:
    """The blocks, scaled in place; with `channels_first`, colour images (N, h, w, C) as (N, C, h, w)."""
    if channels_first and blocks[0].ndim == 4:
        blocks = tuple(np.ascontiguousarray(np.moveaxis(block, 3, 1)) for block in blocks)
    if scale is not None:
        for block in blocks:
            block /= scale
    return blocks


def _check(dataset: Dataset, raw: Raw, classes: int) -> None:
    parts = (("train", raw.features, raw.labels), ("test", raw.test_features, raw.test_labels))
    for part, features, labels in parts:
        if len(labels) == 0 or features.size == 0:
            raise InputError(f"data.{part}", f"{dataset.name}, empty", "at least one record")
        if len(features) != len(labels):
            raise InputError(
                f"data.{part}", len(labels), f"{len(features)} labels, one for each record of {dataset.name}"
            )
        if labels.min() < 0 or labels.max() >= classes:
            raise InputError(f"data.{part}", int(labels.max()), f"labels 0 to {classes - 1} in {dataset.name}")
    if raw.features.shape[1:] != raw.test_features.shape[1:]:
        raise InputError("data.test", raw.test_features.shape[1:], f"records of shape {raw.features.shape[1:]}")


def _with_declared(dataset: Dataset, raw: Raw, ranges: Ranges, values: Values) -> Raw:
    """The records with named columns as they are declared, or as the training records have them."""
    check_declared(dataset.name, raw.columns, ranges, values)
    if raw.columns is None or raw.views is None:
        return raw
    features, test_features, columns, views = declared(
        raw.features, raw.test_features, raw.columns, raw.views, ranges, values
    )
    return replace(raw, features=features, test_features=test_features, columns=columns, views=views)


def _standardised(parts: Sequence[NDArray[Any]], columns: Sequence[Column] | None) -> list[NDArray[Any]]:
    """All parts, shifted and scaled by the columns' means and deviations over the first, the training records."""
    features = parts[0]
    mean, deviation = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64)
    deviation = np.where(deviation > 0, deviation, 1.0)  # a constant column becomes zero, not NaN
    if columns is not None:
        # The 1 of a rare category would become a value in the hundreds.
        as_they_are = np.array([column.value is not None or column.public for column in columns])
        mean, deviation = np.where(as_they_are, 0.0, mean), np.where(as_they_are, 1.0, deviation)
    return [(part - mean) / deviation for part in parts]
