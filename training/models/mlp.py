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
from vflpriv.training.models.layers import LayersPass, Room, empty_rows, outputs_first

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FusedMlp", "NoisyMlp"]


class FusedMlp(Mlp):
    """The same function as `Mlp`, with passes that are not differentiated operation by operation (`LayersPass`).

    Where it is differentiated by autograd nevertheless, all layers are one node. Outputs are always new tensors.
    """

    def __init__(self, widths: Sequence[int], *, activate: bool) -> None:
        super().__init__(widths, activate=activate)
        self.names = [name for i in range(len(self.widths) - 1) for name in (f"weight{i}", f"bias{i}")]
        self.room = Room()

    def stored(self, value: Tensor) -> Tensor:
        return outputs_first(value) if value.dim() == 3 else value

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        flat = self.flat(parameters)
        if inputs.dim() != 3:
            return super().apply(parameters, inputs)
        if torch.is_grad_enabled() and any(t.requires_grad for t in (inputs, *flat)):
            output: Tensor = _fused_node().apply(self, inputs, *flat)
            return output
        started = self.start(parameters, inputs)
        started.close()
        return started.outputs

    def start(self, parameters: Parameters, inputs: Tensor) -> LayersPass:
        """A pass of inputs, as `LayersPass` takes them, that can go backward."""
        return LayersPass.start(self.room, inputs, self.flat(parameters), activate=self.activate)

    def flat(self, parameters: Mapping[str, Tensor]) -> list[Tensor]:
        """Weight and bias of each layer, from the inputs to the outputs."""
        return [parameters[name] for name in self.names]


class _FusedPass:
    """All layers of R models, (R, B, n) to (R, B, k): the two passes of an autograd node."""

    @staticmethod
    def forward(ctx: Any, model: FusedMlp, inputs: Tensor, *flat: Tensor) -> Tensor:
        started = LayersPass.start(model.room, inputs, flat, activate=model.activate)
        ctx.model, ctx.hidden = model, started.values[:-1]
        ctx.save_for_backward(inputs, started.outputs, *flat)
        return started.outputs

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs, outputs, *flat = ctx.saved_tensors
        values, ctx.hidden = [*ctx.hidden, outputs.transpose(1, 2)], []
        started = LayersPass(ctx.model.room, inputs, values, flat, activate=ctx.model.activate)
        by_parameter = [torch.empty_like(value) for value in flat] if any(ctx.needs_input_grad[2:]) else []
        by_input = empty_rows(inputs, *inputs.shape) if ctx.needs_input_grad[1] else None
        started.backward(output_gradients[0], by_parameter, by_input)
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
