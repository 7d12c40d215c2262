"""The layers of some MLPs as matrix products into memory that the caller provides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["Layers", "empty"]

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
