"""Bounded delay: which stored embeddings are too old, decided before training from the schedule alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.core.schedules import Schedule

__all__ = ["Refreshes", "senders", "stale_positions"]

Positions = Mapping[int, NDArray[np.int64]]


def stale_positions(schedule: Schedule, max_delay: int | None) -> list[Positions]:
    """For every round and device the places in the batch whose stored embedding is too old, or was never sent.

    vafl.txt §2.3, rule 1: when the delay τ of eq. (3) exceeds D, the server asks for a fresh embedding, which is then
    as new as those of the round's own devices.
    """
    if max_delay is None:
        return [{}] * schedule.rounds
    last = np.full((schedule.records, schedule.devices), -1, dtype=np.int64)
    found: list[Positions] = []
    for t in range(schedule.rounds):
        ids, active = schedule.batch(t), schedule.active[t]
        seen = last[ids]
        stale = ((seen < 0) | (t - seen > max_delay)) & ~active
        found.append({int(m): np.flatnonzero(stale[:, m]) for m in np.flatnonzero(stale.any(axis=0))})
        last[ids] = np.where(stale | active, t, seen)
    return found


def senders(schedule: Schedule, max_delay: int | None) -> NDArray[np.bool_]:
    """(rounds, devices): who sends embeddings, active or asked."""
    sent = schedule.active.copy()
    for t, asked in enumerate(stale_positions(schedule, max_delay)):
        sent[t, list(asked)] = True
    return sent


class Refreshes:
    """The plan of a run: which records to ask which devices for. All ids are on the device before training."""

    def __init__(self, schedule: Schedule, max_delay: int | None, torch_device: torch.device) -> None:
        ids: list[NDArray[np.int64]] = []
        self._places: list[dict[int, slice]] = []
        end = 0
        for t, asked in enumerate(stale_positions(schedule, max_delay)):
            self._places.append({})
            for m, positions in asked.items():
                ids.append(schedule.batch(t)[positions])
                self._places[t][m] = slice(end, end + len(positions))
                end += len(positions)
        self._ids = torch.from_numpy(np.concatenate(_whole(ids))).to(torch_device)

    def at(self, round_: int) -> dict[int, Tensor]:
        """The records to ask each device for."""
        return {m: self._ids[place] for m, place in self._places[round_].items()}


def _whole(parts: Sequence[NDArray[np.int64]]) -> Sequence[NDArray[np.int64]]:
    return parts or [np.empty(0, dtype=np.int64)]
