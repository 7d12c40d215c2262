"""Split learning: embeddings up, exact gradients down, first-order everywhere.

"Improving Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM" (Xie et al., here
VIMADMM), Algorithm 2; equation numbers are that paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.core.wire import Payload
from vflpriv.training.engine import Engine
from vflpriv.training.mechanisms.base import NoNoise
from vflpriv.training.mechanisms.downlink import DownlinkSettings, GradientGuard
from vflpriv.training.mechanisms.labels import summed_loss
from vflpriv.training.mechanisms.uplink import (
    DEVICES,
    UplinkSettings,
    client_claims,
    uplink_mechanisms,
    uplink_releases,
)
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.base import Model, Parameters, descend, first_replicas, initialise
from vflpriv.training.models.factory import server_model
from vflpriv.training.models.mlp import FusedMlp
from vflpriv.training.settings import AggregationSettings, TopSettings

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GradientSettings", "Split", "SplitSettings", "gradient_releases"]

_LABEL_UNITS = frozenset({Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE})


class SplitSettings(AggregationSettings, UplinkSettings, TopSettings):
    """Settings of split learning."""

    aggregation: Literal["concat", "sum"] = Field(
        "concat", description="concatenated embeddings under a server model, or summed logits without one"
    )


class GradientSettings(SplitSettings, DownlinkSettings):
    """Settings of split learning, with a defence of its gradients."""


@register("engine")
class Split(Engine):
    """Synchronous: all devices send, the server updates its model, then sends each the gradient of its embeddings.

    With `aggregation = "sum"` the devices' outputs are logits, summed; there is no server model.
    """

    name = "split"
    summary = "first-order, synchronous; exact per-record gradients on the downlink"
    source = "VIMADMM, Algorithm 2"
    settings_type: ClassVar[type[SplitSettings]] = GradientSettings
    asynchronous = False
    settings: SplitSettings
    top: Model

    mechanisms = staticmethod(uplink_mechanisms)
    claims = staticmethod(client_claims)

    @staticmethod
    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        """Embeddings (or logits) up, exact gradients down, and the trained models."""
        sums = settings.aggregation == "sum"
        return gradient_releases(settings, schedule, up="logits" if sums else "embeddings", logits=sums)

    def setup(self) -> None:
        s, devices = self.settings, self.data.devices
        self.sums = s.aggregation == "sum"
        output = self.data.classes if self.sums else self.embedding
        bottoms = self.device_models(output, activate=not self.sums, mlp=FusedMlp)
        self.top = server_model(s, self.data, mlp=FusedMlp)
        init = self.stream("init")
        self.bank = Bank(bottoms, init)
        self.top_parameters = {} if self.sums else initialise(self.top, init, devices)
        self._velocity: dict[str, Tensor] = {}
        kind = "logits" if self.sums else "embeddings"
        self.uplink_point = self.release_point(kind, self.mechanisms(s, self.schedule)["embeddings"])
        self._guard = GradientGuard.of(s, self.stream("server-noise"), secure=s.secure_noise)
        self._inputs: list[Tensor] = []
        self._leaves: list[dict[str, Tensor]] = []
        self._outputs: list[Tensor] = []

    def uplinks(self, round_: int, members: Sequence[int], records: Tensor) -> Mapping[int, Payload]:
        self._inputs = self.bank.inputs(self.data, records)
        self._forward()
        outputs, point = self.bank.split([output.detach() for output in self._outputs]), self.uplink_point
        return {m: Payload(point.kind, point.rows(round_, m, records, {"embedding": outputs[m]})) for m in members}

    def _forward(self) -> None:
        """One pass of all devices over this round's rows, clipped as their messages are."""
        self._leaves = self.bank.leaves()
        clip = self.uplink_point.mechanism.noiseless
        self._outputs = [clip(outputs) for outputs in self.bank.outputs(self._inputs, self._leaves)]

    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        received = [uplinks[m]["embedding"].detach() for m in sorted(uplinks)]
        rows = torch.stack(received).sum(0) if self.sums else torch.cat(received, dim=-1)
        if self.top_parameters:
            self._learn(rows, records)
        rows.requires_grad_()
        (gradient,) = torch.autograd.grad(self._loss(self.top_parameters, rows, records), [rows])  # eq. (16)
        # Every device's logits have the gradient of their sum.
        shares = [gradient] if self.sums else gradient.split(self.embedding, dim=-1)
        if self._guard is not None:
            shares = [self._guard.protect(share, round_, k) for k, share in enumerate(shares)]
        parts = list(shares) * (len(received) if self.sums else 1)
        kind = "logit-gradient" if self.sums else "embedding-gradient"
        return {m: Payload(kind, {"gradient": g}) for m, g in zip(sorted(uplinks), parts, strict=True)}

    def _learn(self, rows: Tensor, records: Tensor) -> None:
        """The server's own step, eq. (14)."""
        s = self.settings
        leaves = {name: value.detach().requires_grad_() for name, value in self.top_parameters.items()}
        gradient = torch.autograd.grad(self._loss(leaves, rows, records), list(leaves.values()))
        descend(
            self.top_parameters,
            dict(zip(leaves, gradient, strict=True)),
            rate=s.server_rate,
            momentum=s.top_momentum,
            velocity=self._velocity,
            weight_decay=s.weight_decay,
        )

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        self._step(self.bank.join([replies[m]["gradient"] for m in sorted(replies)]))

    def _step(self, gradients: Sequence[Tensor]) -> None:
        """One step of every device down these gradients of its outputs."""
        steps, s = self.bank.backward(self._outputs, self._leaves, gradients), self.settings
        self.bank.descend(steps, rate=s.device_rate, momentum=s.momentum, weight_decay=s.weight_decay)  # eq. (17)

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        embeddings = self.bank.predict(blocks, replicas)
        rows = torch.stack(embeddings).sum(0) if self.sums else torch.cat(embeddings, dim=-1)
        return self._logits(first_replicas(self.top_parameters, replicas), rows)

    def _logits(self, parameters: Parameters, rows: Tensor) -> Tensor:
        """Of the devices' summed logits, or of their embeddings next to each other."""
        return rows if self.sums else self.top.apply(parameters, rows)

    def _loss(self, parameters: Parameters, rows: Tensor, records: Tensor) -> Tensor:
        """The batch's mean loss, summed over replicas: they share nothing, so their gradients separate."""
        logits = self._logits(parameters, rows)
        return summed_loss(logits, self.labels_of(records, lambda: logits)) / self.schedule.batch_size


def gradient_releases(
    settings: UplinkSettings,
    schedule: Schedule,
    *,
    up: str,
    logits: bool,
    sent: NDArray[np.bool_] | None = None,
) -> tuple[Release, ...]:
    """The releases of an engine with embeddings up and exact gradients down; `sent` says who sends, if not `active`.

    A gradient reads the other devices' features through their uplinks alone: where those are noised it is
    post-processing of them, otherwise it is exact in the features too. A device's own model read its raw features.
    """
    last = np.arange(schedule.rounds) == schedule.rounds - 1
    uplinks = uplink_releases(settings, schedule, kind=up, sent=schedule.active if sent is None else sent)
    down = NoNoise(depends_on=_LABEL_UNITS if settings.noise_std else frozenset(Unit)).describe(
        kind="logit-gradient" if logits else "embedding-gradient",
        what="exact per-record gradients, server to device",
        rounds=np.ones(schedule.rounds, dtype=np.bool_),
        seen_by=DEVICES,
    )
    model = NoNoise(depends_on=frozenset(Unit)).describe(
        kind="models", what="the trained models, moved by exact gradients", rounds=last, seen_by=frozenset({"model"})
    )
    return (*uplinks, down, model)
