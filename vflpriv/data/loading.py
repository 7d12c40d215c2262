"""Loads a data set of the catalogue, one feature block for each device, as arrays or as tensors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflpriv.common.lazy import torch
from vflpriv.core.data import BaseData, VerticalData
from vflpriv.data.catalogue import dataset_named
from vflpriv.data.files import Dataset, Raw, data_folder
from vflpriv.data.partitions import grid, split
from vflpriv.data.tokens import VOCABULARY, WordPiece, encode, hashed
from vflpriv.errors import InputError

__all__ = ["VerticalArrays", "load", "read"]


@dataclass(frozen=True, eq=False, kw_only=True)
class VerticalArrays(BaseData):
    """Vertical data as NumPy arrays, which need no torch."""

    blocks: tuple[NDArray[Any], ...]
    labels: NDArray[np.int64]
    test_blocks: tuple[NDArray[Any], ...]
    test_labels: NDArray[np.int64]

    def tensors(self) -> VerticalData:
        """The same data as tensors, which share the memory of these arrays."""
        return VerticalData(
            name=self.name,
            classes=self.classes,
            blocks=tuple(torch.from_numpy(block) for block in self.blocks),
            labels=torch.from_numpy(self.labels),
            test_blocks=tuple(torch.from_numpy(block) for block in self.test_blocks),
            test_labels=torch.from_numpy(self.test_labels),
            vocabulary=self.vocabulary,
            grid=self.grid,
        )


def load(
    name: str,
    *,
    devices: int,
    partition: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    train: int | None = None,
    keep_shape: bool = False,
    vocabulary: str | os.PathLike[str] | None = None,
) -> VerticalData:
    """A data set as tensors; `read` explains the arguments."""
    arrays = read(
        name,
        devices=devices,
        partition=partition,
        folder=folder,
        train=train,
        keep_shape=keep_shape,
        vocabulary=vocabulary,
    )
    return arrays.tensors()


def read(
    name: str,
    *,
    devices: int,
    partition: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    train: int | None = None,
    keep_shape: bool = False,
    vocabulary: str | os.PathLike[str] | None = None,
) -> VerticalArrays:
    """A data set, split over devices. `partition` defaults to the data set's own; `train` keeps only the first records.

    Files are looked for in the folder `name` of the data folder. The order of records is fixed, so that the same
    call always gives the same numbers. With `keep_shape` blocks are images, (N, h, w) or (N, C, h, w). Texts become
    token ids, hashed or those of the WordPiece `vocabulary` (a folder with a vocab.txt).
    """
    dataset = dataset_named(name)
    if vocabulary is not None and dataset.tokens is None:
        raise InputError("data.vocabulary", str(vocabulary), f"none, since {name} is not text")
    raw = dataset.read(dataset, data_folder(folder) / name)
    _check(dataset, raw)
    if train is not None and not 1 <= train <= len(raw.labels):
        raise InputError("data.train", train, f"1 to {len(raw.labels)} training records of {name}")
    features, test, token_ids = raw.features[:train], raw.test_features, None
    if dataset.tokens is not None:
        features, test, token_ids = _encoded(features, test, dataset.tokens, vocabulary)
    elif dataset.scale is None:
        features, test = _standardised(features, test, raw.indicators)
    how = partition or dataset.partition
    cut = partial(split, how=how, devices=devices, keep_shape=keep_shape, views=raw.views)
    several_images = raw.views is not None
    return VerticalArrays(
        name=name,
        classes=dataset.classes,
        blocks=_scaled(cut(features), dataset.scale, keep_shape and not several_images),
        labels=raw.labels[:train].astype(np.int64),
        test_blocks=_scaled(cut(test), dataset.scale, keep_shape and not several_images),
        test_labels=raw.test_labels.astype(np.int64),
        vocabulary=token_ids,
        grid={"rows": (devices, 1), "patches": grid(devices)}.get(how) if keep_shape else None,
    )


def _encoded(
    texts: NDArray[Any], test_texts: NDArray[Any], length: int, vocabulary: str | os.PathLike[str] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Training and test texts as token ids, and how many ids there are."""
    if vocabulary is None:
        return encode(texts, length, hashed), encode(test_texts, length, hashed), VOCABULARY
    tokenizer = WordPiece.of(Path(vocabulary))
    return encode(texts, length, tokenizer), encode(test_texts, length, tokenizer), len(tokenizer.ids)


def _scaled(blocks: tuple[NDArray[Any], ...], scale: float | None, channels_first: bool) -> tuple[NDArray[Any], ...]:
    """The blocks, scaled in place; with `channels_first`, colour images (N, h, w, C) as (N, C, h, w)."""
    if channels_first and blocks[0].ndim == 4:
        blocks = tuple(np.ascontiguousarray(np.moveaxis(block, 3, 1)) for block in blocks)
    if scale is not None:
        for block in blocks:
            block /= scale
    return blocks


def _check(dataset: Dataset, raw: Raw) -> None:
    parts = (("train", raw.features, raw.labels), ("test", raw.test_features, raw.test_labels))
    for part, features, labels in parts:
        if len(labels) == 0 or features.size == 0:
            raise InputError(f"data.{part}", f"{dataset.name}, empty", "at least one record")
        if len(features) != len(labels):
            raise InputError(
                f"data.{part}", len(labels), f"{len(features)} labels, one for each record of {dataset.name}"
            )
        if labels.min() < 0 or labels.max() >= dataset.classes:
            raise InputError(f"data.{part}", int(labels.max()), f"labels 0 to {dataset.classes - 1} in {dataset.name}")
    if raw.features.shape[1:] != raw.test_features.shape[1:]:
        raise InputError("data.test", raw.test_features.shape[1:], f"records of shape {raw.features.shape[1:]}")


def _standardised(
    features: NDArray[Any], test: NDArray[Any], indicators: NDArray[np.bool_] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    mean, deviation = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64)
    deviation = np.where(deviation > 0, deviation, 1.0)  # a constant column becomes zero, not NaN
    if indicators is not None:
        # The 1 of a rare category would become a value in the hundreds.
        mean, deviation = np.where(indicators, 0.0, mean), np.where(indicators, 1.0, deviation)
    return (features - mean) / deviation, (test - mean) / deviation
