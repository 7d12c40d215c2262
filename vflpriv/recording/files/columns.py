"""The tensors of many messages as a few long ones: each value is copied once, into memory that is used again."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vflpriv.recording.files.checks import all_finite

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Columns"]

_FIRST_ROWS = 256


class Columns:
    """Values by key, one after another along their first axis; a single number is a row of its own.

    Memory that was never touched is slow to write to. So what `take` returns can be handed back with `recycle` once it
    is written, from another thread too, and is used for the values to come.
    """

    def __init__(self) -> None:
        self._rooms: dict[str, Tensor] = {}
        self._lengths: dict[str, int] = {}
        self._spare: deque[dict[str, Tensor]] = deque()
        self.bytes = 0

    def add(self, values: Mapping[str, Tensor]) -> bool:
        """Copy values to the ends of their columns; or, if they do not have the shapes and types of those, nothing."""
        placed = []
        for key, value in values.items():
            rows = value if value.dim() else value.unsqueeze(0)
            start, room = self._lengths.get(key, 0), self._rooms.get(key)
            fits = room is not None and room.shape[1:] == rows.shape[1:] and room.dtype == rows.dtype
            if start and not fits:
                return False
            placed.append((key, rows, start, room if fits else None))
        for key, rows, start, room in placed:
            count = rows.shape[0]
            if room is None or start + count > room.shape[0]:
                room = self._larger(key, rows, start)
            room.narrow(0, start, count).copy_(rows)
            self._lengths[key] = start + count
            self.bytes += rows.nbytes
        return True

    def append(self, key: str, rows: Tensor) -> bool:
        """The same for one column whose last value, if it has any, had this shape and type: less is looked at."""
        start, room = self._lengths.get(key, 0), self._rooms.get(key)
        count = rows.shape[0]
        if not start or room is None or start + count > room.shape[0]:
            return self.add({key: rows})
        room.narrow(0, start, count).copy_(rows)
        self._lengths[key] = start + count
        self.bytes += rows.nbytes
        return True

    def _larger(self, key: str, rows: Tensor, start: int) -> Tensor:
        """Room for twice as many rows as there are with these, the first `start` of which stay."""
        room = rows.new_empty((max(2 * (start + len(rows)), _FIRST_ROWS), *rows.shape[1:]))
        if start:
            room[:start] = self._rooms[key][:start]
        self._rooms[key] = room
        return room

    def take(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """All columns, which are empty from now on, and the memory they lie in, for `recycle`."""
        import torch

        rooms = {key: self._rooms[key] for key in self._lengths}
        values = {key: room[: self._lengths[key]] for key, room in rooms.items()}
        alike = {key: torch.empty_like(room) for key, room in rooms.items()} if not self._spare else {}
        self._rooms = self._spare.popleft() if self._spare else alike
        self._lengths, self.bytes = {}, 0
        return values, rooms

    def flaws(self) -> dict[str, int]:
        """The columns with a value that is NaN or infinite, and the first row with one."""
        first_rows = {}
        for key, length in self._lengths.items():
            values = self._rooms[key][:length]
            if not all_finite(values):
                first_rows[key] = int((~values.isfinite()).reshape(length, -1).any(1).nonzero()[0])
        return first_rows

    def recycle(self, rooms: dict[str, Tensor]) -> None:
        """Take back memory whose values are not needed any more."""
        self._spare.append(rooms)
