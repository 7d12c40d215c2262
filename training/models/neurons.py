"""Random neurons: an MLP whose hidden layers are given noise (vafl.txt §4.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from vflpriv.common.random import Stream
from vflpriv.training.models.fused import FusedMlp
from vflpriv.training.models.networks import Mlp, Parameters

__all__ = ["NoisyMlp"]


class NoisyMlp(FusedMlp):
    """u_l = σ(w_l u_{l-1} + b_l + Z_l) with Z_l uniform in ±√3·c_l at hidden layers, eqs (10) and (11b).

    The noise is given among the parameters, as `neuron0` …; without it this is a plain MLP, as for evaluation. It
    smooths the loss (Theorem 5) and is no part of any guarantee; the last layer's Gaussian noise is the mechanism's.
    """

    def __init__(self, widths: Sequence[int], *, activate: bool, noise: float) -> None:
        super().__init__(widths, activate=activate)
        self.noise = noise
        last = len(self.widths) - 2
        self._layers = [Mlp(self.widths[i : i + 2], activate=False) for i in range(last + 1)]

    def neurons(self, stream: Stream, records: int, round_: int, members: Sequence[int]) -> dict[str, Tensor]:
        """(members · R, records, width) of noise for each hidden layer, from paths that no mechanism uses."""
        bound, found = math.sqrt(3) * self.noise, {}
        for layer, width in enumerate(self.widths[1:-1]):
            drawn = [stream.uniform(records * width, round_, 1 + m, 1 + layer) for m in members]
            found[f"neuron{layer}"] = torch.cat(drawn).mul_(2 * bound).sub_(bound).unflatten(1, (records, width))
        return found

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        if "neuron0" not in parameters:
            return super().apply(parameters, inputs)
        hidden = inputs
        for i, layer in enumerate(self._layers):
            own = {"weight0": parameters[f"weight{i}"], "bias0": parameters[f"bias{i}"]}
            hidden = layer.apply(own, hidden)
            if i + 1 < len(self._layers):
                hidden = torch.relu(hidden + parameters[f"neuron{i}"])
        return torch.relu(hidden) if self.activate else hidden
