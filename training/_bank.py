"""The devices' bottom models as one bank: where they share a shape, one batched computation serves all devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vflpriv.data import VerticalData
from vflpriv.random import Stream
from vflpriv.training._models import Model, Parameters, descend, first_replicas, initialise

__all__ = ["Bank"]


class Bank:
    """One model a device. `parameters[m]` are device m's, (R, *shape); stepping in place keeps them valid.

    Devices whose models have the same shapes form a group: their parameters are stacked, (devices · R, …), and a
    forward or backward pass of the whole group is one pass over that axis.
    """

    def __init__(self, models: Sequence[Model], stream: Stream) -> None:
        self.models = list(models)
        self.replicas = len(stream.keys)
        first = [initialise(model, stream, m) for m, model in enumerate(self.models)]
        shapes = [tuple(model.shapes.items()) for model in self.models]
        self.groups = [[m for m, s in enumerate(shapes) if s == shape] for shape in dict.fromkeys(shapes)]
        self.stacked = [
            {name: torch.cat([first[m][name] for m in group]) for name in first[group[0]]} for group in self.groups
        ]
        self.parameters: list[dict[str, Tensor]] = [{} for _ in self.models]
        self._velocity: list[dict[str, Tensor]] = [{} for _ in self.groups]
        for group, stacked in zip(self.groups, self.stacked, strict=True):
            for place, m in enumerate(group):
                rows = slice(place * self.replicas, (place + 1) * self.replicas)
                self.parameters[m] = {name: value[rows] for name, value in stacked.items()}

    def inputs(self, data: VerticalData, records: Tensor) -> list[Tensor]:
        """Each device's rows, flat, of these records: (B, …), or (R, B, …) where replicas differ."""
        found = [data.features(m, records) for m in range(data.devices)]
        return [x.flatten(x.dim() - data.blocks[m].dim() + 1) for m, x in enumerate(found)]

    def forward(self, inputs: Sequence[Tensor], parameters: Sequence[Parameters] | None = None) -> list[Tensor]:
        """(R, B, …) outputs of all devices; `parameters` are the groups' stacked ones, or others in their place."""
        outputs: list[Tensor] = [torch.empty(0)] * len(self.models)
        for group, stacked in zip(self.groups, parameters or self.stacked, strict=True):
            batch = self._joined([inputs[m] for m in group])
            result = self.models[group[0]].apply(stacked, batch)
            for m, part in zip(group, result.split(self.replicas), strict=True):
                outputs[m] = part
        return outputs

    def leaves(self) -> list[dict[str, Tensor]]:
        """Copies of the stacked parameters that autograd can differentiate by."""
        return [{name: value.detach().requires_grad_() for name, value in stacked.items()} for stacked in self.stacked]

    def backward(
        self, outputs: Sequence[Tensor], leaves: Sequence[Parameters], gradients: Sequence[Tensor]
    ) -> list[dict[str, Tensor]]:
        """Gradients of the leaves, given those of all devices' outputs."""
        names = [(g, name) for g, group in enumerate(leaves) for name in group]
        flat = torch.autograd.grad(list(outputs), [leaves[g][name] for g, name in names], list(gradients))
        found: list[dict[str, Tensor]] = [{} for _ in leaves]
        for (g, name), value in zip(names, flat, strict=True):
            found[g][name] = value
        return found

    def descend(self, gradients: Sequence[Mapping[str, Tensor]], *, rate: float, momentum: float) -> None:
        """One step of every device."""
        for stacked, gradient, velocity in zip(self.stacked, gradients, self._velocity, strict=True):
            descend(stacked, gradient, rate=rate, momentum=momentum, velocity=velocity)

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> list[Tensor]:
        """Outputs of the first replicas for whole blocks."""
        return [
            model.apply(first_replicas(parameters, replicas), block.flatten(1))
            for model, parameters, block in zip(self.models, self.parameters, blocks, strict=True)
        ]

    def _joined(self, inputs: Sequence[Tensor]) -> Tensor:
        """(devices · R, B, …), or the one device's own input as it is."""
        if len(inputs) == 1:
            return inputs[0]
        if any(x.dim() != inputs[0].dim() for x in inputs):
            inputs = [x if x.dim() == 3 else x.expand(self.replicas, *x.shape) for x in inputs]
        if inputs[0].dim() == 3:
            return torch.cat(list(inputs))
        together = torch.stack(list(inputs))
        return together if self.replicas == 1 else together.repeat_interleave(self.replicas, 0)
