"""Multi-layer perceptrons with fused passes, which are faster, and with noise at hidden neurons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from types import new_class
from typing import TYPE_CHECKING, Any

from vflpriv.common.lazy import torch
from vflpriv.common.random import Stream
from vflpriv.training.models.base import Mlp, Parameters

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FusedMlp", "Layers", "NoisyMlp", "empty_rows"]

_NARROW = 32
"""Up to this width a layer is computed transposed."""
_CACHE = 1 << 20
"""Bytes of hidden values that stay in the cache of one core."""


def empty_rows(like: Tensor, models: int, rows: int, width: int, *, narrow: int = _NARROW) -> Tensor:
    """Uninitialised memory (models, rows, width); up to the width `narrow` its rows lie along the last axis in memory.

    Narrow layers are computed transposed, since matrix products with a long last axis are several times faster.
    """
    if width <= narrow:
        return like.new_empty(models, width, rows).transpose(1, 2)
    return like.new_empty(models, rows, width)


class Layers:
    """The forward and backward pass of several MLPs of one shape, in memory that the caller provides.

    `values[0]` (models, B, n) are the inputs; the forward pass writes the outputs of layer i into `values[i + 1]`. ReLU
    follows every layer but the last, and that one too if `activate`.
    """

    def __init__(
        self, values: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor], *, activate: bool
    ) -> None:
        self.values, self.weights, self.biases, self.activate = values, weights, biases, activate

    def select(self, models: slice) -> Layers:
        """The layers of some of the models, as views."""
        values, weights, biases = ([t[models] for t in part] for part in (self.values, self.weights, self.biases))
        return Layers(values, weights, biases, activate=self.activate)

    def gradient_memory(self, *, narrow: int = _NARROW) -> list[Tensor]:
        """Uninitialised memory for the gradients of each layer's weight and bias, alternating."""
        pairs = zip(self.weights, self.biases, strict=True)
        return [t for w, b in pairs for t in (empty_rows(w, *w.shape, narrow=narrow), torch.empty_like(b))]

    def forward(self) -> None:
        """Fill `values[1:]`."""
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            _multiply(self.values[i], weight, self.values[i + 1], bias.unsqueeze(1))
            if self._has_relu(i):
                self.values[i + 1].relu_()

    def backward(
        self, output_gradient: Tensor, value_gradients: Sequence[Tensor | None], gradients: Sequence[Tensor]
    ) -> None:
        """Propagate the gradient of the outputs back through all layers.

        The gradient of `values[i]` is written into `value_gradients[i]` unless that is None; without a ReLU after the
        last layer, the last entry is not used. The gradients of weights and biases are written into `gradients`, in the
        order of `gradient_memory`, unless it is empty.
        """
        upstream = output_gradient
        for i in reversed(range(len(self.weights))):
            if self._has_relu(i):
                relu_backward = torch.ops.aten.threshold_backward.grad_input
                upstream = relu_backward(upstream, self.values[i + 1], 0, grad_input=value_gradients[i + 1])
            if gradients:
                _multiply(self.values[i].transpose(1, 2), upstream, gradients[2 * i])
                torch.sum(upstream, 1, out=gradients[2 * i + 1])
            below = value_gradients[i]
            if below is not None:
                _multiply(upstream, self.weights[i].transpose(1, 2), below)
                upstream = below

    def _has_relu(self, layer: int) -> bool:
        return self.activate or layer + 1 < len(self.weights)


def _multiply(left: Tensor, right: Tensor, out: Tensor, bias: Tensor | None = None) -> None:
    """out = left · right + bias, computed transposed if `out` is transposed in memory."""
    if out.stride(2) != 1:
        left, right, out = right.transpose(1, 2), left.transpose(1, 2), out.transpose(1, 2)
        bias = None if bias is None else bias.transpose(1, 2)
    if bias is None:
        torch.bmm(left, right, out=out)
    else:
        torch.baddbmm(bias, left, right, out=out)


class FusedMlp(Mlp):
    """The same function as `Mlp`; where it is differentiated, all layers are one autograd node.

    Its passes work through a few replicas at a time, so that what a layer reads is still in the cache. Memory of hidden
    values is reused: a forward pass borrows it and the backward pass returns it. Outputs are always new tensors.
    """

    def __init__(self, widths: Sequence[int], *, activate: bool) -> None:
        super().__init__(widths, activate=activate)
        self._names = [name for i in range(len(self.widths) - 1) for name in (f"weight{i}", f"bias{i}")]
        self._unused: dict[tuple[Any, ...], list[Tensor]] = {}

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        flat = self.flat(parameters)
        if inputs.dim() != 3 or not torch.is_grad_enabled() or not any(t.requires_grad for t in (inputs, *flat)):
            return super().apply(parameters, inputs)
        output: Tensor = _fused_node().apply(self, inputs, *flat)
        return output

    def flat(self, parameters: Mapping[str, Tensor]) -> list[Tensor]:
        """Weight and bias of each layer, from the inputs to the outputs."""
        return [parameters[name] for name in self._names]

    def named(self, flat: Sequence[Tensor]) -> dict[str, Tensor]:
        """The inverse of `flat`."""
        return dict(zip(self._names, flat, strict=True))

    def borrow(self, like: Tensor, models: int, records: int, width: int) -> Tensor:
        """Memory (models, records, width) that no other pass uses until it is given back."""
        unused = self._unused.get((models, records, width, like.dtype, like.device))
        return unused.pop() if unused else empty_rows(like, models, records, width)

    def give_back(self, *tensors: Tensor) -> None:
        """Make borrowed memory available to later passes."""
        for tensor in tensors:
            self._unused.setdefault((*tensor.shape, tensor.dtype, tensor.device), []).append(tensor)

    def chunks(self, inputs: Tensor) -> list[slice]:
        """Ranges of the first axis whose hidden values fit into the cache of a core; all at once on other hardware."""
        models, records, _ = inputs.shape
        step = max(1, _CACHE // (4 * max(1, records) * sum(self.widths))) if inputs.is_cpu else models
        return [slice(i, min(i + step, models)) for i in range(0, models, step)]


class _FusedPass:
    """All layers of R models, (R, B, n) to (R, B, k): the two passes of an autograd node."""

    @staticmethod
    def forward(ctx: Any, model: FusedMlp, inputs: Tensor, *flat: Tensor) -> Tensor:
        replicas, records, _ = inputs.shape
        hidden = [model.borrow(inputs, replicas, records, width) for width in model.widths[1:-1]]
        output = empty_rows(inputs, replicas, records, model.widths[-1])
        layers = Layers([inputs, *hidden, output], flat[::2], flat[1::2], activate=model.activate)
        for models in model.chunks(inputs):
            layers.select(models).forward()
        ctx.model, ctx.hidden = model, hidden
        ctx.save_for_backward(inputs, output, *flat)
        return output

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, output, *flat = ctx.saved_tensors
        model, hidden = ctx.model, ctx.hidden
        layers = Layers([inputs, *hidden, output], flat[::2], flat[1::2], activate=model.activate)
        by_parameter = layers.gradient_memory() if any(ctx.needs_input_grad[2:]) else []
        by_input = torch.empty_like(inputs) if ctx.needs_input_grad[1] else None
        for models in model.chunks(inputs):
            chunk = layers.select(models)
            by_value = [model.borrow(value, *value.shape) for value in chunk.values[1:]]
            by_chunk_input = None if by_input is None else by_input[models]
            gradients = [tensor[models] for tensor in by_parameter]
            chunk.backward(output_gradients[0][models], [by_chunk_input, *by_value], gradients)
            model.give_back(*by_value)
        model.give_back(*hidden)
        ctx.hidden = []
        of_parameters: list[Tensor | None] = [*by_parameter] or [None] * len(flat)
        return None, by_input, *of_parameters


@cache
def _fused_node() -> Any:
    """The passes as an autograd function, which is a class that needs torch: it is made at the first use."""
    return new_class("FusedNode", (_FusedPass, torch.autograd.Function))


# Random neurons ----------------------------------------------------------------------------------------------------


class NoisyMlp(FusedMlp):
    """The random neurons of VAFL: u_l = σ(w_l u_{l-1} + b_l + Z_l), Z_l uniform in ±√3·c_l at hidden layers.

    VAFL eqs (10) and (11b). The noise (R, B, width) is passed among the parameters as `neuron0`, …; without it the
    model is a plain MLP, as for evaluation. It smooths the loss (VAFL Theorem 5) and counts towards no privacy
    guarantee; the Gaussian noise of the last layer is added by the mechanism that releases the embeddings.
    """

    def __init__(self, widths: Sequence[int], *, activate: bool, noise: float) -> None:
        super().__init__(widths, activate=activate)
        self.noise = noise
        self._layers = [Mlp(pair, activate=False) for pair in pairwise(self.widths)]

    def neurons(self, stream: Stream, records: int, round_: int, members: Sequence[int]) -> dict[str, Tensor]:
        """(members · R, records, width) of noise for each hidden layer, from sequences that no mechanism draws from."""
        bound, noise = math.sqrt(3) * self.noise, {}
        for layer, width in enumerate(self.widths[1:-1]):
            uniform = torch.cat([stream.uniform(records * width, round_, 1 + m, 1 + layer) for m in members])
            noise[f"neuron{layer}"] = uniform.mul_(2 * bound).sub_(bound).unflatten(1, (records, width))
        return noise

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        if "neuron0" not in parameters:
            return super().apply(parameters, inputs)
        hidden = inputs
        for i, layer in enumerate(self._layers):
            hidden = layer.apply({"weight0": parameters[f"weight{i}"], "bias0": parameters[f"bias{i}"]}, hidden)
            if i + 1 < len(self._layers):
                hidden = torch.relu(hidden + parameters[f"neuron{i}"])
        return torch.relu(hidden) if self.activate else hidden
