"""Adam (Kingma and Ba 2015) on one vector that holds many tensors or replicas: a step is a few operations on it.

With the models of several seeds on one axis a step costs little more than its operations' overhead, of which the
optimisers of torch have dozens per tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from vflpriv.common.lazy import gradients_along

__all__ = ["Adam", "FlatAdam", "Packed", "padding"]

_FIRST, _SECOND, _FLOOR = 0.9, 0.999, 1e-8
_MULTIPLE = 64


def padding(count: int) -> int:
    """How many elements to append to so many, for a length that vector instructions divide.

    They may round otherwise than the scalar ones that compute what remains at the end, and an element must not depend
    on how many lie beside it.
    """
    return -count % _MULTIPLE


class Adam:
    """Moves `values` in place, against gradients of the same shape; a learning rate for all, or one for each."""

    def __init__(self, values: Tensor, rate: float | Tensor) -> None:
        self.values, self._rate, self._steps = values, rate, 0
        self._mean, self._square = torch.zeros_like(values), torch.zeros_like(values)

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        """One step."""
        self._steps += 1
        self._mean.lerp_(gradient, 1 - _FIRST)
        self._square.mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
        spread = self._square.sqrt().div_((1 - _SECOND**self._steps) ** 0.5).add_(_FLOOR)
        self.values.addcdiv_(self._mean * self._rate, spread, value=-1 / (1 - _FIRST**self._steps))

    def keep(self, replicas: Tensor) -> None:
        """Go on with some of the replicas on the first axis."""
        self.values, self._mean, self._square = (t[replicas] for t in (self.values, self._mean, self._square))


class Packed(Adam):
    """Adam on tensors of R replicas: those of one replica, of these shapes, are a row of `values`."""

    def __init__(self, replicas: int, shapes: Sequence[tuple[int, ...]], like: Tensor, rates: Sequence[float]) -> None:
        """Zeros to begin with, in the type and on the device of `like`; each tensor has a learning rate of its own."""
        self._shapes, self._sizes = shapes, [math.prod(shape) for shape in shapes]
        end = padding(sum(self._sizes))
        own = [like.new_full((size,), rate) for size, rate in zip(self._sizes, rates, strict=True)]
        rate = torch.cat((*own, like.new_full((end,), rates[-1])))
        super().__init__(like.new_zeros(replicas, len(rate)), rate)

    def parts(self, rows: Tensor | None = None) -> list[Tensor]:
        """(R, *shape) of each tensor, as views of the values or of other rows like them."""
        values = self.values if rows is None else rows
        pieces = values[:, : sum(self._sizes)].split(self._sizes, dim=1)
        return [piece.unflatten(1, shape) for piece, shape in zip(pieces, self._shapes, strict=True)]


class FlatAdam:
    """Adam on tensors that it moves into one vector `values`, of which they are views from now on.

    `rates` has a number for each tensor, or a tensor of the same shape with a number for each of its elements.
    """

    def __init__(self, tensors: Sequence[Tensor], rates: Sequence[float | Tensor]) -> None:
        self._tensors = list(tensors)
        with torch.no_grad():
            flat = torch.cat([t.flatten() for t in self._tensors])
            self._end = flat.new_zeros(padding(len(flat)))
            self.values = torch.cat((flat, self._end))
            vector_to_parameters(self.values, self._tensors)
            steps = [torch.ones_like(t).mul_(rate).flatten() for t, rate in zip(self._tensors, rates, strict=True)]
        self._adam = Adam(self.values, torch.cat((*steps, self._end)))

    def step(self, outputs: Tensor, slope: Tensor | float = 1.0) -> None:
        """Differentiate a loss by all tensors, and move them: the loss itself, or outputs with its slope by them."""
        gradients = gradients_along(outputs, self._tensors, slope)
        self._adam.step(torch.cat((*(g.flatten() for g in gradients), self._end)))
