"""What a server holds of the devices' outputs where some devices do not take part in a round."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch
from vflpriv.core.schedules import Schedule

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["HeldOutputs", "table_of_outputs"]

_LARGE = 1 << 28
"""Bytes from which on a table takes memory only where it was used."""
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}


def table_of_outputs(records: int, replicas: int, width: int, device: torch.device) -> Tensor:
    """(records, replicas, width) of zeros, for the last outputs of every record.

    Record first: one record's rows of all replicas lie together, so that a batch is a few block copies. Maps of a
    convolution over 50,000 images are 13 GB: a large table of the CPU has memory only for records that were sent.
    """
    shape = (records, replicas, width)
    size = 4 * records * replicas * width
    if device.type != "cpu" or size < _LARGE:
        return torch.zeros(shape, device=device)
    return torch.frombuffer(mmap.mmap(-1, size, **_PRIVATE), dtype=torch.float32).view(shape)


class HeldOutputs:
    """The last outputs of every record that each device sent, and zeros before its first ones.

    Where all devices take part in every round nothing is ever stale, and nothing is stored.
    """

    def __init__(self, schedule: Schedule, *, replicas: int, width: int, device: torch.device) -> None:
        self._width = width
        self._stale = not bool(schedule.active.all())
        records = schedule.records if self._stale else 0
        self._table = table_of_outputs(records, replicas, schedule.devices * width, device)

    def of(self, records: Tensor, sent: Mapping[int, Tensor]) -> Sequence[Tensor]:
        """(R, B, width) of each device for these records, once what was sent now, by device, has been noted."""
        if not self._stale:
            return [sent[m] for m in sorted(sent)]
        for m, outputs in sent.items():
            columns = slice(m * self._width, (m + 1) * self._width)
            self._table[:, :, columns].index_copy_(0, records, outputs.transpose(0, 1))
        held: Sequence[Tensor] = self._table.index_select(0, records).transpose(0, 1).split(self._width, dim=-1)
        return held
