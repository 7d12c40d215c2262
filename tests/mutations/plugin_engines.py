"""Engines as another package would bring them; this file is installed as that package's module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.wire import SERVER, Payload, Wire, device
from vflpriv.training.engines.dpzv import Dpzv
from vflpriv.training.engines.zeroth_order import Losses
from vflpriv.training.mechanisms.base import NoNoise
from vflpriv.training.models.finite_differences import Change

__all__ = ["NoisyLeak", "OwnNoise", "Padded", "Plain"]


class Plain(Dpzv):
    """DPZV under another name."""

    name = "plain"


class OwnNoise(Dpzv):
    """Clips and adds noise by itself, at no release point, and too little of it."""

    name = "own-noise"

    @torch.no_grad()
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        ((m, pair),) = uplinks.items()
        s, rows = self.settings, self.refresh(m, records, (pair["plus"] + pair["minus"]) / 2)
        step = self.server_step(round_, records, rows)
        change = Change(self.columns(m), (pair["plus"] - pair["minus"]) / 2)
        either_side = step.outputs.either_side(self.server_update.shift(step), change)
        plus, minus = (Losses(logits).of(step.labels) for logits in either_side)
        mean = ((plus - minus) / s.smoothing).clamp(-s.clip, s.clip).sum(1) / self.schedule.batch_size
        delta = mean + 0.2 * (s.noise_std or 0.0) * self.stream("server-noise").normal(1, round_)[:, 0]
        self.server_update.apply(step, delta)
        return {m: Payload("zo-scalar", {"delta": delta})}


class NoisyLeak(Dpzv):
    """Sends labels under noise that no seed decides, in a kind that the ledger calls public."""

    name = "noisy-leak"
    size = 1.0

    @staticmethod
    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        every = np.ones(schedule.rounds, dtype=np.bool_)
        seen_by = frozenset({"device", "devices", "eavesdropper", "outsider"})
        padding = NoNoise(depends_on=frozenset()).describe(
            kind="padding", what="random numbers", rounds=every, seen_by=seen_by
        )
        return (*Dpzv.releases(settings, schedule), padding)

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        records = torch.from_numpy(self.schedule.batch(round_))
        labels = self.data.labels_of(records).expand(len(self.replicas), -1)
        generator = torch.Generator()
        generator.seed()
        values = self.size * labels + torch.randn(labels.shape, generator=generator)
        for m in self.schedule.members(round_):
            Payload("padding", {"numbers": values}).send(wire, round_, SERVER, device(m), records)


class Padded(NoisyLeak):
    """Sends random numbers that no seed decides, and that depend on nothing."""

    name = "padded"
    size = 0.0
