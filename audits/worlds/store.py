"""The store of finished trials: a shard is on disk before it counts, so that a killed audit resumes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vflpriv.common.files import atomically

__all__ = ["TrialStore", "one_thread", "side_by_side"]

S = TypeVar("S")
T = TypeVar("T")


class TrialStore:
    """One file per shard, named by a hash of everything that decides its content. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def load(self, key: str) -> dict[str, Tensor] | None:
        """A stored shard, or None; a file that cannot be read counts as absent and is computed again."""
        path = self._path(key)
        if path is None or not path.exists():
            return None
        try:
            return load_file(path)
        except SafetensorError:
            return None

    def save(self, key: str, shard: dict[str, Tensor]) -> None:
        """Store a shard; a reader sees all of it or nothing."""
        path = self._path(key)
        if path is None:
            return
        with atomically(path) as temporary:
            save_file({name: t.contiguous().to(torch.float32).cpu() for name, t in shard.items()}, temporary)

    def _path(self, key: str) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.safetensors"


def side_by_side(work: Callable[[S], T], items: Sequence[S], device: torch.device) -> list[T]:
    """Results in order. On the CPU one shard per core, each on one thread: small operations gain nothing from more.

    torch lets go of the interpreter inside an operation, so threads suffice and nothing has to be copied. An
    accelerator runs one shard after the other.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(cores, len(items)) if device.type == "cpu" else 1
    with one_thread(), ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        return list(pool.map(work, items))


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch's operations on one thread each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
