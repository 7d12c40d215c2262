"""Bounded delay of asynchronous VAFL: which stored embeddings the server asks for again because they are too old.

All of it follows from the schedule, before any training. Rule 1 and eq. (3) are those of "VAFL: a Method of Vertical
Asynchronous Federated Learning" (Chen et al. 2020), §2.3.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.core.schedules import Schedule

__all__ = ["Refreshes", "senders", "stale_positions"]

Positions = Mapping[int, NDArray[np.int64]]
"""Positions in a round's batch, by device."""


def stale_positions(schedule: Schedule, max_delay: int | None) -> list[Positions]:
    """For every round and inactive device, the positions in the batch whose stored embedding is too old, or missing.

    When the delay τ of eq. (3) exceeds D = `max_delay`, the server asks for a new embedding (rule 1), which is then as
    recent as those of the round's active devices. Without a bound nothing is asked for.
    """
    if max_delay is None:
        return [{}] * schedule.rounds
    last = np.full((schedule.records, schedule.devices), -1, dtype=np.int64)
    positions: list[Positions] = []
    for t in range(schedule.rounds):
        ids, active = schedule.batch(t), schedule.active[t]
        previous = last[ids]
        stale = ((previous < 0) | (t - previous > max_delay)) & ~active
        positions.append({int(m): np.flatnonzero(stale[:, m]) for m in np.flatnonzero(stale.any(axis=0))})
        last[ids] = np.where(stale | active, t, previous)
    return positions


def senders(schedule: Schedule, max_delay: int | None) -> NDArray[np.bool_]:
    """(rounds, devices): whether a device sends embeddings, since it is active or since the server asks for some."""
    sent = schedule.active.copy()
    for t, stale in enumerate(stale_positions(schedule, max_delay)):
        sent[t, list(stale)] = True
    return sent


class Refreshes:
    """The records that the server asks each device for, in every round of a run.

    All ids are copied to the torch device before training, so that no round waits for the host.
    """

    def __init__(self, schedule: Schedule, max_delay: int | None, torch_device: torch.device) -> None:
        ids: list[NDArray[np.int64]] = []
        self._ranges: list[dict[int, slice]] = []
        end = 0
        for t, stale in enumerate(stale_positions(schedule, max_delay)):
            self._ranges.append({})
            for m, positions in stale.items():
                ids.append(schedule.batch(t)[positions])
                self._ranges[t][m] = slice(end, end + len(positions))
                end += len(positions)
        self._ids = torch.from_numpy(np.concatenate(ids or [np.empty(0, dtype=np.int64)])).to(torch_device)

    def at(self, round_: int) -> dict[int, Tensor]:
        """The ids of the records that the server asks each device for in this round."""
        return {m: self._ids[ids] for m, ids in self._ranges[round_].items()}
