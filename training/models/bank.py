"""The devices' bottom models as one bank: devices whose models have one shape are computed in one batched call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch
from vflpriv.core.data import VerticalData
from vflpriv.core.law import Draws
from vflpriv.training.models.base import Model, Parameters, first_replicas, initialise
from vflpriv.training.models.layers import adjacent, join_rows
from vflpriv.training.models.passes import Pass, Sgd, Slope, start

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Bank"]


class Bank:
    """One model per device, with its parameters and momentum buffers.

    Devices whose models are the same function of their parameters form a group. Device m's `parameters[m]`, (R, *shape)
    each, are views of its group's `stacked` ones, (devices · R, *shape): a pass of the group is one pass over it, and
    steps must be in place.
    """

    def __init__(self, models: Sequence[Model], stream: Draws) -> None:
        self.members: Sequence[int] = range(len(models))
        self._velocity: list[dict[str, Tensor]] = []
        self._adopt(models, [initialise(model, stream, m) for m, model in enumerate(models)], stream.replicas)

    def _adopt(self, models: Sequence[Model], initial: Sequence[Parameters], replicas: int) -> None:
        """Form the groups, and copy the initial parameters of each device into them."""
        self.models, self.replicas = list(models), replicas
        functions = [(type(model), model.key, *model.shapes.items()) for model in self.models]
        self.groups = [[m for m, own in enumerate(functions) if own == f] for f in dict.fromkeys(functions)]
        self.stacked = [
            {name: models[group[0]].stored(torch.cat([initial[m][name] for m in group])) for name in initial[group[0]]}
            for group in self.groups
        ]
        self.parameters: list[dict[str, Tensor]] = self._by_device(self.stacked)

    def _by_device(self, stacked: Sequence[Parameters]) -> list[dict[str, Tensor]]:
        """Each device's part of tensors that are stacked by group, as views."""
        by_device: list[dict[str, Tensor]] = [{} for _ in self.models]
        for group, values in zip(self.groups, stacked, strict=True):
            for place, m in enumerate(group):
                rows = slice(place * self.replicas, (place + 1) * self.replicas)
                by_device[m] = {name: value[rows] for name, value in values.items()}
        return by_device

    def part(self, members: Sequence[int]) -> Bank:
        """The bank of these devices alone, in this order; `descend` on it steps this bank's parameters.

        It works on a copy of their parameters as they are now, and of their momentum buffers when they are first
        asked for. Whoever steps it in another way than by `descend` calls `write_back` afterwards.
        """
        return self if list(members) == list(self.members) else _Part(self, members)

    def inputs(self, data: VerticalData, records: Tensor) -> list[Tensor]:
        """The features of these records, flat: (devices, R, B, n) of each group, expanded where replicas share them."""
        return [self._rows(data, [self.members[m] for m in group], records) for group in self.groups]

    def _rows(self, data: VerticalData, members: Sequence[int], records: Tensor) -> Tensor:
        """(devices, R, B, n) of one group."""
        first = data.blocks[members[0]]
        if any(data.differs(m) for m in members) or len(members) == 1:
            features = [data.features(m, records) for m in members]
            return self._stack([x.flatten(x.dim() - first.dim() + 1) for x in features])
        table, width = adjacent([data.blocks[m].flatten(1) for m in members], 1), first[0].numel()
        if table is not None:
            rows = table.index_select(0, records).reshape(len(records), len(members), width).transpose(0, 1)
        else:
            rows = first.new_empty(len(members), len(records), width)
            for row, m in zip(rows, members, strict=True):
                torch.index_select(data.blocks[m].flatten(1), 0, records, out=row)
        return rows.unsqueeze(1).expand(-1, self.replicas, -1, -1)

    def _stack(self, inputs: Sequence[Tensor]) -> Tensor:
        """(devices, R, B, n) from one (R, B, n), or (B, n) that replicas share, per device."""
        # One product per replica: as columns of one wide product equal replicas would differ in their last bits.
        rows = [x if x.dim() == 3 else x.expand(self.replicas, *x.shape) for x in inputs]
        return rows[0].unsqueeze(0) if len(rows) == 1 else torch.stack(rows)

    def outputs(self, inputs: Sequence[Tensor], parameters: Sequence[Parameters] | None = None) -> list[Tensor]:
        """(devices · R, B, …) outputs of each group, with the stacked parameters or others that are stacked alike."""
        groups = zip(self.groups, parameters or self.stacked, inputs, strict=True)
        return [self.models[group[0]].apply(stacked, batch.flatten(0, 1)) for group, stacked, batch in groups]

    def split(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """(R, B, …) for each device, as views, from (devices · R, B, …) for each group."""
        by_device: list[Tensor] = [torch.empty(0)] * len(self.models)
        for group, stacked in zip(self.groups, outputs, strict=True):
            for m, own in zip(group, stacked.split(self.replicas), strict=True):
                by_device[m] = own
        return by_device

    def join(self, values: Sequence[Tensor]) -> list[Tensor]:
        """The inverse of `split`; a group of several devices is copied."""
        return [
            join_rows([values[m] for m in group], 0) if len(group) > 1 else values[group[0]] for group in self.groups
        ]

    def start(self, inputs: Sequence[Tensor], extra: Sequence[Parameters] | None = None) -> list[Pass]:
        """A pass of each group, that `descend` goes back through; `extra` is what models read beside parameters."""
        groups = zip(self.groups, self.stacked, inputs, extra or [{}] * len(self.groups), strict=True)
        return [start(self.models[group[0]], stacked, batch, own) for group, stacked, batch, own in groups]

    def descend(self, passes: Sequence[Pass], slopes: Sequence[Slope], sgd: Sgd, *, steps: int = 1) -> None:
        """Gradient steps of every device, in place, given the objective's slope in the outputs of each group."""
        for own, slope, velocity in zip(passes, slopes, self.velocity(sgd.momentum), strict=True):
            own.descend(slope, velocity, sgd, steps=steps)

    def velocity(self, momentum: float) -> list[dict[str, Tensor]]:
        """The momentum buffers, stacked by group and zero before the first step; empty without momentum."""
        if not momentum:
            return [{} for _ in self.groups]
        if not self._velocity:
            self._velocity = [{n: torch.zeros_like(v) for n, v in stacked.items()} for stacked in self.stacked]
        return self._velocity

    def write_back(self) -> None:
        """Bring the bank that this is a part of to this state; a whole bank has nothing to write."""

    def reset_velocity(self) -> None:
        """Set all momentum buffers to zero."""
        for velocity in self._velocity:
            for value in velocity.values():
                value.zero_()

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> list[Tensor]:
        """(replicas, B, …) outputs of the first replicas for each device's whole block (B, …)."""
        return [
            model.apply(first_replicas(parameters, replicas), block.flatten(1))
            for model, parameters, block in zip(self.models, self.parameters, blocks, strict=True)
        ]


class _Part(Bank):
    """Some devices of a bank, with a copy of their parameters; `descend` steps it, and writes it back to the whole."""

    def __init__(self, whole: Bank, members: Sequence[int]) -> None:
        self.whole, self.members = whole, list(members)
        self._places = [list(whole.members).index(m) for m in members]
        places = self._places
        self._velocity = []
        self._adopt([whole.models[p] for p in places], [whole.parameters[p] for p in places], whole.replicas)

    def descend(self, passes: Sequence[Pass], slopes: Sequence[Slope], sgd: Sgd, *, steps: int = 1) -> None:
        super().descend(passes, slopes, sgd, steps=steps)
        self.write_back()

    def velocity(self, momentum: float) -> list[dict[str, Tensor]]:
        known = bool(self._velocity)
        own = super().velocity(momentum)
        if momentum and not known:
            whole = self.whole._by_device(self.whole.velocity(momentum))
            for place, buffers in zip(self._places, self._by_device(own), strict=True):
                _copy(whole[place], buffers)
        return own

    def write_back(self) -> None:
        for place, own in zip(self._places, self.parameters, strict=True):
            _copy(own, self.whole.parameters[place])
        if self._velocity:
            whole = self.whole._by_device(self.whole._velocity)
            for place, buffers in zip(self._places, self._by_device(self._velocity), strict=True):
                _copy(buffers, whole[place])


def _copy(source: Parameters, target: Parameters) -> None:
    for name, value in source.items():
        target[name].copy_(value)
