"""Split learning: embeddings up, exact gradients down, first-order everywhere (vimadmm.txt, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vflpriv.registry import register
from vflpriv.training import _split_ledger
from vflpriv.training._base import Engine, Payload
from vflpriv.training._models import Mlp, Parameters, descend, first_replicas, initialise
from vflpriv.training._noise import NoiseSource
from vflpriv.training._split_ledger import SplitSettings

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

    mechanisms = staticmethod(_split_ledger.mechanisms)
    ledger = staticmethod(_split_ledger.ledger)
    claims = staticmethod(_split_ledger.claims)

    def setup(self) -> None:
        s, devices, classes = self.settings, self.data.devices, self.data.classes
        self.sums = s.aggregation == "sum"
        output = classes if self.sums else s.embedding
        inputs = [block.flatten(1).shape[1] for block in self.data.blocks]
        self.bottoms = [Mlp([n, *s.hidden, output], activate=not self.sums) for n in inputs]
        self.top = Mlp([devices * output, *s.top_hidden, classes], activate=False)
        init = self.stream("init")
        self.bottom_parameters = [initialise(model, init, m) for m, model in enumerate(self.bottoms)]
        self.top_parameters = {} if self.sums else initialise(self.top, init, devices)
        self._velocity: dict[int, dict[str, Tensor]] = {party: {} for party in range(devices + 1)}
        self.mechanism = self.mechanisms(s, self.schedule)["embeddings"]
        self.noise = NoiseSource(self.stream("noise"), secure=s.secure_noise)
        self._pending: dict[int, tuple[dict[str, Tensor], Tensor]] = {}

    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        features = self.data.features(m, records)
        features = features.flatten(features.dim() - self.data.blocks[m].dim() + 1)
        leaves = {name: value.detach().requires_grad_() for name, value in self.bottom_parameters[m].items()}
        output = self.mechanism.noiseless(self.bottoms[m].apply(leaves, features))
        self._pending[m] = leaves, output
        released = output.detach()
        if self.mechanism.noise_std:
            released = self.mechanism.release(released, self.noise.tensor(tuple(released.shape[1:]), round_, m))
        return Payload("logits" if self.sums else "embeddings", {"embedding": released})

    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        labels = self.data.labels_of(records).expand(len(self.replicas), -1)
        received = [uplinks[m]["embedding"].detach().requires_grad_() for m in sorted(uplinks)]
        if self.top_parameters:
            leaves = {name: value.detach().requires_grad_() for name, value in self.top_parameters.items()}
            loss = self._loss(leaves, [e.detach() for e in received], labels)
            gradient = torch.autograd.grad(loss, list(leaves.values()))
            rates = {"rate": self.settings.server_rate, "momentum": self.settings.momentum}
            step = dict(zip(leaves, gradient, strict=True))
            descend(self.top_parameters, step, velocity=self._velocity[self.data.devices], **rates)  # eq. (14)
        gradients = torch.autograd.grad(self._loss(self.top_parameters, received, labels), received)  # eq. (16)
        kind = "logit-gradient" if self.sums else "embedding-gradient"
        return {m: Payload(kind, {"gradient": g}) for m, g in zip(sorted(uplinks), gradients, strict=True)}

    def update(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> None:
        leaves, output = self._pending.pop(m)
        gradient = torch.autograd.grad(output, list(leaves.values()), grad_outputs=reply["gradient"])
        descend(
            self.bottom_parameters[m],
            dict(zip(leaves, gradient, strict=True)),
            rate=self.settings.device_rate,
            momentum=self.settings.momentum,
            velocity=self._velocity[m],
        )  # eq. (17)

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        outputs = [
            model.apply(first_replicas(parameters, replicas), block.flatten(1))
            for model, parameters, block in zip(self.bottoms, self.bottom_parameters, blocks, strict=True)
        ]
        return self._logits(first_replicas(self.top_parameters, replicas), outputs)

    def _logits(self, parameters: Parameters, embeddings: Sequence[Tensor]) -> Tensor:
        if self.sums:
            return torch.stack(list(embeddings)).sum(0)
        return self.top.apply(parameters, torch.cat(list(embeddings), dim=-1))

    def _loss(self, parameters: Parameters, embeddings: Sequence[Tensor], labels: Tensor) -> Tensor:
        """The batch's mean loss, summed over replicas: they share nothing, so their gradients separate."""
        logits = self._logits(parameters, embeddings).transpose(1, 2)
        losses = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        return losses / self.schedule.batch_size
