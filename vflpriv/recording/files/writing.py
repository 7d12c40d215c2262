"""Writes files of tensors in the background, with a bounded number of them waiting in memory, as links of a chain."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING

from vflpriv.common.files import BLANK, SEAL, atomically, sealed
from vflpriv.recording.files.format import link_of
from vflpriv.recording.files.stored import file_hash, mapped

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BackgroundWriter", "Chain", "write_tensors"]

_WAITING = 1
"""Files that may wait to be written; a training that is faster than the disk waits for it."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write a safetensors file that a reader sees as a whole or not at all, and return its SHA-256."""
    with atomically(path, durable=True) as temporary:
        _write(temporary, tensors)
        return file_hash(temporary)


def _write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    from safetensors.torch import save_file  # imports torch, which recording needs and importing does not

    save_file({key: value.contiguous() for key, value in tensors.items()}, path, metadata=dict(metadata or {}))
    if metadata is not None and len(metadata) > 1:
        _order_metadata(path)


def _order_metadata(path: Path) -> None:
    """Put the metadata in alphabetical order: safetensors writes it in any, and equal recordings have equal hashes."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        ordered = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
        if len(ordered) == size:
            file.seek(8)
            file.write(ordered)


class Chain:
    """The files with messages of one run, each sealed as the one that follows the last."""

    def __init__(self, run: str, *, files: int = 0, last: str | None = None, key: bytes | None = None) -> None:
        self.run, self.files, self.key = run, files, key
        self.last = last or run
        """The checksum of the last file; the run before the first."""

    def write(self, path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        """Write the next file."""
        with atomically(path, durable=True) as temporary:
            _write(temporary, tensors, {**metadata, SEAL: BLANK})
            # The file is sealed in its place: a copy of it in memory would take as long as writing it.
            (before, digits, _), seal = sealed(link_of(self.run, self.files, self.last), mapped(temporary), self.key)
            with temporary.open("r+b") as file:
                file.seek(len(before))
                file.write(digits)
        self.files, self.last = self.files + 1, seal.checksum


@dataclass(frozen=True, eq=False)
class _Job:
    """A file to be written."""

    path: Path
    tensors: dict[str, Tensor]
    metadata: dict[str, str]
    done: Callable[[], None]


class BackgroundWriter:
    """A thread that writes files in the order in which they are handed over.

    An error of writing is raised by the next call. Files are complete or absent, also when the program is killed.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self._jobs: Queue[_Job | None] = Queue(_WAITING)
        self._error: Exception | None = None
        self._thread: Thread | None = None

    def write(
        self, path: Path, tensors: dict[str, Tensor], metadata: dict[str, str], *, done: Callable[[], None]
    ) -> None:
        """Hand over a file; waits while too many are waiting. Its tensors stay as they are until `done` is called."""
        self._raise()
        if self._thread is None:
            self._thread = Thread(target=self._work, name="transcript writer", daemon=True)
            self._thread.start()
        self._jobs.put(_Job(path, tensors, metadata, done))

    def wait(self) -> None:
        """Wait until all files so far are written."""
        self._jobs.join()
        self._raise()

    def close(self) -> None:
        """Write all files, and end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._raise()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if self._error is None:  # after an error, later files would leave a gap
                    self.chain.write(job.path, job.tensors, job.metadata)
                    job.done()
            except Exception as error:  # noqa: BLE001 (raised by the next call; the training would wait for ever)
                self._error = error
            finally:
                self._jobs.task_done()

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
