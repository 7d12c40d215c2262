"""Writes files of tensors in the background, with a bounded number of them waiting in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING

from vflpriv.common.files import atomically
from vflpriv.errors import VflprivError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BackgroundWriter", "write_tensors"]

_WAITING = 4
"""Files that may wait to be written; a training that is faster than the disk waits for it."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file that a reader sees as a whole or not at all."""
    from safetensors.torch import save_file  # imports torch, which recording needs and importing does not

    with atomically(path) as temporary:
        contiguous = {key: value.contiguous() for key, value in tensors.items()}
        save_file(contiguous, temporary, metadata=dict(metadata or {}))


class BackgroundWriter:
    """A thread that writes files in the order in which they are handed over.

    An error of writing is raised by the next call. Files are complete or absent, also when the program is killed.
    """

    def __init__(self) -> None:
        self._jobs: Queue[tuple[Path, dict[str, Tensor], dict[str, str]] | None] = Queue(_WAITING)
        self._error: VflprivError | None = None
        self._thread: Thread | None = None

    def write(self, path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
        """Hand over a file; waits while too many are waiting already. Its tensors must not be changed any more."""
        self._raise()
        if self._thread is None:
            self._thread = Thread(target=self._work, name="transcript writer", daemon=True)
            self._thread.start()
        self._jobs.put((path, tensors, metadata))

    def close(self) -> None:
        """Wait until everything is written."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        self._raise()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._error is not None:
                continue  # later files would leave a gap
            try:
                write_tensors(*job)
            except VflprivError as error:
                self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
