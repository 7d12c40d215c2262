"""Split learning: embeddings up, exact gradients down, first-order everywhere (vimadmm.txt, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from vflpriv.registry import register
from vflpriv.training._bank import Bank
from vflpriv.training._base import Engine
from vflpriv.training._blocks import start
from vflpriv.training._downlinks import DownlinkSettings, guarded
from vflpriv.training._fused import FusedMlp
from vflpriv.training._models import Parameters, descend, first_replicas
from vflpriv.training._noise import NoiseSource
from vflpriv.training._outlet import let_out
from vflpriv.training._parts import server_model
from vflpriv.training._payload import Payload
from vflpriv.training._split_ledger import SplitSettings, releases
from vflpriv.training._targets import summed_loss
from vflpriv.training._uplinks import client_claims, uplink_mechanisms

__all__ = ["GradientSettings", "Split"]


class GradientSettings(SplitSettings, DownlinkSettings):
    """Settings of split learning, a defence of its gradients included."""


@register("engine")
class Split(Engine):
    """Synchronous: all devices send, the server updates its model, then sends each the gradient of its embeddings.

    With `aggregation = "sum"` the devices' outputs are logits, summed; there is no server model.
    """

    name = "split"
    summary = "first-order, synchronous; exact per-record gradients on the downlink"
    source = "vimadmm.txt Alg. 2"
    settings_type: ClassVar[type[SplitSettings]] = GradientSettings
    asynchronous = False
    settings: SplitSettings

    mechanisms = staticmethod(uplink_mechanisms)
    releases = staticmethod(releases)
    claims = staticmethod(client_claims)

    def setup(self) -> None:
        s, devices = self.settings, self.data.devices
        self.sums = s.aggregation == "sum"
        output = self.data.classes if self.sums else self.embedding
        bottoms = self.device_models(output, activate=not self.sums, mlp=FusedMlp)
        self.top = server_model(s, self.data, mlp=FusedMlp)
        init = self.stream("init")
        self.bank = Bank(bottoms, init)
        self.top_parameters = {} if self.sums else start(self.top, init, devices)
        self._velocity: dict[str, Tensor] = {}
        self.mechanism = self.mechanisms(s, self.schedule)["embeddings"]
        self.noise = NoiseSource(self.stream("noise"), secure=s.secure_noise)
        guard: object = s
        self._guard = guard if isinstance(guard, DownlinkSettings) else None
        self.server_noise = NoiseSource(self.stream("server-noise"), secure=s.secure_noise)
        self._inputs: list[Tensor] = []
        self._leaves: list[dict[str, Tensor]] = []
        self._outputs: list[Tensor] = []

    def uplinks(self, round_: int, members: Sequence[int], records: Tensor) -> Mapping[int, Payload]:
        self._inputs = self.bank.inputs(self.data, records)
        self._forward()
        kind = "logits" if self.sums else "embeddings"
        outputs = self.bank.split([output.detach() for output in self._outputs])
        return {m: let_out(self, kind, round_, m, records, {"embedding": outputs[m]}) for m in members}

    def _forward(self) -> None:
        """One pass of all devices over this round's rows, clipped as their messages are."""
        self._leaves = self.bank.leaves()
        self._outputs = [self.mechanism.noiseless(out) for out in self.bank.outputs(self._inputs, self._leaves)]

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
            shares = [guarded(self._guard, g, self.server_noise, round_, k) for k, g in enumerate(shares)]
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
