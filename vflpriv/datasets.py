"""Data sets by name: bundled with scikit-learn, or read from files in the data folder.

A data set is one entry in `DATASETS`. Files are read in their upstream format, checked against known checksums, and
never unpickled. torch is imported only when a data set is loaded, so that listing them is quick.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vflpriv.errors import InputError
from vflpriv.partitions import split

if TYPE_CHECKING:
    from vflpriv.data import VerticalData

__all__ = ["DATASETS", "Dataset", "Raw", "data_folder", "find", "load", "locate", "parse_idx", "verified"]

_IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_SPLIT_SEED = 20240


@dataclass(frozen=True, kw_only=True, eq=False)
class Raw:
    """A data set as its source has it: whole records, not scaled."""

    features: NDArray[Any]
    labels: NDArray[Any]
    test_features: NDArray[Any]
    test_labels: NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """How to read one data set.

    `scale` is the value that becomes 1; None standardises each column by the mean and deviation of the training
    records in use, which an audit treats as public. `files` maps the names in the data folder to the SHA-256 of
    their content, decompressed.
    """

    name: str
    summary: str
    classes: int
    partition: str
    scale: float | None
    read: Callable[[Dataset, Path], Raw]
    files: Mapping[str, str] = field(default_factory=dict)


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder given, else $VFLPRIV_DATA, else the user's data folder on this platform."""
    chosen = folder or os.environ.get("VFLPRIV_DATA")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        base = "~/Library/Application Support"
    elif sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "vflpriv"


def find(name: str) -> Dataset:
    """The data set with this name, or an error that lists what there is."""
    if name not in DATASETS:
        raise InputError("data.name", name, f"one of {', '.join(DATASETS)}")
    return DATASETS[name]


def load(
    name: str,
    *,
    devices: int,
    partition: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    train: int | None = None,
    keep_shape: bool = False,
) -> VerticalData:
    """A data set, split over devices. `partition` defaults to the data set's own; `train` keeps only the first records.

    Files are looked for in the folder `name` of the data folder. The order of records is fixed, so that the same
    call always gives the same tensors.
    """
    import torch

    from vflpriv.data import VerticalData

    dataset = find(name)
    raw = dataset.read(dataset, data_folder(folder) / name)
    _check(dataset, raw)
    count = len(raw.labels)
    if train is not None and not 1 <= train <= count:
        raise InputError("data.train", train, f"1 to {count} training records of {name}")
    features, test = raw.features[:train], raw.test_features
    if dataset.scale is None:
        features, test = _standardised(features, test)

    def blocks(records: NDArray[Any]) -> tuple[torch.Tensor, ...]:
        parts = split(records, how=partition or dataset.partition, devices=devices, keep_shape=keep_shape)
        return tuple(torch.from_numpy(part).div_(dataset.scale or 1.0) for part in parts)

    return VerticalData(
        name=name,
        classes=dataset.classes,
        blocks=blocks(features),
        labels=torch.from_numpy(raw.labels[:train].astype(np.int64)),
        test_blocks=blocks(test),
        test_labels=torch.from_numpy(raw.test_labels.astype(np.int64)),
    )


def _check(dataset: Dataset, raw: Raw) -> None:
    parts = (("train", raw.features, raw.labels), ("test", raw.test_features, raw.test_labels))
    for part, features, labels in parts:
        if len(labels) == 0 or features.size == 0:
            raise InputError(f"data.{part}", f"{dataset.name}, empty", "at least one record")
        if len(features) != len(labels):
            raise InputError(f"data.{part}", len(labels), f"{len(features)} labels, one a record of {dataset.name}")
        if labels.min() < 0 or labels.max() >= dataset.classes:
            raise InputError(f"data.{part}", int(labels.max()), f"labels 0 to {dataset.classes - 1} in {dataset.name}")
    if raw.features.shape[1:] != raw.test_features.shape[1:]:
        raise InputError("data.test", raw.test_features.shape[1:], f"records of shape {raw.features.shape[1:]}")


def _standardised(features: NDArray[Any], test: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    mean, deviation = features.mean(axis=0), features.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)  # a constant column becomes zero, not NaN
    return (features - mean) / deviation, (test - mean) / deviation


def _bundled(dataset: Dataset, folder: Path, *, loader: str, train: int) -> Raw:
    """From scikit-learn; the first `train` records of one fixed shuffle are for training, the others for testing.

    Ordered by raw Philox words, a stream that numpy keeps the same in every version; its `permutation` may change.
    """
    del folder
    from sklearn import datasets as bundled

    bunch = getattr(bundled, loader)()
    features = np.asarray(bunch.images if "images" in bunch else bunch.data)
    order = np.argsort(np.random.Philox(_SPLIT_SEED).random_raw(len(features)), kind="stable")
    features, labels = features[order], np.asarray(bunch.target)[order]
    return Raw(
        features=features[:train], labels=labels[:train], test_features=features[train:], test_labels=labels[train:]
    )


def locate(dataset: Dataset, folder: Path) -> dict[str, Path]:
    """The files of this data set that are in the folder, plain ones before compressed ones."""
    spellings = {name: (folder / name, folder / f"{name}.gz") for name in dataset.files}
    found = {name: next((p for p in paths if p.is_file()), None) for name, paths in spellings.items()}
    return {name: path for name, path in found.items() if path is not None}


def _idx_files(dataset: Dataset, folder: Path) -> Raw:
    paths = locate(dataset, folder)
    if missing := [name for name in dataset.files if name not in paths]:
        raise InputError(
            "data.folder",
            str(folder),
            f"the files of {dataset.name} there, {missing[0]} is missing: run `vflpriv data fetch {dataset.name}`, "
            f"or put {', '.join(dataset.files)} (plain or .gz) into that folder",
        )
    arrays = [parse_idx(verified(paths[name], checksum), str(paths[name])) for name, checksum in dataset.files.items()]
    return Raw(features=arrays[0], labels=arrays[1], test_features=arrays[2], test_labels=arrays[3])


def verified(path: Path, checksum: str) -> bytes:
    """The file's content, decompressed, once its SHA-256 has been compared."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("data.file", str(path), f"a file that can be read ({error})") from error
    found = hashlib.sha256(content).hexdigest()
    if found != checksum:
        raise InputError(
            "data.file", str(path), f"SHA-256 {checksum[:16]}…, found {found[:16]}… ({len(content)} bytes)"
        )
    return content


def parse_idx(content: bytes, name: str) -> NDArray[np.uint8]:
    """An IDX file of unsigned bytes: two zeros, type 8, the number of dimensions, their sizes, the values.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), "labels").tolist()
    [7, 8, 9]
    """
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or not 1 <= content[3] <= 4:
        raise InputError("data.file", name, f"an IDX file of bytes, its first four bytes are {content[:4].hex(' ')}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise InputError("data.file", name, f"a header of {start} bytes, the file has {len(content)}")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != math.prod(shape):
        sizes = "x".join(map(str, shape))
        raise InputError("data.file", name, f"{sizes} values as its header says, found {len(content) - start}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _like_mnist(name: str, what: str, *checksums: str) -> Dataset:
    summary = f"60000 + 10000 {what} of 28x28 pixels, 10 classes; IDX files"
    files = dict(zip(_IDX_FILES, checksums, strict=True))
    return Dataset(name=name, summary=summary, classes=10, partition="rows", scale=255.0, read=_idx_files, files=files)


_ALL = (
    Dataset(
        name="digits",
        summary="1437 + 360 handwritten digits of 8x8 pixels, 10 classes; comes with scikit-learn",
        classes=10,
        partition="rows",
        scale=16.0,
        read=partial(_bundled, loader="load_digits", train=1437),
    ),
    Dataset(
        name="breast-cancer",
        summary="455 + 114 tumours, 30 measurements, 2 classes; comes with scikit-learn",
        classes=2,
        partition="slices",
        scale=None,
        read=partial(_bundled, loader="load_breast_cancer", train=455),
    ),
    _like_mnist(
        "mnist",
        "handwritten digits",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    _like_mnist(
        "fashion-mnist",
        "articles of clothing",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)
DATASETS = {dataset.name: dataset for dataset in _ALL}
