"""What a server holds of the devices' outputs where some devices do not take part in a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch
from vflpriv.core.schedules import Schedule

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["HeldOutputs"]


class HeldOutputs:
    """The last outputs of every record that each device sent, and zeros before its first ones.

    Where all devices take part in every round nothing is ever stale, and nothing is stored.
    """

    def __init__(self, schedule: Schedule, *, replicas: int, width: int, device: torch.device) -> None:
        self._width = width
        self._stale = not bool(schedule.active.all())
        # Record first: one record's rows of all replicas lie together, so that a batch is a few block copies.
        records = schedule.records if self._stale else 0
        self._table = torch.zeros((records, replicas, schedule.devices * width), device=device)

    def of(self, records: Tensor, sent: Mapping[int, Tensor]) -> Sequence[Tensor]:
        """(R, B, width) of each device for these records, once what was sent now, by device, has been noted."""
        if not self._stale:
            return [sent[m] for m in sorted(sent)]
        for m, outputs in sent.items():
            columns = slice(m * self._width, (m + 1) * self._width)
            self._table[:, :, columns].index_copy_(0, records, outputs.transpose(0, 1))
        held: Sequence[Tensor] = self._table.index_select(0, records).transpose(0, 1).split(self._width, dim=-1)
        return held
