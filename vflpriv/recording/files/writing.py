"""Writes files of tensors in the background, with a bounded number of them waiting in memory, as links of a chain."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING

from vflpriv.common.files import BLANK, SEAL, Sealing, atomically
from vflpriv.recording.files.format import link_of
from vflpriv.recording.files.stored import file_hash

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BackgroundWriter", "Chain", "write_tensors"]

_DTYPES = {
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
}
"""What the safetensors format calls the types that transcripts may have."""
_ALIGNED, _PART = 8, 1 << 18
_WAITING = 1
"""Files that may wait to be written; a training that is faster than the disk waits for it."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write a safetensors file that a reader sees as a whole or not at all, and return its SHA-256."""
    from safetensors.torch import save_file  # imports torch, which recording needs and importing does not

    with atomically(path, durable=True) as temporary:
        save_file({key: value.contiguous() for key, value in tensors.items()}, temporary)
        return file_hash(temporary)


def _head(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The head of a safetensors file with these tensors, one after another."""
    entries: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.nbytes
        dtype = _DTYPES[str(tensor.dtype).removeprefix("torch.")]
        entries[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    padded = text.ljust(-(-len(text) // _ALIGNED) * _ALIGNED)
    return len(padded).to_bytes(8, "little") + padded


def _parts(tensor: Tensor) -> Iterator[memoryview]:
    """The bytes of a tensor, in parts that stay in the cache between what reads them."""
    import torch

    content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    for start in range(0, len(content), _PART):
        yield content[start : start + _PART].data


class Chain:
    """The files with messages of one run, each sealed as the one that follows the last."""

    def __init__(self, run: str, *, files: int = 0, last: str | None = None, key: bytes | None = None) -> None:
        self.run, self.files, self.key = run, files, key
        self.last = last or run
        """The checksum of the last file; the run before the first."""

    def write(self, path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        """Write the next file."""
        ordered = dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])))
        head = _head(ordered, {**metadata, SEAL: BLANK})
        sealing = Sealing(link_of(self.run, self.files, self.last), head, self.key)
        with atomically(path, durable=True) as temporary, temporary.open("wb", buffering=0) as file:
            file.write(head)
            for tensor in ordered.values():
                for part in _parts(tensor):  # read once: a file that is sealed afterwards is read again
                    sealing.update(part)
                    file.write(part)
            seal = sealing.seal()
            file.seek(sealing.place)
            file.write((seal.checksum + seal.mark).encode())
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
