"""An MLP whose passes work through a few models at a time, so that what they read is still in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vflpriv.training._models import Mlp, Parameters

__all__ = ["FusedMlp"]

_CACHE = 1 << 20
_NARROW = 32
_mask: Any = torch.ops.aten.threshold_backward.grad_input


class FusedMlp(Mlp):
    """The same function as `Mlp`; where it is differentiated, one pass for all layers.

    Hidden values live in memory that is kept from pass to pass: a pass takes it for itself and its backward pass gives
    it back. Outputs are always new. Narrow layers are computed transposed, records last: matrix products with a long
    last axis are several times faster.
    """

    def __init__(self, widths: Sequence[int], *, activate: bool) -> None:
        super().__init__(widths, activate=activate)
        self._names = [name for i in range(len(self.widths) - 1) for name in (f"weight{i}", f"bias{i}")]
        self._free: dict[tuple[Any, ...], list[Tensor]] = {}

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        flat = [parameters[name] for name in self._names]
        if inputs.dim() != 3 or not torch.is_grad_enabled() or not any(t.requires_grad for t in (inputs, *flat)):
            return super().apply(parameters, inputs)
        output: Tensor = _Pass.apply(self, inputs, *flat)  # type: ignore[no-untyped-call]
        return output

    def take(self, like: Tensor, models: int, records: int, width: int) -> Tensor:
        """Memory for (models, records, width) that nobody uses."""
        free = self._free.get((models, records, width, like.dtype, like.device))
        return free.pop() if free else _empty(like, models, records, width)

    def give(self, *tensors: Tensor) -> None:
        """Memory that is no longer used."""
        for tensor in tensors:
            self._free.setdefault((*tensor.shape, tensor.dtype, tensor.device), []).append(tensor)

    def chunks(self, inputs: Tensor) -> list[slice]:
        """So many models at a time as have their rows in the cache of a core; all at once on other hardware."""
        models, records, _ = inputs.shape
        step = max(1, _CACHE // (4 * max(1, records) * sum(self.widths))) if inputs.is_cpu else models
        return [slice(i, i + step) for i in range(0, models, step)]


def _empty(like: Tensor, models: int, rows: int, width: int) -> Tensor:
    """(models, rows, width), laid out rows last where it is narrow."""
    if width <= _NARROW:
        return like.new_empty(models, width, rows).transpose(1, 2)
    return like.new_empty(models, rows, width)


def _multiply(left: Tensor, right: Tensor, out: Tensor, bias: Tensor | None = None) -> None:
    """out = left · right + bias, transposed where `out` is laid out so."""
    if out.shape[2] <= _NARROW:
        left, right, out = right.transpose(1, 2), left.transpose(1, 2), out.transpose(1, 2)
        bias = None if bias is None else bias.transpose(1, 2)
    if bias is None:
        torch.bmm(left, right, out=out)
    else:
        torch.baddbmm(bias, left, right, out=out)


class _Pass(torch.autograd.Function):
    """All layers of R models, (R, B, n) to (R, B, k)."""

    @staticmethod
    def forward(ctx: Any, model: FusedMlp, inputs: Tensor, *flat: Tensor) -> Tensor:
        weights, biases = flat[::2], [bias.unsqueeze(1) for bias in flat[1::2]]
        replicas, records, _ = inputs.shape
        hidden = [model.take(inputs, replicas, records, width) for width in model.widths[1:-1]]
        output = _empty(inputs, replicas, records, model.widths[-1])
        steps = list(zip([inputs, *hidden], weights, biases, [*hidden, output], strict=True))
        for rows in model.chunks(inputs):
            for i, (source, weight, bias, target) in enumerate(steps):
                _multiply(source[rows], weight[rows], target[rows], bias[rows])
                if i + 1 < len(steps) or model.activate:
                    target[rows].relu_()
        ctx.model, ctx.hidden = model, hidden
        ctx.save_for_backward(inputs, output, *weights)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, output, *weights = ctx.saved_tensors
        model, hidden, sources = ctx.model, ctx.hidden, [inputs, *ctx.hidden]
        learns = any(ctx.needs_input_grad[2:])
        by_weight = [_empty(weight, *weight.shape) for weight in weights] if learns else []
        by_bias = [weight.new_empty(len(weight), weight.shape[2]) for weight in weights] if learns else []
        by_input = inputs.new_empty(inputs.shape) if ctx.needs_input_grad[1] else None
        for rows in model.chunks(inputs):
            own = gradients[0][rows]
            borrowed = [model.take(own, *own.shape)]
            own = _mask(own, output[rows], 0, grad_input=borrowed[0]) if model.activate else own
            for i in reversed(range(len(weights))):
                if learns:
                    _multiply(sources[i][rows].transpose(1, 2), own, by_weight[i][rows])
                    torch.sum(own, 1, out=by_bias[i][rows])
                if i > 0:
                    below = model.take(own, *hidden[i - 1][rows].shape)
                    borrowed.append(below)
                    _multiply(own, weights[i][rows].transpose(1, 2), below)
                    own = _mask(below, hidden[i - 1][rows], 0, grad_input=below)
            if by_input is not None:
                torch.bmm(own, weights[0][rows].transpose(1, 2), out=by_input[rows])
            model.give(*borrowed)
        model.give(*hidden)
        ctx.hidden = []
        learned = [g for pair in zip(by_weight, by_bias, strict=True) for g in pair]
        return None, by_input, *(learned or [None] * (2 * len(weights)))
