"""Multi-layer perceptrons with fused passes, which are faster, and with noise at hidden neurons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch
from vflpriv.core.law import Draws
from vflpriv.training.models.base import Mlp, Parameters
from vflpriv.training.models.layers import LayersPass, Room, outputs_first

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FusedMlp", "NoisyMlp", "RandomNeurons"]


class FusedMlp(Mlp):
    """The same function as `Mlp`, with passes that are not differentiated operation by operation (`LayersPass`).

    Where autograd differentiates it nevertheless, it is `Mlp`: with few records that is several times as fast as a node
    of all layers. Outputs are always new tensors.
    """

    def __init__(self, widths: Sequence[int], *, activate: bool) -> None:
        super().__init__(widths, activate=activate)
        self.names = [name for i in range(len(self.widths) - 1) for name in (f"weight{i}", f"bias{i}")]
        self.room = Room()

    def stored(self, value: Tensor) -> Tensor:
        return outputs_first(value) if value.dim() == 3 else value

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in (inputs, *self.flat(parameters)))
        if inputs.dim() != 3 or differentiated:
            return super().apply(parameters, inputs)
        started = self.start(parameters, inputs)
        started.close()
        return started.outputs

    def start(self, parameters: Parameters, inputs: Tensor) -> LayersPass:
        """A pass of inputs, as `LayersPass` takes them, that can go backward."""
        return LayersPass.start(self.room, inputs, self.flat(parameters), activate=self.activate)

    def flat(self, parameters: Mapping[str, Tensor]) -> list[Tensor]:
        """Weight and bias of each layer, from the inputs to the outputs."""
        return [parameters[name] for name in self.names]


# Random neurons ----------------------------------------------------------------------------------------------------


class RandomNeurons:
    """The random neurons of VAFL: u_l = σ(w_l u_{l-1} + b_l + Z_l), Z_l uniform in ±√3·c_l at hidden layers.

    VAFL eqs (10) and (11b). The noise (R, B, *shape) is passed among the parameters as `neuron0`, …; without it the
    model is a plain one, as for evaluation. It smooths the loss (VAFL Theorem 5) and counts towards no privacy
    guarantee; the Gaussian noise of the last layer is added by the mechanism that releases the embeddings.
    """

    noise: Sequence[float]
    """c_l of each hidden layer."""
    neuron_shapes: Sequence[tuple[int, ...]]
    """The outputs of each hidden layer for one record."""

    def neurons(self, stream: Draws, records: int, round_: int, members: Sequence[int]) -> dict[str, Tensor]:
        """(members · R, records, *shape) of noise of each hidden layer, from sequences that no mechanism draws from."""
        noise = {}
        for layer, (shape, std) in enumerate(zip(self.neuron_shapes, self.noise, strict=True)):
            bound, count = math.sqrt(3) * std, records * math.prod(shape)
            uniform = torch.cat([stream.uniform(count, round_, 1 + m, 1 + layer) for m in members])
            noise[f"neuron{layer}"] = uniform.mul_(2 * bound).sub_(bound).unflatten(1, (records, *shape))
        return noise


class NoisyMlp(RandomNeurons, FusedMlp):
    """A multi-layer perceptron with random neurons; `noise` is c_l of all hidden layers, or of each one."""

    def __init__(self, widths: Sequence[int], *, activate: bool, noise: float | Sequence[float]) -> None:
        super().__init__(widths, activate=activate)
        self.neuron_shapes = [(width,) for width in self.widths[1:-1]]
        self.noise = [noise] * len(self.neuron_shapes) if isinstance(noise, int | float) else noise
        self._layers = [Mlp(pair, activate=False) for pair in pairwise(self.widths)]

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        if "neuron0" not in parameters:
            return super().apply(parameters, inputs)
        hidden = inputs
        for i, layer in enumerate(self._layers):
            hidden = layer.apply({"weight0": parameters[f"weight{i}"], "bias0": parameters[f"bias{i}"]}, hidden)
            if i + 1 < len(self._layers):
                hidden = torch.relu(hidden + parameters[f"neuron{i}"])
        return torch.relu(hidden) if self.activate else hidden
