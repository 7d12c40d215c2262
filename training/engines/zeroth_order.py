"""What zeroth-order engines share: models, the server's table of last embeddings, device and server steps.

Of the server's update rules, sgd, zo and zo-one-sided are as published; joint, dp-sgd and dp-zo have a guarantee.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import Field

from vflpriv.common.lazy import torch
from vflpriv.core.engine import Capabilities, Contributions
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import DOWNLINK_READERS
from vflpriv.training.engine import Engine
from vflpriv.training.held import table_of_outputs
from vflpriv.training.mechanisms.base import Mechanism, NoNoise, ReleasePoint, ScalarMean, VectorMean
from vflpriv.training.model_factory import server_model
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.base import Model, descend, first_replicas, initialise, loss_gradient
from vflpriv.training.models.finite_differences import (
    Direction,
    Directions,
    Nearby,
    Shift,
    Velocity,
    move_along,
    nearby,
)
from vflpriv.training.models.heads import Sum
from vflpriv.training.settings import TopSettings

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "SERVER_UPDATES",
    "Losses",
    "ServerSettings",
    "ServerStep",
    "ServerUpdate",
    "StepSettings",
    "ZoEngine",
    "ZoSettings",
    "losses_and_models",
    "server_mechanism",
]


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

    def setup(self) -> None:
        devices, classes = self.data.devices, self.data.classes
        self.sums = self.settings.aggregation_rule == "sum"
        self.width = classes if self.sums else self.embedding
        self.top: Model = Sum(devices * classes, classes) if self.sums else server_model(self.settings, self.data)
        init = self.stream("init")
        self.bank = Bank(self.device_models(self.width, activate=not self.sums), init)
        self.bottom_parameters = self.bank.parameters
        self.top_parameters = initialise(self.top, init, devices)
        self._velocity: defaultdict[int, Velocity] = defaultdict(Velocity)
        self._server_momentum = self.settings.top_momentum
        if self.asynchronous:
            count = len(self.replicas)
            self.table = table_of_outputs(self.data.records, count, devices * self.width, self.torch_device)

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
        by_record, columns = embedding.transpose(0, 1), self.columns(m)
        if not embedding.is_contiguous():
            # Narrow embeddings lie records last in memory: as one matrix they are turned several times faster.
            by_record = embedding.transpose(1, 2).flatten(0, 1).t().contiguous().view(by_record.shape)
        rows = self.table.new_empty(*embedding.shape[:2], self.table.shape[2])
        # Read first: what is written then lies in the cache.
        torch.index_select(self.table, 0, records, out=rows.transpose(0, 1))
        self.table[:, :, columns].index_copy_(0, records, by_record)
        rows.transpose(0, 1)[:, :, columns] = by_record
        return rows

    def server_step(self, round_: int, records: Tensor, rows: Tensor) -> ServerStep:
        """The inputs of the server's step, given the rows of all embeddings."""
        outputs = nearby(self.top, self.top_parameters, rows)
        return ServerStep(
            settings=self.settings,
            rate=self.settings.server_rate * self.settings.fade(round_),
            momentum=self._server_momentum,
            model=self.top,
            parameters=self.top_parameters,
            velocity=self._velocity[self.data.devices],
            rows=rows,
            outputs=outputs,
            labels=self.labels_of(records, lambda: outputs.here().transpose(1, 2)),
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
            velocity=self._velocity[m],
        )

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        embeddings = torch.cat(self.outputs_read(blocks, replicas), dim=-1)
        return self.top.apply(first_replicas(self.top_parameters, replicas), embeddings)


class StepSettings(Protocol):
    """The settings a server update reads."""

    @property
    def smoothing(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...


class ServerSettings(StepSettings, Protocol):
    """The settings of a server update that may add noise of its own."""

    @property
    def server_update(self) -> str: ...
    @property
    def server_clip(self) -> float: ...
    @property
    def server_noise_std(self) -> float: ...


def server_mechanism(settings: ServerSettings, schedule: Schedule) -> Mechanism | None:
    """The mechanism of the server's own noised step, where it has one."""
    std, clip, batch_size = settings.server_noise_std, settings.server_clip, schedule.batch_size
    largest = int(schedule.size.max(initial=0))
    if settings.server_update == "dp-zo":
        return ScalarMean(noise_std=std, clip=clip, batch_size=batch_size, largest=largest)
    if settings.server_update == "dp-sgd":
        return VectorMean(noise_std=std, clip=clip, batch_size=batch_size, largest=largest)
    return None


class Losses:
    """Cross-entropies of one evaluation, from its logits (R, classes, B), under any label."""

    def __init__(self, logits: Tensor) -> None:
        self.log_probabilities = torch.log_softmax(logits, dim=1)

    def of(self, labels: Tensor) -> Tensor:
        """(R, B) cross-entropy of each record under its label, or against its posterior (R, B, C)."""
        if labels.is_floating_point():
            return -(self.log_probabilities * labels.transpose(1, 2)).sum(1)
        return -self.log_probabilities.gather(1, labels.unsqueeze(1)).squeeze(1)

    def at(self, places: Tensor, labels: Tensor) -> Tensor:
        """(R, k, c) cross-entropy of the records at k places under each of c labels, (k, c)."""
        rows = self.log_probabilities.index_select(2, places).transpose(1, 2)
        return -rows.gather(-1, labels.expand(len(rows), -1, -1))


@dataclass(frozen=True, eq=False, kw_only=True)
class ServerStep:
    """Everything that the server's step of one round reads."""

    settings: StepSettings
    rate: float
    momentum: float
    model: Model
    parameters: dict[str, Tensor]
    velocity: Velocity
    rows: Tensor
    """(R, B, all embeddings): fresh for the active devices, stale for the others."""
    outputs: Nearby
    """The model's logits for the rows."""
    labels: Tensor
    """(R, B), or the posterior of noised ones (R, B, C): the same in all evaluations of the round."""
    batch_size: int
    round: int
    party: int
    records: Tensor
    directions: Directions | None = None
    point: ReleasePoint | None = None
    """Where the server's own step is clipped and noised, if it is."""

    @cached_property
    def direction(self) -> Direction:
        assert self.directions is not None
        return self.directions.at(self.round, self.party)

    @property
    def shift(self) -> Shift:
        """w0 + λu0."""
        return Shift(self.direction, self.settings.smoothing)

    @cached_property
    def plain(self) -> Tensor:
        """(R, B) losses at w0 of the rows as they are."""
        return Losses(self.outputs.here()).of(self.labels)

    def mean(self, values: Tensor) -> Tensor:
        """(R,) sum over the batch, divided by the nominal B."""
        return values.sum(1) / self.batch_size

    def own_differences(self) -> Tensor:
        """(R, B) the server's own finite differences, divided by 2λ as in DPZV eq. (3)."""
        plus, minus = (Losses(logits).of(self.labels) for logits in self.outputs.either_side(self.shift))
        return (plus - minus) / (2 * self.settings.smoothing)

    def slope(self, logits: Tensor) -> Tensor:
        """The gradient of the batch's mean loss by logits (R, C, B)."""
        return loss_gradient(logits.transpose(1, 2), self.labels, self.batch_size).transpose(1, 2)

    def contributions(self, values: Tensor) -> Contributions:
        """One value per record, for the release point of the server's own step."""
        return Contributions(round=self.round, party=self.party, records=self.records, values=values)

    def along(self, scalar: Tensor) -> None:
        move_along(
            self.parameters,
            self.direction,
            scalar,
            rate=self.rate,
            momentum=self.momentum,
            velocity=self.velocity,
        )

    def against(self, gradient: Mapping[str, Tensor]) -> None:
        descend(
            self.parameters,
            gradient,
            rate=self.rate,
            momentum=self.momentum,
            velocity=self.velocity.buffers,
            weight_decay=self.settings.weight_decay,
        )


class ServerUpdate:
    """A rule: how w0 moves in the device's two evaluations, and afterwards; `delta` is what was released."""

    def shift(self, step: ServerStep) -> Shift | None:
        return None

    def apply(self, step: ServerStep, delta: Tensor | None = None) -> None:
        raise TypeError(f"Expected {type(self).__name__} to define apply().")


class Sgd(ServerUpdate):
    """Plain first-order step on the labels (published, option ii): w0 then carries them into every later release."""

    def apply(self, step: ServerStep, delta: Tensor | None = None) -> None:
        step.against(step.outputs.gradient(step.slope))


class Zo(ServerUpdate):
    """Plain zeroth-order step on the labels (published, option i): the same leak."""

    def apply(self, step: ServerStep, delta: Tensor | None = None) -> None:
        step.along(step.mean(step.own_differences()))


class ZoOneSided(ServerUpdate):
    """w0 -= η φ(d)/μ [f(w0 + μu0) - f(w0)] u0 (VFL-Cascaded eq. 2 for the server; Algorithm 2, lines 9 and 10)."""

    def apply(self, step: ServerStep, delta: Tensor | None = None) -> None:
        mu = step.settings.smoothing
        ahead = Losses(step.outputs.ahead(step.shift)).of(step.labels)
        step.along(step.mean(ahead - step.plain) * (step.direction.factor / mu))


class Joint(ServerUpdate):
    """w0 is shifted by ±λu0 in the device's own two evaluations, and moves along u0 by the released scalar.

    Nothing that is ever read later has seen a label except through that scalar: post-processing, for every view.
    """

    def shift(self, step: ServerStep) -> Shift | None:
        return step.shift

    def apply(self, step: ServerStep, delta: Tensor | None = None) -> None:
        assert delta is not None
        step.along(delta)


class DpZo(ServerUpdate):
    """The zeroth-order step with a clip and noise of its own."""

    def apply(self, step: ServerStep, delta: Tensor | None = None) -> None:
        assert step.point is not None
        step.along(step.point.scalar(step.contributions(step.own_differences())))


class DpSgd(ServerUpdate):
    """The first-order step with per-record clipping and noise."""

    def apply(self, step: ServerStep, delta: Tensor | None = None) -> None:
        gradients = self._per_record(step)
        flat = torch.cat([value.flatten(2) for value in gradients.values()], dim=-1)
        assert step.point is not None
        released = step.point.vector(step.contributions(flat), flat.shape[-1])
        parts = released.split([math.prod(value.shape[2:]) for value in gradients.values()], dim=-1)
        step.against({n: p.unflatten(1, g.shape[2:]) for (n, g), p in zip(gradients.items(), parts, strict=True)})

    @staticmethod
    def _per_record(step: ServerStep) -> dict[str, Tensor]:
        """(R, B, *shape) gradients: each record gets a copy of the parameters, as if it were a replica of its own."""
        rows, count = step.rows, step.labels.shape[1]
        with torch.enable_grad():
            leaves = {n: v.repeat_interleave(count, 0).requires_grad_() for n, v in step.parameters.items()}
            logits = step.model.apply(leaves, rows.flatten(0, 1).unsqueeze(1)).squeeze(1)
            loss = torch.nn.functional.cross_entropy(logits, step.labels.flatten(0, 1), reduction="sum")
            gradients = torch.autograd.grad(loss, list(leaves.values()))
        return {n: g.unflatten(0, (len(rows), count)) for n, g in zip(leaves, gradients, strict=True)}


SERVER_UPDATES: Mapping[str, ServerUpdate] = {
    "sgd": Sgd(),
    "zo": Zo(),
    "zo-one-sided": ZoOneSided(),
    "joint": Joint(),
    "dp-sgd": DpSgd(),
    "dp-zo": DpZo(),
}


def losses_and_models(
    schedule: Schedule, kind: str, what: str, read: frozenset[Unit], trained: frozenset[Unit]
) -> tuple[Release, Release]:
    """The exact losses that devices are sent, and the models that they train.

    `read` are the units that the losses depend on, `trained` those that the models depend on.
    """
    down = NoNoise(depends_on=read).describe(
        kind=kind, what=f"{what}, server to device", rounds=schedule.every_round, seen_by=DOWNLINK_READERS
    )
    model = NoNoise(depends_on=trained).describe_models("exact losses", schedule)
    return down, model
