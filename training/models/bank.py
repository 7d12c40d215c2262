"""The devices' bottom models as one bank: where they share a shape, one batched computation serves all devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vflpriv.common.random import Stream
from vflpriv.core.data import VerticalData
from vflpriv.training.models.blocks import start
from vflpriv.training.models.networks import Model, Parameters, descend, first_replicas

__all__ = ["Bank"]


class Bank:
    """One model a device. `parameters[m]` are device m's, (R, *shape); stepping in place keeps them valid.

    Devices whose models are the same function form a group: their parameters are stacked, (devices · R, …), and a
    forward or backward pass of the whole group is one pass over that axis.
    """

    def __init__(self, models: Sequence[Model], stream: Stream) -> None:
        self.members: Sequence[int] = range(len(models))
        self._velocity: list[dict[str, Tensor]] = []
        self._adopt(models, [start(model, stream, m) for m, model in enumerate(models)], len(stream.keys))

    def _adopt(self, models: Sequence[Model], first: Sequence[Parameters], replicas: int) -> None:
        self.models, self.replicas = list(models), replicas
        kinds = [(type(model), getattr(model, "key", None), *model.shapes.items()) for model in self.models]
        self.groups = [[m for m, k in enumerate(kinds) if k == kind] for kind in dict.fromkeys(kinds)]
        self.stacked = [
            {name: torch.cat([first[m][name] for m in group]) for name in first[group[0]]} for group in self.groups
        ]
        self.parameters: list[dict[str, Tensor]] = self._by_device(self.stacked)

    def _by_device(self, stacked: Sequence[Parameters]) -> list[dict[str, Tensor]]:
        """Each device's rows of what is stacked, as views."""
        found: list[dict[str, Tensor]] = [{} for _ in self.models]
        for group, values in zip(self.groups, stacked, strict=True):
            for place, m in enumerate(group):
                rows = slice(place * self.replicas, (place + 1) * self.replicas)
                found[m] = {name: value[rows] for name, value in values.items()}
        return found

    def part(self, members: Sequence[int]) -> Bank:
        """The bank of these devices alone, in this order; its steps move this bank's parameters."""
        return self if list(members) == list(self.members) else _Part(self, members)

    def inputs(self, data: VerticalData, records: Tensor) -> list[Tensor]:
        """Each group's rows of these records, flat and joined: what `forward` takes."""
        return [self._rows(data, [self.members[m] for m in group], records) for group in self.groups]

    def _rows(self, data: VerticalData, members: Sequence[int], records: Tensor) -> Tensor:
        """(devices · R, B, …) of one group."""
        first = data.blocks[members[0]]
        if any(data.differs(m) for m in members) or len(members) == 1:
            found = [data.features(m, records) for m in members]
            return self._joined([x.flatten(x.dim() - first.dim() + 1) for x in found])
        together = first.new_empty(len(members), len(records), first[0].numel())
        for row, m in zip(together, members, strict=True):
            torch.index_select(data.blocks[m].flatten(1), 0, records, out=row)
        return together if self.replicas == 1 else together.repeat_interleave(self.replicas, 0)

    def forward(self, inputs: Sequence[Tensor], parameters: Sequence[Parameters] | None = None) -> list[Tensor]:
        """(R, B, …) outputs of all devices; `parameters` are the groups' stacked ones, or others in their place."""
        return self.split(self.outputs(inputs, parameters))

    def outputs(self, inputs: Sequence[Tensor], parameters: Sequence[Parameters] | None = None) -> list[Tensor]:
        """(devices · R, B, …) outputs of each group."""
        groups = zip(self.groups, parameters or self.stacked, inputs, strict=True)
        return [self.models[group[0]].apply(stacked, batch) for group, stacked, batch in groups]

    def split(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """The groups' values device by device, as views."""
        found: list[Tensor] = [torch.empty(0)] * len(self.models)
        for group, result in zip(self.groups, outputs, strict=True):
            for m, part in zip(group, result.split(self.replicas), strict=True):
                found[m] = part
        return found

    def join(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Values of all devices, (R, B, …) each, group by group."""
        return [torch.cat([values[m] for m in group]) if len(group) > 1 else values[group[0]] for group in self.groups]

    def leaves(self) -> list[dict[str, Tensor]]:
        """Copies of the stacked parameters that autograd can differentiate by."""
        return [{name: value.detach().requires_grad_() for name, value in stacked.items()} for stacked in self.stacked]

    def backward(
        self, outputs: Sequence[Tensor], leaves: Sequence[Parameters], gradients: Sequence[Tensor]
    ) -> list[dict[str, Tensor]]:
        """Gradients of the leaves, given those of the outputs: both device by device, or both group by group."""
        names = [(g, name) for g, group in enumerate(leaves) for name in group]
        flat = torch.autograd.grad(list(outputs), [leaves[g][name] for g, name in names], list(gradients))
        found: list[dict[str, Tensor]] = [{} for _ in leaves]
        for (g, name), value in zip(names, flat, strict=True):
            found[g][name] = value
        return found

    def descend(
        self, gradients: Sequence[Mapping[str, Tensor]], *, rate: float, momentum: float, weight_decay: float = 0.0
    ) -> None:
        """One step of every device."""
        velocity = self.velocity(momentum)
        for stacked, gradient, own in zip(self.stacked, gradients, velocity, strict=True):
            descend(stacked, gradient, rate=rate, momentum=momentum, velocity=own, weight_decay=weight_decay)

    def velocity(self, momentum: float) -> list[dict[str, Tensor]]:
        """The groups' stacked velocities, zero before the first step; nothing is kept without momentum."""
        if not momentum:
            return [{} for _ in self.groups]
        if not self._velocity:
            self._velocity = [{n: torch.zeros_like(v) for n, v in stacked.items()} for stacked in self.stacked]
        return self._velocity

    def rest(self) -> None:
        """Set the velocities to zero."""
        for own in self._velocity:
            for value in own.values():
                value.zero_()

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> list[Tensor]:
        """Outputs of the first replicas for whole blocks."""
        return [
            model.apply(first_replicas(parameters, replicas), block.flatten(1))
            for model, parameters, block in zip(self.models, self.parameters, blocks, strict=True)
        ]

    def _joined(self, inputs: Sequence[Tensor]) -> Tensor:
        # One product a replica: as columns of one wide product equal replicas would differ in their last bits.
        rows = [x if x.dim() == 3 else x.expand(self.replicas, *x.shape) for x in inputs]
        return rows[0] if len(rows) == 1 else torch.cat(rows)


class _Part(Bank):
    """Some devices of a bank: their parameters are copied for the pass, and stepped in the whole bank's place."""

    def __init__(self, whole: Bank, members: Sequence[int]) -> None:
        self.whole, self.members = whole, list(members)
        places = [list(whole.members).index(m) for m in members]
        self._places = places
        self._adopt([whole.models[p] for p in places], [whole.parameters[p] for p in places], whole.replicas)

    def descend(
        self, gradients: Sequence[Mapping[str, Tensor]], *, rate: float, momentum: float, weight_decay: float = 0.0
    ) -> None:
        velocity = self.whole._by_device(self.whole.velocity(momentum))
        for place, gradient in zip(self._places, self._by_device(gradients), strict=True):
            descend(
                self.whole.parameters[place],
                gradient,
                rate=rate,
                momentum=momentum,
                velocity=velocity[place],
                weight_decay=weight_decay,
            )
