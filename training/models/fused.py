"""An MLP whose passes work through a few models at a time, so that what they read is still in the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vflpriv.training.models.networks import Mlp, Parameters

__all__ = ["FusedMlp", "Layers", "empty"]

_NARROW = 32
_mask: Any = torch.ops.aten.threshold_backward.grad_input


def empty(like: Tensor, models: int, rows: int, width: int, *, narrow: int = _NARROW) -> Tensor:
    """(models, rows, width), laid out rows last where it is narrow.

    Narrow layers are computed transposed, records last: matrix products with a long last axis are several times faster.
    """
    if width <= narrow:
        return like.new_empty(models, width, rows).transpose(1, 2)
    return like.new_empty(models, rows, width)


class Layers:
    """`values[i]` (models, B, n) is what layer i reads, `values[i + 1]` what it writes; ReLU behind all but the last
    layer, and behind that one if `activate`."""

    def __init__(
        self, values: Sequence[Tensor], weights: Sequence[Tensor], biases: Sequence[Tensor], *, activate: bool
    ) -> None:
        self.values, self.weights, self.biases, self.activate = values, weights, biases, activate

    def of(self, rows: slice) -> Layers:
        """Those of some models."""
        values, weights, biases = ([t[rows] for t in part] for part in (self.values, self.weights, self.biases))
        return Layers(values, weights, biases, activate=self.activate)

    def room(self, *, narrow: int = _NARROW) -> list[Tensor]:
        """Memory for the gradient of each layer's weight and bias, in turn."""
        pairs = zip(self.weights, self.biases, strict=True)
        return [t for w, b in pairs for t in (empty(w, *w.shape, narrow=narrow), torch.empty_like(b))]

    def up(self) -> None:
        """From the inputs to the outputs."""
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            _multiply(self.values[i], weight, self.values[i + 1], bias.unsqueeze(1))
            if self._bends(i):
                self.values[i + 1].relu_()

    def down(self, gradient: Tensor, slopes: Sequence[Tensor | None], gradients: Sequence[Tensor]) -> None:
        """Back from the outputs' gradient.

        `slopes[i]` is written the gradient of `values[i]` (the last one may be left as it was), unless it is None;
        `gradients` those of weights and biases, as `room` has them, unless it is empty.
        """
        own = gradient
        for i in reversed(range(len(self.weights))):
            own = _mask(own, self.values[i + 1], 0, grad_input=slopes[i + 1]) if self._bends(i) else own
            if gradients:
                _multiply(self.values[i].transpose(1, 2), own, gradients[2 * i])
                torch.sum(own, 1, out=gradients[2 * i + 1])
            below = slopes[i]
            if below is not None:
                _multiply(own, self.weights[i].transpose(1, 2), below)
                own = below

    def _bends(self, layer: int) -> bool:
        return self.activate or layer + 1 < len(self.weights)


def _multiply(left: Tensor, right: Tensor, out: Tensor, bias: Tensor | None = None) -> None:
    """out = left · right + bias, transposed where `out` is laid out so."""
    if out.stride(2) != 1:
        left, right, out = right.transpose(1, 2), left.transpose(1, 2), out.transpose(1, 2)
        bias = None if bias is None else bias.transpose(1, 2)
    if bias is None:
        torch.bmm(left, right, out=out)
    else:
        torch.baddbmm(bias, left, right, out=out)


# An MLP whose passes work through a few models at a time, so that what they read is still in the cache.

_CACHE = 1 << 20


class FusedMlp(Mlp):
    """The same function as `Mlp`; where it is differentiated, one pass for all layers.

    Hidden values live in memory that is kept from pass to pass: a pass takes it for itself and its backward pass gives
    it back. Outputs are always new.
    """

    def __init__(self, widths: Sequence[int], *, activate: bool) -> None:
        super().__init__(widths, activate=activate)
        self._names = [name for i in range(len(self.widths) - 1) for name in (f"weight{i}", f"bias{i}")]
        self._free: dict[tuple[Any, ...], list[Tensor]] = {}

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        flat = self.flat(parameters)
        if inputs.dim() != 3 or not torch.is_grad_enabled() or not any(t.requires_grad for t in (inputs, *flat)):
            return super().apply(parameters, inputs)
        output: Tensor = _Pass.apply(self, inputs, *flat)  # type: ignore[no-untyped-call]
        return output

    def flat(self, parameters: Mapping[str, Tensor]) -> list[Tensor]:
        """Weight and bias of each layer, from below."""
        return [parameters[name] for name in self._names]

    def named(self, flat: Sequence[Tensor]) -> dict[str, Tensor]:
        """The other way round."""
        return dict(zip(self._names, flat, strict=True))

    def take(self, like: Tensor, models: int, records: int, width: int) -> Tensor:
        """Memory for (models, records, width) that nobody uses."""
        free = self._free.get((models, records, width, like.dtype, like.device))
        return free.pop() if free else empty(like, models, records, width)

    def give(self, *tensors: Tensor) -> None:
        """Memory that is no longer used."""
        for tensor in tensors:
            self._free.setdefault((*tensor.shape, tensor.dtype, tensor.device), []).append(tensor)

    def chunks(self, inputs: Tensor) -> list[slice]:
        """So many models at a time as have their rows in the cache of a core; all at once on other hardware."""
        models, records, _ = inputs.shape
        step = max(1, _CACHE // (4 * max(1, records) * sum(self.widths))) if inputs.is_cpu else models
        return [slice(i, min(i + step, models)) for i in range(0, models, step)]


class _Pass(torch.autograd.Function):
    """All layers of R models, (R, B, n) to (R, B, k)."""

    @staticmethod
    def forward(ctx: Any, model: FusedMlp, inputs: Tensor, *flat: Tensor) -> Tensor:
        replicas, records, _ = inputs.shape
        hidden = [model.take(inputs, replicas, records, width) for width in model.widths[1:-1]]
        output = empty(inputs, replicas, records, model.widths[-1])
        layers = Layers([inputs, *hidden, output], flat[::2], flat[1::2], activate=model.activate)
        for rows in model.chunks(inputs):
            layers.of(rows).up()
        ctx.model, ctx.hidden = model, hidden
        ctx.save_for_backward(inputs, output, *flat)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, output, *flat = ctx.saved_tensors
        model, hidden = ctx.model, ctx.hidden
        layers = Layers([inputs, *hidden, output], flat[::2], flat[1::2], activate=model.activate)
        learns = any(ctx.needs_input_grad[2:])
        by_weight = layers.room() if learns else []
        by_input = torch.empty_like(inputs) if ctx.needs_input_grad[1] else None
        for rows in model.chunks(inputs):
            own = layers.of(rows)
            slopes = [model.take(value, *value.shape) for value in own.values[1:]]
            below = [None if by_input is None else by_input[rows], *slopes]
            own.down(gradients[0][rows], below, [tensor[rows] for tensor in by_weight])
            model.give(*slopes)
        model.give(*hidden)
        ctx.hidden = []
        learned: list[Tensor | None] = [*by_weight] or [None] * len(flat)
        return None, by_input, *learned
