"""The tensors of many messages as a few long ones: each value is copied once, into memory that is used again."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

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

    def fit(self, values: Mapping[str, Tensor]) -> bool:
        """Whether all values have the shapes and types of those before them."""
        return all(self._fits(key, _as_rows(value)) for key, value in values.items() if self._lengths.get(key))

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Copy values to the ends of their columns, which they must fit."""
        for key, value in values.items():
            rows, start = _as_rows(value), self._lengths.get(key, 0)
            end = start + len(rows)
            if not start and not (key in self._rooms and self._fits(key, rows)):
                self._rooms[key] = rows.new_empty((max(end, _FIRST_ROWS), *rows.shape[1:]))
            if end > len(self._rooms[key]):
                room = rows.new_empty((2 * end, *rows.shape[1:]))
                room[:start] = self._rooms[key][:start]
                self._rooms[key] = room
            self._rooms[key][start:end] = rows
            self._lengths[key] = end
            self.bytes += rows.nbytes

    def take(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """All columns, which are empty from now on, and the memory they lie in, for `recycle`."""
        import torch

        rooms = {key: self._rooms[key] for key in self._lengths}
        values = {key: room[: self._lengths[key]] for key, room in rooms.items()}
        alike = {key: torch.empty_like(room) for key, room in rooms.items()} if not self._spare else {}
        self._rooms = self._spare.popleft() if self._spare else alike
        self._lengths, self.bytes = {}, 0
        return values, rooms

    def recycle(self, rooms: dict[str, Tensor]) -> None:
        """Take back memory whose values are not needed any more."""
        self._spare.append(rooms)

    def _fits(self, key: str, rows: Tensor) -> bool:
        room = self._rooms[key]
        return room.shape[1:] == rows.shape[1:] and room.dtype == rows.dtype


def _as_rows(value: Tensor) -> Tensor:
    return value if value.dim() else value.unsqueeze(0)
