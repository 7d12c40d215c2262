"""Heads: the part of a device's model that turns its embedding into its share of the logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vflpriv.training.models.fused import FusedMlp
from vflpriv.training.models.networks import Mlp, Parameters

__all__ = ["DropoutMlp", "Headed", "Linear", "mask_name"]


class Linear:
    """x W without a bias: the linear head of vimadmm.txt §III, and the whole model of linear ADMM."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.shapes: Mapping[str, tuple[int, ...]] = {"weight0": (inputs, outputs)}

    def fan_in(self, name: str) -> int:
        return self.shapes[name][0]

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        weight = parameters["weight0"]
        return torch.bmm(inputs if inputs.dim() == 3 else inputs.expand(len(weight), *inputs.shape), weight)


def mask_name(layer: int) -> str:
    """Under which name a layer's dropout mask stands beside the parameters."""
    return f"mask{layer}"


class DropoutMlp(Mlp):
    """The non-linear head of vimadmm.txt §VI-A2: linear layers, with ReLU and dropout between them.

    Where the parameters hold a mask (R, B, width) for a hidden layer, its units are multiplied by it.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__(widths, activate=False)

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        hidden = inputs if inputs.dim() == 3 else inputs.expand(len(parameters["weight0"]), *inputs.shape)
        layers = len(self.widths) - 1
        for i in range(layers):
            hidden = torch.baddbmm(parameters[f"bias{i}"].unsqueeze(1), hidden, parameters[f"weight{i}"])
            if i + 1 < layers:
                hidden = torch.relu(hidden)
                mask = parameters.get(mask_name(i))
                hidden = hidden if mask is None else hidden * mask
        return hidden


class Headed(FusedMlp):
    """An MLP with ReLU behind every layer, the extractor f(x; θ), and a bias-free linear head W in one model."""

    def __init__(self, widths: Sequence[int], classes: int) -> None:
        super().__init__(widths, activate=True)
        self.extractor: Mapping[str, tuple[int, ...]] = self.shapes
        self.shapes = {**self.shapes, "head": (widths[-1], classes)}

    def fan_in(self, name: str) -> int:
        return self.widths[-1] if name == "head" else super().fan_in(name)

    def embed(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """f(x; θ)."""
        return super().apply(parameters, inputs)

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return torch.bmm(self.embed(parameters, inputs), parameters["head"])
