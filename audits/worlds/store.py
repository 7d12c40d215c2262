"""The store of finished trials: a shard is on disk before it counts, so that a killed audit resumes."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from vflpriv.common.sealed import SEAL, UNSEALED, damaged, read_sealed, sealed_path, write_sealed
from vflpriv.core.systems import System
from vflpriv.errors import StoreWarning

__all__ = ["TrialStore", "one_thread", "result_key"]

Shard = dict[str, Tensor]


class TrialStore:
    """One file per shard, named by a hash of everything that decides its content. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def key(self, system: System, *parts: object) -> str | None:
        """The key of a result of this system; None if nothing is to be stored."""
        return None if self.folder is None else result_key(system, *parts)

    def load(self, key: str | None, *, names: Collection[str] = (), rows: int | None = None) -> Shard | None:
        """A stored shard, or None; a file with any other content than was stored is not used, with a warning.

        It must have tensors of these names, with so many rows each.
        """
        path = self._path(key)
        if path is None or key is None:
            return None
        content = read_sealed(path, key)
        if content is None:
            return None
        try:
            shard = load(content)
        except (SafetensorError, ValueError, KeyError):
            shard = {}
        if shard and all(name in shard and (rows is None or shard[name].shape[:1] == (rows,)) for name in names):
            return shard
        damaged(path)
        return None

    def save(self, key: str | None, shard: Mapping[str, Tensor]) -> None:
        """Store a shard; a reader sees all of it or nothing."""
        path = self._path(key)
        if path is not None and key is not None:
            tensors = {name: t.detach().contiguous().cpu() for name, t in shard.items()}
            write_sealed(path, key, save(tensors, {SEAL: UNSEALED}))

    def _path(self, key: str | None) -> Path | None:
        return None if self.folder is None or key is None else sealed_path(self.folder, key, "safetensors")


def result_key(system: System, *parts: object) -> str | None:
    """The key under which a result of this system is stored; None, with a warning, if it must not be stored."""
    if system.storable:
        return "/".join((system.fingerprint(), *map(str, parts)))
    name = system.engine.__qualname__
    text = f"not all code that {name} uses can be read, so its results are not stored; define it in a file"
    warnings.warn(text, StoreWarning, stacklevel=2)
    return None


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch's operations on one thread each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
