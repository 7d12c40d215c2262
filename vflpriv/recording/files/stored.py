"""Tensors of a transcript on disk: read when they are asked for, from files that are mapped into memory in turn.

A transcript can be larger than the memory. A message of it knows where its tensors lie, and holds none of them; the few
files that were used last are mapped, and what attacks and tests keep of a tensor they have to copy.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError, safe_open

from vflpriv.common.files import regular
from vflpriv.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.recording.files.format import Head

__all__ = [
    "Place",
    "StoredFile",
    "StoredFiles",
    "StoredTensors",
    "content_hash",
    "file_beside",
    "file_hash",
    "mapped",
    "numbers_below",
    "read_tensors",
    "unique_ids",
    "whole_numbers",
]

_MAPPED = 4
"""Files that are mapped at a time."""
_READ_AT_ONCE = 1 << 20


class StoredFile:
    """One safetensors file, mapped into memory as long as this object or one of its tensors is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: Any = safe_open(regular(path), framework="pt")
        except (SafetensorError, OSError) as error:
            raise InputError("transcript", path.name, f"a whole safetensors file ({error})") from error
        self._tensors: dict[str, Tensor] = {}

    @property
    def metadata(self) -> Mapping[str, str]:
        return dict(self._file.metadata() or {})

    @property
    def names(self) -> frozenset[str]:
        """The names of its tensors."""
        return frozenset(self._file.keys())

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._tensors:
            self._tensors[name] = self._file.get_tensor(name)
        return self._tensors[name]


class StoredFiles:
    """The files of a transcript, of which the last few that were used are mapped."""

    def __init__(self) -> None:
        self._mapped: OrderedDict[Path, StoredFile] = OrderedDict()

    def file(self, path: Path) -> StoredFile:
        """The file, mapped now or still."""
        known = self._mapped.pop(path, None)
        self._mapped[path] = file = StoredFile(path) if known is None else known
        while len(self._mapped) > _MAPPED:
            self._mapped.popitem(last=False)
        return file


class Place(NamedTuple):
    """Where the tensor of a message lies: in rows `start` to `end` of a tensor of the file; a number has no end."""

    name: str
    column: str
    start: int
    end: int | None

    def of(self, column: Tensor) -> Tensor:
        """The tensor itself, as a part of its column."""
        return column[self.start] if self.end is None else column[self.start : self.end]


class StoredTensors(Mapping[str, "Tensor"]):
    """The tensors of one message of a file, with a replica axis of one; each is read when it is asked for."""

    __slots__ = ("_files", "_path", "_places")

    def __init__(self, files: StoredFiles, path: Path, places: Iterable[Place]) -> None:
        self._files, self._path, self._places = files, path, tuple(places)

    def __getitem__(self, name: str) -> Tensor:
        for place in self._places:
            if place.name == name:
                return place.of(self._files.file(self._path)[place.column]).unsqueeze(0)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (place.name for place in self._places)

    def __len__(self) -> int:
        return len(self._places)


def content_hash(paths: Iterable[Path]) -> str:
    """A hash of the names and contents of files."""
    total = hashlib.sha256()
    for path in paths:
        total.update(f"{path.name}\0{file_hash(path)}\n".encode())
    return total.hexdigest()


def file_hash(path: Path) -> str:
    """The SHA-256 of a file."""
    own = hashlib.sha256()
    try:
        with regular(path).open("rb") as file:
            while part := file.read(_READ_AT_ONCE):
                own.update(part)
    except OSError as error:
        raise InputError("transcript", path.name, f"a file that can be read ({error.strerror})") from error
    return own.hexdigest()


def mapped(path: Path) -> mmap.mmap:
    """The bytes of a file, none of them copied."""
    try:
        with regular(path).open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise InputError("transcript", path.name, "a whole safetensors file that can be read") from error


def file_beside(folder: Path, name: str, head: Head) -> Path | None:
    """A file without messages, as it was recorded; None if there is none."""
    path, recorded = folder / name, head.beside.get(name)
    there = os.path.lexists(path)
    if head.protected and there != (recorded is not None) and (recorded is not None or head.finished):
        expected = "the file that was recorded: it is gone" if recorded else "no such file: none was recorded"
        raise InputError("transcript", name, expected)
    if recorded is not None and file_hash(path) != recorded:
        raise InputError("transcript", name, "the file as it was recorded: it was changed")
    return path if there else None


# Whole files, and the numbers in them


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name."""
    file = StoredFile(path)
    return {name: file[name] for name in sorted(file.names)}


def unique_ids(ids: Tensor, where: str, head: Head) -> Tensor:
    """Record ids, each of which occurs once."""
    ids = whole_numbers(ids, where, "a list of int32 or int64")
    numbers_below(ids, where, (len(ids),), head.records)
    if len(ids.unique()) != len(ids):
        raise InputError(where, ids.tolist(), "no record twice")
    return ids


def whole_numbers(values: Tensor, where: str, expected: str) -> Tensor:
    """A list of whole numbers of either width, as int64."""
    import torch

    if values.dtype not in (torch.int32, torch.int64) or values.dim() != 1:
        raise InputError(where, f"{values.dtype} {tuple(values.shape)}", expected)
    return values.long()


def numbers_below(values: Tensor, where: str, shape: tuple[int, ...], below: int) -> Tensor:
    """Whole numbers of this shape, from 0 to `below` - 1."""
    if tuple(values.shape) != shape:
        raise InputError(where, tuple(values.shape), f"the shape {shape}")
    if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < below:
        raise InputError(where, [int(values.min()), int(values.max())], f"0 to {below - 1}")
    return values
