"""Which batch a module is given: batches that were fetched wait here until a step uses them.

Loaders, and whoever reads ahead of a loop, fetch a batch before the step that uses it. A batch is known again by its
memory: a module's input is one of its tensors, or a part of one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from vflpriv.recording.watching.outputs import tensors_in

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Fetched", "Waiting"]

_MOST = 256
"""Batches that may wait; a loop that fetches and uses none keeps no more."""


class Fetched:
    """A batch that was fetched: the numbers of its records, and its tensors for as long as the training has them."""

    def __init__(self, ids: Tensor, batch: Any = None) -> None:
        self.ids = ids
        self._tensors = [ref(tensor) for tensor in tensors_in(batch)]

    def place_of(self, given: Sequence[Tensor]) -> int | None:
        """The row at which the first of these that is part of a tensor of the batch begins; None if none is."""
        return next((row for tensor in given if (row := self._row_of(tensor)) is not None), None)

    def _row_of(self, given: Tensor) -> int | None:
        for tensor in (known() for known in self._tensors):
            if tensor is None or tensor.dim() == 0 or len(tensor) != len(self.ids):
                continue
            if given is tensor:
                return 0
            if given.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
                offset, step = given.storage_offset() - tensor.storage_offset(), tensor.stride(0) or 1
                if 0 <= offset < step * len(tensor):
                    return int(offset // step)
        return None


class Waiting:
    """Batches that were fetched and not used yet, in their order."""

    def __init__(self) -> None:
        self._batches: deque[Fetched] = deque(maxlen=_MOST)
        self.unused = 0
        """How many were fetched and never used, since a later one was."""

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: Fetched) -> None:
        """It was fetched."""
        self.unused += len(self._batches) == _MOST
        self._batches.append(batch)

    def holding(self, given: Sequence[Tensor]) -> Fetched | None:
        """The one whose memory one of these tensors is in."""
        return next((batch for batch in self._batches if batch.place_of(given) is not None), None)

    def next(self, rows: set[int]) -> Fetched | None:
        """The oldest with as many records as one of the inputs has rows, else the oldest."""
        fitting = (batch for batch in self._batches if len(batch.ids) in rows)
        return next(fitting, self._batches[0] if self._batches else None)

    def use(self, batch: Fetched) -> None:
        """This one is used; those that were fetched before it no longer will be."""
        while self._batches.popleft() is not batch:
            self.unused += 1
