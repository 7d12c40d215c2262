"""Split learning: embeddings up, exact gradients down, first-order everywhere (vimadmm.txt, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vflpriv.registry import register
from vflpriv.training._bank import Bank
from vflpriv.training._base import Engine, Payload
from vflpriv.training._models import Mlp, Parameters, descend, first_replicas, initialise
from vflpriv.training._noise import NoiseSource
from vflpriv.training._split_ledger import SplitSettings, releases
from vflpriv.training._uplinks import client_claims, uplink_mechanisms

__all__ = ["Split"]


@register("engine")
class Split(Engine):
    """Synchronous: all devices send, the server updates its model, then sends each the gradient of its embeddings.

    With `aggregation = "sum"` the devices' outputs are logits, summed; there is no server model.
    """

    name = "split"
    summary = "first-order, synchronous; exact per-record gradients on the downlink"
    source = "vimadmm.txt Alg. 2"
    settings_type = SplitSettings
    asynchronous = False
    settings: SplitSettings

    mechanisms = staticmethod(uplink_mechanisms)
    releases = staticmethod(releases)
    claims = staticmethod(client_claims)

    def setup(self) -> None:
        s, devices, classes = self.settings, self.data.devices, self.data.classes
        self.sums = s.aggregation == "sum"
        output = classes if self.sums else s.embedding
        inputs = [block.flatten(1).shape[1] for block in self.data.blocks]
        bottoms = [Mlp([n, *s.hidden, output], activate=not self.sums) for n in inputs]
        self.top = Mlp([devices * output, *s.top_hidden, classes], activate=False)
        init = self.stream("init")
        self.bank = Bank(bottoms, init)
        self.top_parameters = {} if self.sums else initialise(self.top, init, devices)
        self._velocity: dict[str, Tensor] = {}
        self.mechanism = self.mechanisms(s, self.schedule)["embeddings"]
        self.noise = NoiseSource(self.stream("noise"), secure=s.secure_noise)
        self._leaves: list[dict[str, Tensor]] = []
        self._outputs: list[Tensor] = []

    def uplinks(self, round_: int, members: Sequence[int], records: Tensor) -> Mapping[int, Payload]:
        self._leaves = self.bank.leaves()
        raw = self.bank.forward(self.bank.inputs(self.data, records), self._leaves)
        self._outputs = [self.mechanism.noiseless(output) for output in raw]
        kind = "logits" if self.sums else "embeddings"
        return {m: Payload(kind, {"embedding": self._released(round_, m)}) for m in members}

    def _released(self, round_: int, m: int) -> Tensor:
        output = self._outputs[m].detach()
        if not self.mechanism.noise_std:
            return output
        return self.mechanism.release(output, self.noise.tensor(tuple(output.shape[1:]), round_, m))

    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        labels = self.data.labels_of(records).expand(len(self.replicas), -1)
        received = [uplinks[m]["embedding"].detach().requires_grad_() for m in sorted(uplinks)]
        if self.top_parameters:
            leaves = {name: value.detach().requires_grad_() for name, value in self.top_parameters.items()}
            loss = self._loss(leaves, [e.detach() for e in received], labels)
            gradient = torch.autograd.grad(loss, list(leaves.values()))
            descend(
                self.top_parameters,
                dict(zip(leaves, gradient, strict=True)),
                rate=self.settings.server_rate,
                momentum=self.settings.momentum,
                velocity=self._velocity,
            )  # eq. (14)
        gradients = torch.autograd.grad(self._loss(self.top_parameters, received, labels), received)  # eq. (16)
        kind = "logit-gradient" if self.sums else "embedding-gradient"
        return {m: Payload(kind, {"gradient": g}) for m, g in zip(sorted(uplinks), gradients, strict=True)}

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        gradients = [replies[m]["gradient"] for m in sorted(replies)]
        steps = self.bank.backward(self._outputs, self._leaves, gradients)
        self.bank.descend(steps, rate=self.settings.device_rate, momentum=self.settings.momentum)  # eq. (17)

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        return self._logits(first_replicas(self.top_parameters, replicas), self.bank.predict(blocks, replicas))

    def _logits(self, parameters: Parameters, embeddings: Sequence[Tensor]) -> Tensor:
        if self.sums:
            return torch.stack(list(embeddings)).sum(0)
        return self.top.apply(parameters, torch.cat(list(embeddings), dim=-1))

    def _loss(self, parameters: Parameters, embeddings: Sequence[Tensor], labels: Tensor) -> Tensor:
        """The batch's mean loss, summed over replicas: they share nothing, so their gradients separate."""
        logits = self._logits(parameters, embeddings).transpose(1, 2)
        losses = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        return losses / self.schedule.batch_size
