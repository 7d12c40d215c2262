"""What a catalogue entry holds, the records a reader returns, and the files of a data set, checked before use."""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflpriv.data.columns import Column
from vflpriv.data.sources import Source
from vflpriv.errors import InputError

__all__ = ["DEVICES", "Dataset", "Raw", "contents", "data_folder", "fixed_order", "locate", "verified"]

DEVICES = 4
"""How many devices hold a block if nothing is said."""
_SPLIT_SEED = 20240


@dataclass(frozen=True, kw_only=True, eq=False)
class Raw:
    """A data set as its reader returns it: whole records, not scaled; texts as an array of `str` objects.

    `views` says how many entries of the second axis belong to each view. `columns` are those of tables with names;
    values of texts are 0 or 1 and stay so when numbers are standardised. `classes` is given where the catalogue does
    not know them.
    """

    features: NDArray[Any]
    labels: NDArray[Any]
    test_features: NDArray[Any]
    test_labels: NDArray[Any]
    views: tuple[int, ...] | None = None
    columns: tuple[Column, ...] | None = None
    classes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One entry of the catalogue: all there is to know of a data set.

    `read` is given the entry and the data set's folder. `classes` is None where the reader finds them out. `partition`
    is how records are divided among devices unless another way is asked for. `scale` is the value that becomes 1; None
    standardises each column by the mean and deviation of the training records in use, which an audit treats as public.
    `tokens` is how many token ids a text becomes. `files` maps the names in the data folder to the SHA-256 of their
    content, decompressed; they are fetched from `source`. Where no package has them, `by_hand` says what to put into
    the folder.

    A user's `own` data are in the folder that is given, not in one named after the data set, and each of their views is
    one device; `read_common` reads the records that all of the parties have.
    """

    name: str
    summary: str
    classes: int | None
    partition: str
    scale: float | None
    read: Callable[[Dataset, Path], Raw]
    tokens: int | None = None
    source: Source | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    by_hand: str = ""
    own: bool = False
    read_common: Callable[[Dataset, Path], Raw] | None = None

    def __post_init__(self) -> None:
        if self.source is not None and not self.files:
            raise ValueError(f"Expected files with checksums for {self.name}, since it has a source.")


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


def fixed_order(count: int) -> NDArray[np.int64]:
    """A permutation of `count` records that is the same on every machine.

    It sorts raw Philox words, a stream that numpy keeps the same in every version; its `permutation` may change.
    """
    return np.argsort(np.random.Philox(_SPLIT_SEED).random_raw(count), kind="stable")


def locate(dataset: Dataset, folder: Path) -> dict[str, Path]:
    """The files of this data set that are in the folder, plain ones before compressed ones."""
    spellings = {name: (folder / name, folder / f"{name}.gz") for name in dataset.files}
    present = {name: next((p for p in paths if p.is_file()), None) for name, paths in spellings.items()}
    return {name: path for name, path in present.items() if path is not None}


def contents(dataset: Dataset, folder: Path) -> dict[str, tuple[bytes, str]]:
    """All files of the data set: their verified content and, for messages, their paths."""
    paths = locate(dataset, folder)
    if missing := [name for name in dataset.files if name not in paths]:
        raise InputError(
            "data.folder",
            str(folder),
            f"the files of {dataset.name} there, {missing[0]} is missing: run `vflpriv data fetch {dataset.name}`, "
            f"or put {', '.join(dataset.files)} (plain or .gz) into that folder",
        )
    return {name: (verified(paths[name], checksum), str(paths[name])) for name, checksum in dataset.files.items()}


def verified(path: Path, checksum: str) -> bytes:
    """The file's content, decompressed, once its SHA-256 has been compared."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("data.file", str(path), f"a file that can be read ({error})") from error
    actual = hashlib.sha256(content).hexdigest()
    if actual != checksum:
        raise InputError(
            "data.file", str(path), f"SHA-256 {checksum[:16]}…, found {actual[:16]}… ({len(content)} bytes)"
        )
    return content
