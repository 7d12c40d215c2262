"""Forward and backward passes of stacked MLPs as matrix products in memory that is reused, without autograd.

Layers are computed transposed, records along the last axis of memory: matrix products with a long last axis are a
little faster where layers are wide, and several times faster where they are narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Backward", "Layers", "LayersPass", "Room", "Sgd", "Slope", "empty_rows", "join_rows", "outputs_first"]

_CACHE = 1 << 20
"""Bytes of hidden values that stay in the cache of one core."""
_relu_backward: Any = torch.ops.aten.threshold_backward.grad_input

Slope = Callable[[slice, int, Tensor], Tensor]
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
    """torch.cat, in the memory order of the first: records stay last in memory if they were."""
    if rows[0].dim() != 3 or rows[0].stride(2) == 1:
        return torch.cat(list(rows), dim)
    return torch.cat([own.transpose(1, 2) for own in rows], (0, 2, 1)[dim]).transpose(1, 2)


class _Product:
    """out = left · right for several models; the views of its operands are made once for many products."""

    def __init__(self, left: Tensor, right: Tensor, out: Tensor, bias: Tensor | None = None) -> None:
        if out.stride(2) != 1:
            left, right, out = right.transpose(1, 2), left.transpose(1, 2), out.transpose(1, 2)
            bias = None if bias is None else bias.transpose(1, 2)
        self._left, self._right, self._out, self._bias = left, right, out, bias

    def compute(self) -> None:
        """out = left · right + bias."""
        if self._bias is None:
            torch.bmm(self._left, self._right, out=self._out)
        else:
            torch.baddbmm(self._bias, self._left, self._right, out=self._out)

    def accumulate(self, momentum: float) -> None:
        """out = momentum · out + left · right."""
        if momentum:
            torch.baddbmm(self._out, self._left, self._right, beta=momentum, out=self._out)
        else:
            self.compute()


class Layers:
    """The forward pass of several MLPs of one shape, in memory that the caller provides.

    `values[0]` (models, B, n) are the inputs; the forward pass writes the outputs of layer i into `values[i + 1]`.
    `flat` are weight and bias of each layer, alternating. ReLU follows every layer but the last, and that one too if
    `activate`.
    """

    def __init__(self, values: Sequence[Tensor], flat: Sequence[Tensor], *, activate: bool) -> None:
        self.values, self.flat, self.weights, self.activate = values, flat, flat[::2], activate
        self._products: list[_Product] = []

    def forward(self) -> None:
        """Fill `values[1:]`."""
        if not self._products:
            parts = zip(self.values[:-1], self.weights, self.values[1:], self.flat[1::2], strict=True)
            self._products = [_Product(x, weight, y, bias.unsqueeze(1)) for x, weight, y, bias in parts]
        for i, product in enumerate(self._products):
            product.compute()
            if self.has_relu(i):
                self.values[i + 1].relu_()

    def has_relu(self, layer: int) -> bool:
        return self.activate or layer + 1 < len(self.weights)


class Backward:
    """The backward pass through layers, in memory that the caller provides.

    The gradient of `values[1 + i]` is written into `value_gradients[i]`, and that of the inputs into `by_inputs` unless
    it is None. The gradients of weight and bias of each layer are written into `gradients`, unless it is empty.
    """

    def __init__(
        self,
        layers: Layers,
        value_gradients: Sequence[Tensor],
        gradients: Sequence[Tensor] = (),
        by_inputs: Tensor | None = None,
    ) -> None:
        self._layers, self._value_gradients = layers, value_gradients
        inputs = layers.values[:-1]
        below = zip(value_gradients, layers.weights, [by_inputs, *value_gradients[:-1]], strict=True)
        self._by_input = [None if g is None else _Product(up, w.transpose(1, 2), g) for up, w, g in below]
        self._by_parameter: list[list[_Product]] = [[] for _ in inputs]
        if gradients:
            models, records, _ = inputs[0].shape
            ones = inputs[0].new_ones(records).expand(models, 1, records)
            parts = zip(inputs, value_gradients, gradients[::2], gradients[1::2], strict=True)
            self._by_parameter = [
                [_Product(x.transpose(1, 2), up, by_weight), _Product(ones, up, by_bias.unsqueeze(1))]
                for x, up, by_weight, by_bias in parts
            ]

    def run(self, output_gradient: Tensor, momentum: float = 0.0) -> None:
        """Propagate the gradient of the outputs; `momentum` times what `gradients` hold is added to the new ones."""
        upstream = output_gradient
        for i in reversed(range(len(self._value_gradients))):
            gradient = self._value_gradients[i]
            if self._layers.has_relu(i):
                _relu_backward(upstream, self._layers.values[i + 1], 0, grad_input=gradient)
            elif upstream is not gradient:
                gradient.copy_(upstream)
            for product in self._by_parameter[i]:
                product.accumulate(momentum)
            by_input = self._by_input[i]
            if by_input is not None:
                by_input.compute()
                upstream = self._value_gradients[i - 1]


class Room:
    """Memory of hidden values that is reused: a pass borrows it, and gives it back when it has gone backward."""

    def __init__(self) -> None:
        self._unused: dict[tuple[Any, ...], list[Tensor]] = {}

    def borrow(self, like: Tensor, models: int, records: int, width: int) -> Tensor:
        """Memory (models, records, width) that no other pass uses until it is given back."""
        unused = self._unused.get((models, records, width, like.dtype, like.device))
        return unused.pop() if unused else empty_rows(like, models, records, width)

    def give_back(self, tensors: Sequence[Tensor]) -> None:
        """Make borrowed memory available to later passes."""
        for tensor in tensors:
            self._unused.setdefault((*tensor.shape, tensor.dtype, tensor.device), []).append(tensor)


class LayersPass:
    """One forward pass of stacked MLPs, which can go backward once. Its outputs are new memory.

    It works through a few models at a time, so that what a layer reads is still in the cache.
    """

    def __init__(
        self, room: Room, values: Sequence[Tensor], flat: Sequence[Tensor], *, activate: bool
    ) -> None:
        self._room, self._values, self._flat, self._activate = room, list(values), flat, activate
        self.outputs = values[-1]

    @classmethod
    def start(cls, room: Room, inputs: Tensor, flat: Sequence[Tensor], *, activate: bool) -> LayersPass:
        """The forward pass of inputs (models, B, n) through weights and biases, alternating."""
        models, records, _ = inputs.shape
        *widths, last = [bias.shape[1] for bias in flat[1::2]]
        hidden = [room.borrow(inputs, models, records, width) for width in widths]
        started = cls(room, [inputs, *hidden, empty_rows(inputs, models, records, last)], flat, activate=activate)
        for chunk in started.chunks():
            started._layers(chunk).forward()
        return started

    @property
    def hidden(self) -> list[Tensor]:
        return self._values[1:-1]

    def chunks(self) -> list[slice]:
        """Ranges of the first axis whose values fit into the cache of a core; all at once on other hardware."""
        inputs = self._values[0]
        models, records, _ = inputs.shape
        bytes_ = 4 * max(1, records) * sum(value.shape[2] for value in self._values)
        step = max(1, _CACHE // bytes_) if inputs.is_cpu else max(1, models)
        return [slice(i, min(i + step, models)) for i in range(0, models, step)]

    def backward(self, by_outputs: Tensor, gradients: Sequence[Tensor], by_inputs: Tensor | None = None) -> None:
        """Write the gradients of weights and biases, unless there is no memory for them, and of the inputs."""
        for chunk in self.chunks():
            layers = self._layers(chunk)
            by_values = [self._room.borrow(value, *value.shape) for value in layers.values[1:]]
            own, below = [g[chunk] for g in gradients], None if by_inputs is None else by_inputs[chunk]
            Backward(layers, by_values, own, below).run(by_outputs[chunk])
            self._room.give_back(by_values)
        self.close()

    def close(self) -> None:
        """Give the memory of hidden values back: the pass cannot go backward any more."""
        self._room.give_back(self.hidden)
        self._values = []

    @torch.no_grad()
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
        for chunk in [slice(0, len(self.outputs))] if together else self.chunks():
            below = None if by_inputs is None else by_inputs[chunk]
            self._descend(chunk, slope, [v[chunk] for v in velocity], sgd, steps, below)
        self.close()

    def _descend(
        self, chunk: slice, slope: Slope, velocity: Sequence[Tensor], sgd: Sgd, steps: int, by_inputs: Tensor | None
    ) -> None:
        layers = self._layers(chunk)
        by_values = [self._room.borrow(value, *value.shape) for value in layers.values[1:]]
        borrowed, moves = [*by_values], velocity or [torch.empty_like(value) for value in layers.flat]
        backward = Backward(layers, by_values, moves, by_inputs)
        backward.run(slope(chunk, 0, layers.values[-1]), sgd.momentum)
        sgd.apply(layers.flat, moves)
        if steps > 1:
            # The outputs of this pass have been sent, and are not overwritten.
            outputs = self._room.borrow(self.outputs, *layers.values[-1].shape)
            layers = Layers([*layers.values[:-1], outputs], layers.flat, activate=self._activate)
            backward = Backward(layers, by_values, moves)
            borrowed.append(outputs)
        for step in range(1, steps):
            layers.forward()
            backward.run(slope(chunk, step, layers.values[-1]), sgd.momentum)
            sgd.apply(layers.flat, moves)
        self._room.give_back(borrowed)

    def _layers(self, chunk: slice) -> Layers:
        values, flat = [v[chunk] for v in self._values], [p[chunk] for p in self._flat]
        return Layers(values, flat, activate=self._activate)
