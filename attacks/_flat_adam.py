"""Adam (Kingma and Ba 2015) for many small tensors: they lie in one vector, and a step is a few operations on it.

With the models of several seeds on one axis a step costs little more than its operations' overhead, of which the
optimisers of torch have dozens per tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

__all__ = ["FlatAdam"]

_FIRST, _SECOND, _FLOOR = 0.9, 0.999, 1e-8
_PADDING = 64


class FlatAdam:
    """The tensors, moved into one vector `values`, of which they are views from now on; a learning rate for each.

    The vector is padded: vector instructions may round otherwise than the scalar ones that compute what remains at the
    end, and an element must not depend on how many tensors lie beside it.
    """

    def __init__(self, tensors: Sequence[Tensor], rates: Sequence[float]) -> None:
        self._tensors = list(tensors)
        with torch.no_grad():
            flat = parameters_to_vector(self._tensors)
            self._end = flat.new_zeros(-len(flat) % _PADDING)
            self.values = torch.cat((flat, self._end))
            vector_to_parameters(self.values, self._tensors)
            each = [flat.new_full((t.numel(),), rate) for t, rate in zip(self._tensors, rates, strict=True)]
            self._rates = torch.cat((*each, self._end))
        self._mean, self._square = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self._steps = 0

    def step(self, loss: Tensor) -> None:
        """Differentiate the loss by all tensors, and move them."""
        gradients = torch.autograd.grad(loss, self._tensors)
        with torch.no_grad():
            gradient = torch.cat((*(g.flatten() for g in gradients), self._end))
            self._steps += 1
            self._mean.lerp_(gradient, 1 - _FIRST)
            self._square.mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
            spread = self._square.sqrt().div_((1 - _SECOND**self._steps) ** 0.5).add_(_FLOOR)
            self.values.addcdiv_(self._mean * self._rates, spread, value=-1 / (1 - _FIRST**self._steps))
