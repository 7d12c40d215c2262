"""Forward and backward passes of stacked MLPs as matrix products in memory that is reused, without autograd.

Layers are computed transposed, records along the last axis of memory: matrix products with a long last axis are a
little faster where layers are wide, and several times faster where they are narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from vflpriv.common.lazy import no_grad, torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LayersPass", "Room", "Sgd", "Slope", "adjacent", "empty_rows", "join_rows", "outputs_first"]

_CACHE = 1 << 20
"""Bytes of hidden values that stay in the cache of one core."""

Slope = Callable[[slice, int, "Tensor"], "Tensor"]
"""(models, step, outputs) → gradient of the objective by `outputs` (k, B, …), which are those of the slice `models`."""


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Gradient descent with heavy-ball momentum and ℓ2 weight decay."""

    rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0

    def apply(self, parameters: Sequence[Tensor], moves: Sequence[Tensor]) -> None:
        """Move the parameters, in place, along their gradients, to which momentum · velocity has been added already.

        With weight decay `moves` are changed: they become the velocity.
        """
        if self.weight_decay:
            torch._foreach_add_(list(moves), list(parameters), alpha=self.weight_decay)
        torch._foreach_add_(list(parameters), list(moves), alpha=-self.rate)


def empty_rows(like: Tensor, models: int, rows: int, width: int) -> Tensor:
    """Uninitialised memory (models, rows, width) whose rows lie along the last axis in memory."""
    return like.new_empty(models, width, rows).transpose(1, 2)


def outputs_first(weight: Tensor) -> Tensor:
    """The same weight (models, inputs, outputs), with the axis of its outputs before that of its inputs in memory.

    Its gradient is then computed transposed as well, and has the memory order of the weight that it is added to.
    """
    return weight.transpose(1, 2).contiguous().transpose(1, 2)


def join_rows(rows: Sequence[Tensor], dim: int) -> Tensor:
    """torch.cat of tensors (R, B, width), in the memory order of the first: records stay last in memory if they were.

    Without a copy where they already lie next to each other in memory, as views of one tensor do.
    """
    if rows[0].dim() == 3 and rows[0].stride(2) != 1:
        return _joined([own.transpose(1, 2) for own in rows], (0, 2, 1)[dim]).transpose(1, 2)
    return _joined(rows, dim)


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    whole = adjacent(parts, dim)
    return torch.cat(list(parts), dim) if whole is None else whole


def adjacent(parts: Sequence[Tensor], dim: int) -> Tensor | None:
    """torch.cat of tensors that lie next to each other in memory, as a view; None if they do not."""
    first, stride = parts[0], list(parts[0].stride())
    offsets = [int(part.storage_offset()) for part in parts]
    if first.shape[dim] == 1 and len(parts) > 1:
        stride[dim] = max(0, offsets[1] - offsets[0])
    step = first.shape[dim] * stride[dim]
    memory = first.untyped_storage()
    are_adjacent = step > 0 and all(
        part.shape == first.shape
        and part.stride() == first.stride()
        and offset == offsets[0] + i * step
        and part.untyped_storage().data_ptr() == memory.data_ptr()
        for i, (part, offset) in enumerate(zip(parts, offsets, strict=True))
    )
    if first.is_meta or not are_adjacent:
        return None
    return first.as_strided([n * len(parts) if d == dim else n for d, n in enumerate(first.shape)], stride)


class Room:
    """Memory of hidden values that is reused: a pass borrows it, and gives it back when it has gone backward."""

    def __init__(self) -> None:
        self._unused: dict[tuple[Any, ...], list[Tensor]] = {}

    def borrow(self, like: Tensor, *shape: int) -> Tensor:
        """Memory of this shape that no other pass uses until it is given back."""
        unused = self._unused.get((shape, like.dtype, like.device))
        return unused.pop() if unused else like.new_empty(shape)

    def give_back(self, tensors: Sequence[Tensor]) -> None:
        """Make borrowed memory available to later passes."""
        for tensor in tensors:
            self._unused.setdefault((tuple(tensor.shape), tensor.dtype, tensor.device), []).append(tensor)


@dataclass(kw_only=True)
class _Layers:
    """The layers of a few models, transposed: values (k, width, B), weights (k, outputs, inputs).

    ReLU follows every layer but the last, and that one too if `activate`. All tensors are views, which are made once
    for many passes.
    """

    values: list[Tensor]
    """The inputs, then the outputs of each layer."""
    weights: list[Tensor]
    biases: list[Tensor]
    activate: bool

    def forward(self) -> None:
        """Fill `values[1:]`."""
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            torch.baddbmm(bias, weight, self.values[i], out=self.values[i + 1])
            if self.has_relu(i):
                self.values[i + 1].relu_()

    def has_relu(self, layer: int) -> bool:
        return self.activate or layer + 1 < len(self.weights)


@dataclass(kw_only=True)
class _Gradients:
    """Where a backward pass through `_Layers` reads and writes, as views of a few models."""

    rows: list[Tensor]
    """(k, B, width): the inputs of each layer, not transposed."""
    weights: list[Tensor]
    """(k, inputs, outputs), not transposed."""
    ones: list[Tensor]
    """(k, 1, B)."""
    by_weight: list[Tensor]
    """(k, outputs, inputs): memory for the gradients of the weights; none of them, or of all layers."""
    by_bias: list[Tensor]
    """(k, 1, outputs)."""
    by_inputs: list[Tensor]
    """(k, inputs, B): memory for the gradient of the inputs; none, or one."""

    def backward(self, layers: _Layers, by_outputs: Tensor, by_values: Sequence[Tensor], momentum: float) -> None:
        """Propagate the gradient of the outputs (k, B, width) to all that there is memory for.

        That of `layers.values[i + 1]` is written into `by_values[i]`. `momentum` times what the memory of the
        parameters' gradients holds is added to these.
        """
        upstream = by_outputs.transpose(1, 2)
        below: list[Tensor | None] = [self.by_inputs[0] if self.by_inputs else None, *by_values[:-1]]
        for i in reversed(range(len(by_values))):
            gradient = by_values[i]
            if layers.has_relu(i):
                torch.ops.aten.threshold_backward.grad_input(upstream, layers.values[i + 1], 0, grad_input=gradient)
            else:
                gradient.copy_(upstream)
            if self.by_weight:
                torch.baddbmm(self.by_weight[i], gradient, self.rows[i], beta=momentum, out=self.by_weight[i])
                rows = gradient.transpose(1, 2)
                torch.baddbmm(self.by_bias[i], self.ones[0], rows, beta=momentum, out=self.by_bias[i])
            lower = below[i]
            if lower is not None:
                upstream = torch.bmm(self.weights[i], gradient, out=lower)


class LayersPass:
    """One forward pass of stacked MLPs, which can go backward once. Its outputs (models, B, width) are new memory.

    It works through a few models at a time, so that what a layer reads is still in the cache. Inputs are (models, B, n)
    or, where the models of a group share their rows, (groups, models of a group, B, n), expanded: these are not copied
    for every model, unless so many are computed at once that they are of several groups.
    """

    def __init__(
        self, room: Room, inputs: Tensor, values: Sequence[Tensor], flat: Sequence[Tensor], *, activate: bool
    ) -> None:
        """`values` (models, width, B) are the outputs of each layer; `flat` weight and bias of each, alternating."""
        self._room, self._inputs, self.values, self._flat, self._activate = room, inputs, values, flat, activate
        self.outputs = values[-1].transpose(1, 2)
        self._forward: tuple[list[int], list[_Layers]] = ([], [])

    @classmethod
    def start(cls, room: Room, inputs: Tensor, flat: Sequence[Tensor], *, activate: bool) -> LayersPass:
        """The forward pass."""
        models, records = len(flat[0]), inputs.shape[-2]
        *widths, last = [bias.shape[1] for bias in flat[1::2]]
        hidden = [room.borrow(inputs, models, width, records) for width in widths]
        outputs = inputs.new_empty(models, last, records)
        started = cls(room, inputs, [*hidden, outputs], flat, activate=activate)
        parts = started._parts()
        started._forward = parts, started._layers(parts)
        for layers in started._forward[1]:
            layers.forward()
        return started

    def _parts(self, *, together: bool = False) -> list[int]:
        """How many models are computed at once, part by part: as many as fit into the cache of a core.

        All of them if `together`, or on other hardware.
        """
        records, width = self._inputs.shape[-2:]
        used = 4 * max(1, records) * (width + sum(value.shape[1] for value in self.values))
        models = len(self._flat[0])
        most = max(1, models if together or not self._inputs.is_cpu else _CACHE // used)
        if self._inputs.dim() == 4 and most >= 2 * self._inputs.shape[1]:
            self._inputs = self._inputs.flatten(0, 1)
        if self._inputs.dim() == 3:
            return _sizes(models, most)
        groups, of_group = self._inputs.shape[:2]
        return _sizes(of_group, most) * groups

    def _rows(self, parts: Sequence[int]) -> list[Tensor]:
        """(k, B, n) inputs of each part."""
        if self._inputs.dim() == 3:
            return [rows for (rows,) in _cut([self._inputs], parts)]
        return [rows for group in self._inputs for rows in group.split(parts[: len(parts) // len(self._inputs)])]

    def _layers(self, parts: Sequence[int]) -> list[_Layers]:
        """Views of each part; those that went forward, if the parts are the same."""
        if parts == self._forward[0]:
            return self._forward[1]
        values = _cut(self.values, parts)
        weights = _cut([weight.transpose(1, 2) for weight in self._flat[::2]], parts)
        biases = _cut([bias.unsqueeze(2) for bias in self._flat[1::2]], parts)
        return [
            _Layers(values=[rows.transpose(1, 2), *v], weights=w, biases=b, activate=self._activate)
            for rows, v, w, b in zip(self._rows(parts), values, weights, biases, strict=True)
        ]

    def _gradients(
        self, parts: Sequence[int], gradients: Sequence[Tensor], by_inputs: Tensor | None
    ) -> list[_Gradients]:
        """Views of the operands of backward passes, and of the memory of the parameters' gradients and the inputs'."""
        models, records = len(self._flat[0]), self._inputs.shape[-2]
        hidden = _cut([value.transpose(1, 2) for value in self.values[:-1]], parts)
        cut = {
            "rows": [[rows, *values] for rows, values in zip(self._rows(parts), hidden, strict=True)],
            "weights": _cut(self._flat[::2], parts),
            "ones": _cut([self._inputs.new_ones(records).expand(models, 1, records)], parts),
            "by_weight": _cut([gradient.transpose(1, 2) for gradient in gradients[::2]], parts),
            "by_bias": _cut([gradient.unsqueeze(1) for gradient in gradients[1::2]], parts),
            "by_inputs": _cut([] if by_inputs is None else [by_inputs.transpose(1, 2)], parts),
        }
        return [_Gradients(**dict(zip(cut, part, strict=True))) for part in zip(*cut.values(), strict=True)]

    def backward(self, by_outputs: Tensor, gradients: Sequence[Tensor], by_inputs: Tensor | None = None) -> None:
        """Write the gradients of weights and biases, unless there is no memory for them, and of the inputs."""
        parts = self._parts()
        operands = self._layers(parts), self._gradients(parts, gradients, by_inputs)
        for (upstream,), layers, gradient in zip(_cut([by_outputs], parts), *operands, strict=True):
            by_values = [self._room.borrow(value, *value.shape) for value in layers.values[1:]]
            gradient.backward(layers, upstream, by_values, 0.0)
            self._room.give_back(by_values)
        self.close()

    def close(self) -> None:
        """Give the memory of hidden values back: the pass cannot go backward any more."""
        self._room.give_back(self.values[:-1])
        self.values, self._forward = [], ([], [])

    @no_grad
    def descend(
        self,
        slope: Slope,
        velocity: Sequence[Tensor],
        sgd: Sgd,
        *,
        steps: int = 1,
        together: bool = False,
        by_inputs: Tensor | None = None,
    ) -> None:
        """`steps` steps of all models, in place; the first goes back through this pass, the others start anew.

        A few models take all of their steps before the next ones, unless `together`. `velocity` are the momentum
        buffers of weights and biases, empty without momentum. The gradient of the inputs in the first step is written
        into `by_inputs`, if it is not None.
        """
        parts = self._parts(together=together)
        moves = velocity or [torch.empty_like(value) for value in self._flat]
        models = [slice(end - size, end) for size, end in zip(parts, accumulate(parts), strict=True)]
        parameters, moved = _cut(self._flat, parts), _cut(moves, parts)
        operands = self._layers(parts), self._gradients(parts, moves, by_inputs)
        chunks = list(zip(models, *operands, parameters, moved, strict=True))
        # From the last to the first: what the forward pass wrote last is likeliest to be in the cache still.
        for which, layers, gradients, own, own_moves in reversed(chunks):
            by_values = [self._room.borrow(value, *value.shape) for value in layers.values[1:]]
            borrowed = list(by_values)
            for step in range(steps):
                if step == 1:
                    # The outputs of this pass have been sent, and are not overwritten.
                    borrowed.append(self._room.borrow(self._inputs, *layers.values[-1].shape))
                    layers.values[-1], gradients.by_inputs = borrowed[-1], []
                if step:
                    layers.forward()
                by_outputs = slope(which, step, layers.values[-1].transpose(1, 2))
                gradients.backward(layers, by_outputs, by_values, sgd.momentum)
                sgd.apply(own, own_moves)
            self._room.give_back(borrowed)
        self.close()


def _sizes(models: int, most: int) -> list[int]:
    """Sizes of parts of at most so many models."""
    return [min(most, models - first) for first in range(0, models, most)]


def _cut(tensors: Sequence[Tensor], parts: Sequence[int]) -> list[list[Tensor]]:
    """For each part of so many models, in order, its views of all tensors (models, …)."""
    if len(parts) == 1:
        return [list(tensors)]
    if not tensors:
        return [[] for _ in parts]
    return [list(views) for views in zip(*(tensor.split(parts) for tensor in tensors), strict=True)]
