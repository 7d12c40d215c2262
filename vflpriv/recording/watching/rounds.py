"""A round of a watched training: the batch that its parties work on, and which part of it each call is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflpriv.recording.watching.using import Fetched

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Call", "Round", "Rows"]


class Rows:
    """The records of a batch or a part of it, row by row. A record that was drawn twice is in two parts."""

    def __init__(self, ids: Tensor) -> None:
        import torch

        self.ids = ids
        self.parts: list[tuple[Tensor | None, Tensor]] = [(None, ids)]
        """Places of rows, all if None, and their records, each once in a part."""
        if len(set(ids.tolist())) < len(ids):
            ordered, order = ids.sort(stable=True)
            first = torch.searchsorted(ordered, ordered)
            turn = torch.empty_like(ids)
            turn[order] = torch.arange(len(ids)) - first
            places = [(turn == number).nonzero().flatten() for number in range(int(turn.max()) + 1)]
            self.parts = [(place, ids[place]) for place in places]


class Call:
    """One pass through a party's module."""

    def __init__(self, device: int, round_: Round, rows: Rows, sent: Tensor, *, training: bool) -> None:
        self.device, self.round, self.rows, self.training = device, round_, rows, training
        self.sent = sent.detach()  # its graph would hold on to the hook that holds on to this call
        self.listened = sent.requires_grad
        """Whether the gradient by this output is seen; a checkpoint's only by that of a second pass."""
        self.copies: list[Tensor] = []
        """What was sent in a pass that is a message only if a backward pass follows."""


class Round:
    """One batch."""

    def __init__(self, number: int, batch: Fetched) -> None:
        self.number, self.batch = number, batch
        self.spent = False
        """Whether a backward pass has begun in it."""
        self.inputs: dict[int, Tensor] = {}
        """The first row that each device's module was given."""
        self.calls: dict[int, Call] = {}
        """The last call of each device's module."""
        self.targets: dict[int, tuple[bool, Tensor, Tensor]] = {}
        """Whether a loss had the labels of some records, what it compared with, and the records."""
        self.doubtful: set[int] = set()
        """Devices that were called again with other inputs."""
        self._rows: dict[tuple[int, int], Rows] = {}
        self._used: dict[int, int] = {}

    @property
    def ids(self) -> Tensor:
        return self.batch.ids

    def rows(self, device: int, count: int, start: int | None) -> Rows:
        """The part of the batch that a call of so many rows is about: from `start` on, or from where the last ended."""
        size, used = len(self.ids), self._used.get(device, 0)
        if start is None and count < size:
            start = used if used + count <= size else 0
            self._used[device] = start + count
        start = start or 0
        key = (0, size) if count >= size else (start, min(start + count, size))
        if key not in self._rows:
            self._rows[key] = Rows(self.ids if key == (0, size) else self.ids[key[0] : key[1]])
        return self._rows[key]

    def unfinished(self) -> dict[int, int]:
        """By device how many rows its calls were about, where these were counted and are not all of the batch."""
        return {device: used for device, used in self._used.items() if 0 < used < len(self.ids)}
