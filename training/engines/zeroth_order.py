"""What zeroth-order engines share: models, the server's table of last embeddings, server steps and device steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.data import VerticalData
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Payload
from vflpriv.training.engine import Engine
from vflpriv.training.engines.zeroth_order_server import SERVER_UPDATES, ServerStep
from vflpriv.training.mechanisms.base import Mechanism, NoNoise
from vflpriv.training.mechanisms.noise import NoiseSource
from vflpriv.training.mechanisms.release import let_out
from vflpriv.training.mechanisms.uplink import DEVICES, UplinkSettings, uplink_mechanisms, uplink_releases
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.base import Model, first_replicas, initialise
from vflpriv.training.models.directions import Direction, Directions, Shifted, move_along
from vflpriv.training.models.factory import embedding_width, server_model
from vflpriv.training.models.heads import Sum
from vflpriv.training.settings import AggregationSettings, AsyncSettings, TopSettings

__all__ = [
    "CzofoSettings",
    "OneSidedEngine",
    "SynZooSettings",
    "ZoEngine",
    "ZoSettings",
    "ZooSettings",
    "czofo_releases",
    "loss_claims",
    "no_claims",
    "pair_kind",
    "zoo_releases",
]


class ZoSettings(TopSettings):
    """Zeroth-order steps are noisy, and constant rates may diverge late in a training; rates can fall linearly."""

    final_rate: float = Field(
        1.0, gt=0, le=1, description="share of both learning rates that is left in the end; they fall linearly to it"
    )

    def fade(self, round_: int) -> float:
        """The share of the rates that is left in this round."""
        return 1 - (1 - self.final_rate) * round_ / self.rounds


# What ZOO-VFL, its relatives and CZOFO can be told, and what they let out.

_LABEL_UNITS = frozenset({Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE})


class SynZooSettings(AggregationSettings, UplinkSettings, ZoSettings):
    """Settings of synchronous ZOO-VFL; μ = 1e-3 is the paper's."""

    aggregation: Literal["concat", "sum"] = Field(
        "concat", description="concatenated embeddings under a server model, or summed logits without one"
    )
    smoothing: float = Field(1e-3, gt=0, description="μ, the step of the finite difference")
    direction: Literal["sphere", "gaussian"] = Field(
        "sphere", description="uniform on the unit sphere with φ(d) = d, or N(0, I) with φ(d) = 1"
    )


class ZooSettings(AsyncSettings, SynZooSettings):
    """Settings of ZOO-VFL and VFL-Cascaded."""


class CzofoSettings(AsyncSettings, SynZooSettings):
    """Settings of VFL-CZOFO; n = 5 is that of the DPZV paper."""

    perturbations: int = Field(5, ge=1, le=100_000, description="n, perturbed embeddings a record and round")


def no_claims(settings: UplinkSettings, schedule: Schedule) -> tuple[Claim, ...]:
    """None with an ε; see above."""
    return ()


def loss_claims(settings: UplinkSettings, schedule: Schedule) -> tuple[SuccessClaim, ...]:
    """Theorem V.1 with the figures of Table I: direct label inference from losses, on MNIST's ten classes."""
    statement = "losses in place of gradients defend against existing label inference: direct inference is right in "
    found = (
        ("device", 0.117, "11.7 ± 0.07 % of its guesses for a curious client"),
        ("eavesdropper", 0.1, "10.0 ± 0.1 % of its guesses for an eavesdropper"),
    )
    return tuple(
        SuccessClaim(
            key=f"losses-{view}",
            source="vfl-cascaded",
            where="Theorem V.1, Table I",
            statement=statement + figure,
            unit=Unit.LABEL,
            adversary=Adversary.parse(view),
            attack="label_zo_query",
            rate=rate,
            classes=10,
        )
        for view, rate, figure in found
    )


def pair_kind(settings: SynZooSettings) -> str:
    """What a device's two outputs are called on the wire."""
    return "logit-pair" if settings.aggregation == "sum" else "embedding-pair"


def zoo_releases(settings: SynZooSettings, schedule: Schedule, *, down: str) -> tuple[Release, ...]:
    """Two embeddings of each record up, the batch's mean losses (or their difference) down, and the trained models.

    Each of the two is clipped and noised for itself, so that together they move by √2 times as much as one. Losses
    read features through the uplinks alone, and models, the devices' own too, move by losses alone: where the uplinks
    are noised, both are post-processing of them as far as features go.
    """
    noised = settings.noise_std > 0
    pairs = tuple(
        replace(
            one,
            sensitivity={unit: math.sqrt(2) * bound for unit, bound in one.sensitivity.items()},
            seen_by=one.seen_by | {"model"} if noised else one.seen_by,
            leak=None,
        )
        for one in uplink_releases(settings, schedule, kind=pair_kind(settings), sent=schedule.active)
    )
    units = _LABEL_UNITS if noised else frozenset(Unit)
    return *pairs, *_losses_and_models(schedule, down, "mean losses of the batch", units, units)


def czofo_releases(settings: CzofoSettings, schedule: Schedule) -> tuple[Release, ...]:
    """Embeddings and their perturbations up, per-record loss differences down, and the trained models.

    The perturbations are added to the embedding that leaves, noise included: they tell nothing more. Back-propagation
    reads raw features, so a device's model carries a record without noise into the rows of all later batches.
    """
    kind = "logits" if settings.aggregation == "sum" else "embeddings"
    ups = uplink_releases(settings, schedule, kind=kind, sent=schedule.active)
    read = _LABEL_UNITS if settings.noise_std > 0 else frozenset(Unit)
    what = "loss differences of each record"
    return *ups, *_losses_and_models(schedule, "loss-differences", what, read, frozenset(Unit))


def _losses_and_models(
    schedule: Schedule, kind: str, what: str, read: frozenset[Unit], trained: frozenset[Unit]
) -> tuple[Release, Release]:
    every, last = np.ones(schedule.rounds, dtype=np.bool_), np.arange(schedule.rounds) == schedule.rounds - 1
    down = NoNoise(depends_on=read).describe(kind=kind, what=f"{what}, server to device", rounds=every, seen_by=DEVICES)
    model = NoNoise(depends_on=trained).describe(
        kind="models", what="the trained models, moved by exact losses", rounds=last, seen_by=frozenset({"model"})
    )
    return down, model


# What zeroth-order engines share: models, the server's table of last embeddings, server steps and device steps.


class ZoEngine(Engine):
    """One bottom model a device and a top model, trained from losses.

    The server of an asynchronous engine keeps each device's last embedding of each record. Of the devices that are not
    active it reads old ones; a record that a device never sent is a row of zeros.
    """

    server_noise: NoiseSource | None = None
    server_mechanism: Mechanism | None = None
    directions: Directions | None = None

    @classmethod
    def state_bytes(cls, settings: Any, data: VerticalData) -> int:
        width = max(embedding_width(settings, data), data.classes)
        table = 4 * data.records * data.devices * width if cls.asynchronous else 0
        return super().state_bytes(settings, data) + int(table)

    def setup(self) -> None:
        devices, classes = self.data.devices, self.data.classes
        self.sums = getattr(self.settings, "aggregation", "concat") == "sum"
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
        """What the server has in hand, given the rows of all embeddings."""
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
            directions=self.directions,
            noise=self.server_noise,
            mechanism=self.server_mechanism,
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


# The device of ZOO-VFL and its relatives: two embeddings of a batch up, a one-sided step along its direction.


class OneSidedEngine(ZoEngine):
    """h(w) and h(w + μu) up; w -= η φ(d)/μ [f(w + μu) - f(w)] u (vfl-cascaded eq. 3). Subclasses say how losses arise.

    u is one direction a round and device, over all of its parameters, uniform on the unit sphere with φ(d) = d or
    standard normal with φ(d) = 1: the same step up to scale.
    """

    settings: SynZooSettings
    mechanisms = staticmethod(uplink_mechanisms)
    claims = staticmethod(no_claims)
    success_claims = staticmethod(loss_claims)

    def setup(self) -> None:
        super().setup()
        s, models = self.settings, [*self.bank.models, self.top]
        self.directions = Directions(self.stream("directions"), models, self.schedule.turns, law=s.direction)
        self.mechanism = self.mechanisms(s, self.schedule)["embeddings"]
        self.noise = NoiseSource(self.stream("noise"), secure=s.secure_noise)
        self._direction: dict[int, Direction] = {}

    @torch.no_grad()
    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        assert self.directions is not None
        self._direction[m] = self.directions.at(round_, m)
        features, model, weights = self.inputs(m, records), self.bank.models[m], self.bottom_parameters[m]
        shifted = Shifted(weights, self._direction[m], self.settings.smoothing)
        either = {"embedding": weights, "perturbed": shifted}
        pair = {name: self.mechanism.noiseless(model.apply(w, features)) for name, w in either.items()}
        return let_out(self, pair_kind(self.settings), round_, m, records, pair)

    def step_device(self, round_: int, m: int, difference: Tensor) -> None:
        """Eq. (3), given f(w + μu) - f(w), (R,)."""
        direction = self._direction.pop(m)
        self.move(round_, m, direction, difference * (direction.factor / self.settings.smoothing))
