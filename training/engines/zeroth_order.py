"""What zeroth-order engines share: models, the server's table of last embeddings, server steps and device steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from vflpriv.core.data import VerticalData
from vflpriv.core.engine import Capabilities
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.training.engine import Engine
from vflpriv.training.engines.zeroth_order_server import SERVER_UPDATES, ServerStep
from vflpriv.training.mechanisms.base import NoNoise
from vflpriv.training.mechanisms.release import ReleasePoint
from vflpriv.training.mechanisms.uplink import DEVICES
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.base import Model, first_replicas, initialise
from vflpriv.training.models.directions import Direction, Directions, move_along
from vflpriv.training.models.factory import embedding_width, server_model
from vflpriv.training.models.heads import Sum
from vflpriv.training.settings import TopSettings

__all__ = ["ZoEngine", "ZoSettings", "losses_and_models"]


class ZoSettings(TopSettings):
    """Settings of every zeroth-order engine.

    Zeroth-order steps are noisy, and constant rates may diverge late in a training: rates can fall linearly.
    """

    final_rate: float = Field(
        1.0, gt=0, le=1, description="share of both learning rates that is left in the end; they fall linearly to it"
    )

    def fade(self, round_: int) -> float:
        """The share of the rates that is left in this round."""
        return 1 - (1 - self.final_rate) * round_ / self.rounds


class ZoEngine(Engine):
    """One bottom model per device and a top model, trained from losses.

    The server of an asynchronous engine keeps each device's last embedding of each record. Of the devices that are not
    active it reads old ones; a record that a device never sent is a row of zeros.
    """

    capabilities = Capabilities(server_model=True)
    settings: Any
    top: Model
    server_point: ReleasePoint | None = None
    """Where the server's own step is clipped and noised, if it is."""
    directions: Directions | None = None

    @classmethod
    def state_bytes(cls, settings: Any, data: VerticalData) -> int:
        width = max(embedding_width(settings, data), data.classes)
        table = 4 * data.records * data.devices * width if cls.asynchronous else 0
        return super().state_bytes(settings, data) + int(table)

    def setup(self) -> None:
        devices, classes = self.data.devices, self.data.classes
        self.sums = self.settings.aggregation_rule == "sum"
        self.width = classes if self.sums else self.embedding
        self.top: Model = Sum(devices * classes, classes) if self.sums else server_model(self.settings, self.data)
        init = self.stream("init")
        self.bank = Bank(self.device_models(self.width, activate=not self.sums), init)
        self.bottom_parameters = self.bank.parameters
        self.top_parameters = initialise(self.top, init, devices)
        self._velocity: dict[int, dict[str, Tensor]] = {}
        if self.asynchronous:
            # Record first: one record's rows of all replicas lie together, so that a batch is a few block copies.
            shape = (self.data.records, len(self.replicas), devices * self.width)
            self.table = torch.zeros(shape, device=self.torch_device)

    def inputs(self, m: int, records: Tensor) -> Tensor:
        """Device m's rows, flat: (B, …), or (R, B, …) where replicas differ or logits are summed."""
        features = self.data.features(m, records)
        rows = features.flatten(features.dim() - self.data.blocks[m].dim() + 1)
        # One product a replica: as narrow columns of one wide product equal replicas would differ in their last bits.
        return rows.expand(len(self.replicas), *rows.shape) if self.sums and rows.dim() == 2 else rows

    def columns(self, m: int) -> slice:
        """Where device m's embeddings lie among all."""
        return slice(m * self.width, (m + 1) * self.width)

    def refresh(self, m: int, records: Tensor, embedding: Tensor) -> Tensor:
        """Put device m's embeddings into the table; (R, B, all embeddings) of the batch, the others' stale."""
        self.table[:, :, self.columns(m)].index_copy_(0, records, embedding.transpose(0, 1))
        return self.table.index_select(0, records).transpose(0, 1)

    def server_step(self, round_: int, records: Tensor, rows: Tensor) -> ServerStep:
        """The inputs of the server's step, given the rows of all embeddings."""
        return ServerStep(
            settings=self.settings,
            rate=self.settings.server_rate * self.settings.fade(round_),
            model=self.top,
            parameters=self.top_parameters,
            velocity=self._velocity.setdefault(self.data.devices, {}),
            rows=rows,
            labels=self.labels_of(records, lambda: self.top.apply(self.top_parameters, rows)),
            batch_size=self.schedule.batch_size,
            round=round_,
            party=self.data.devices,
            records=records,
            directions=self.directions,
            point=self.server_point,
        )

    def learn(self, rule: str, step: ServerStep) -> None:
        """The server's own update by this rule; where logits are summed it has no model to update."""
        if self.top_parameters:
            SERVER_UPDATES[rule].apply(step)

    def move(self, round_: int, m: int, direction: Direction, scalar: Tensor) -> None:
        """w_m -= rate · scalar · u; `scalar` is (R,)."""
        move_along(
            self.bottom_parameters[m],
            direction,
            scalar,
            rate=self.settings.device_rate * self.settings.fade(round_),
            momentum=self.settings.momentum,
            velocity=self._velocity.setdefault(m, {}),
        )

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        embeddings = torch.cat(self.bank.predict(blocks, replicas), dim=-1)
        return self.top.apply(first_replicas(self.top_parameters, replicas), embeddings)


def losses_and_models(
    schedule: Schedule, kind: str, what: str, read: frozenset[Unit], trained: frozenset[Unit]
) -> tuple[Release, Release]:
    """The exact losses that devices are sent, and the models that they train.

    `read` are the units that the losses depend on, `trained` those that the models depend on.
    """
    every, last = np.ones(schedule.rounds, dtype=np.bool_), np.arange(schedule.rounds) == schedule.rounds - 1
    down = NoNoise(depends_on=read).describe(kind=kind, what=f"{what}, server to device", rounds=every, seen_by=DEVICES)
    model = NoNoise(depends_on=trained).describe(
        kind="models", what="the trained models, moved by exact losses", rounds=last, seen_by=frozenset({"model"})
    )
    return down, model
