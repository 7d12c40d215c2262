"""Models that turn embeddings or features into logits: linear and MLP heads of the ADMM engines, and summed logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch
from vflpriv.training.models.base import Mlp, Model, Parameters
from vflpriv.training.models.layers import outputs_first

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DropoutMlp", "Headed", "Linear", "Sum", "mask_name", "times"]


class Linear(Model):
    """x W without a bias: the linear head of VIMADMM (§III), and the whole model of linear ADMM."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.shapes = {"weight0": (inputs, outputs)}

    def fan_in(self, name: str) -> int:
        return self.shapes[name][0]

    def stored(self, value: Tensor) -> Tensor:
        return outputs_first(value)

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        weight = parameters["weight0"]
        return times(_for_each_replica(inputs, len(weight)), weight)


def mask_name(layer: int) -> str:
    """The name under which the dropout mask of a hidden layer is passed among the parameters."""
    return f"mask{layer}"


class DropoutMlp(Mlp):
    """The non-linear head of VIMADMM (§VI-A2): linear layers, with ReLU and dropout between them.

    It draws nothing: the units of hidden layer i are multiplied by the mask (R, B, width) that the parameters hold
    under `mask_name(i)`; without a mask all units are kept, as for evaluation.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__(widths, activate=False)

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        hidden = _for_each_replica(inputs, len(parameters["weight0"]))
        layers = len(self.widths) - 1
        for i in range(layers):
            hidden = torch.baddbmm(parameters[f"bias{i}"].unsqueeze(1), hidden, parameters[f"weight{i}"])
            if i + 1 < layers:
                hidden = torch.relu(hidden)
                mask = parameters.get(mask_name(i))
                hidden = hidden if mask is None else hidden * mask
        return hidden


class Headed(Model):
    """The device model of VIMADMM-J: an extractor f(x; θ) of any kind, and a linear head W without a bias.

    The parameters are θ under the extractor's own names, and `head`, which is W, (R, embedding, classes).
    """

    def __init__(self, extractor: Model, embedding: int, classes: int) -> None:
        self.extractor = extractor
        self.shapes = {**extractor.shapes, "head": (embedding, classes)}
        self.initial_values = extractor.initial_values
        self.key = (type(extractor), *extractor.key)

    def fan_in(self, name: str) -> int:
        return self.shapes[name][0] if name == "head" else self.extractor.fan_in(name)

    def gain(self, name: str) -> float:
        return 1.0 if name == "head" else self.extractor.gain(name)

    def stored(self, value: Tensor) -> Tensor:
        return self.extractor.stored(value)

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return times(self.extractor.apply(parameters, inputs), parameters["head"])


class Sum(Model):
    """The devices' logits, concatenated to (R, B, devices · classes), summed class by class; it has no parameters."""

    def __init__(self, inputs: int, classes: int) -> None:
        if inputs % classes:
            raise ValueError(f"Expected inputs={inputs} to be a multiple of classes={classes}.")
        self.classes, self.shapes = classes, {}

    def fan_in(self, name: str) -> int:
        raise KeyError(name)

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return torch.stack(inputs.split(self.classes, dim=-1)).sum(0)


def times(rows: Tensor, weight: Tensor) -> Tensor:
    """Their product (R, B, k), computed transposed: k is small, and products with a long last axis are faster."""
    return torch.bmm(weight.transpose(1, 2), rows.transpose(1, 2)).transpose(1, 2)


def _for_each_replica(inputs: Tensor, replicas: int) -> Tensor:
    """Inputs (R, B, …), as a view where (B, …) are shared by all replicas."""
    return inputs if inputs.dim() == 3 else inputs.expand(replicas, *inputs.shape)
