"""Models with a replica axis: parameters are (R, *shape), one call advances all replicas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from vflpriv.common.random import Stream

__all__ = ["Mlp", "Model", "ModuleModel", "Parameters", "descend", "first_replicas", "initialise", "size_of"]

Parameters = Mapping[str, Tensor]


class Model(Protocol):
    """A function of parameters and inputs. `shapes` are those of one replica, in the order they are used."""

    shapes: Mapping[str, tuple[int, ...]]

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Outputs (R, B, …) for inputs (R, B, …), or for (B, …) that all replicas share."""
        ...

    def fan_in(self, name: str) -> int:
        """How many inputs one output of this parameter's layer sums over."""
        ...


def size_of(model: Model) -> int:
    """The number of parameters of one replica."""
    return sum(math.prod(shape) for shape in model.shapes.values())


def initialise(model: Model, stream: Stream, party: int) -> dict[str, Tensor]:
    """Uniform in ±1/√fan_in (what torch.nn draws), each replica from its own stream."""
    parameters = {}
    for index, (name, shape) in enumerate(model.shapes.items()):
        bound = 1 / math.sqrt(model.fan_in(name))
        uniform = stream.uniform(math.prod(shape), party, index)
        parameters[name] = ((2 * uniform - 1) * bound).unflatten(1, shape)
    return parameters


def first_replicas(parameters: Parameters, count: int) -> dict[str, Tensor]:
    """The first replicas' parameters."""
    return {name: value[:count] for name, value in parameters.items()}


@torch.no_grad()
def descend(
    parameters: Parameters,
    gradient: Parameters,
    *,
    rate: float,
    momentum: float,
    velocity: dict[str, Tensor],
    weight_decay: float = 0.0,
) -> None:
    """w -= rate · gradient in place, with heavy-ball momentum and ℓ2 weight decay if asked for."""
    for name, value in parameters.items():
        step = gradient[name]
        if momentum and name in velocity:
            step = velocity[name].mul_(momentum).add_(step)
        elif momentum:
            step = velocity[name] = step.clone()
        if weight_decay:
            step = (step.add_ if momentum else step.add)(value, alpha=weight_decay)
        value.sub_(step, alpha=rate)


class Mlp:
    """Linear layers with ReLU between them (and behind the last one if `activate`), as batched matrix products."""

    def __init__(self, widths: Sequence[int], *, activate: bool) -> None:
        self.widths = tuple(widths)
        self.activate = activate
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: shape
            for i, (n, k) in enumerate(pairwise(widths))
            for name, shape in ((f"weight{i}", (n, k)), (f"bias{i}", (k,)))
        }

    def fan_in(self, name: str) -> int:
        return self.widths[int(name.removeprefix("weight").removeprefix("bias"))]

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        layers = len(self.widths) - 1
        hidden = inputs
        for i in range(layers):
            hidden = _linear(hidden, parameters[f"weight{i}"], parameters[f"bias{i}"])
            if i + 1 < layers or self.activate:
                hidden = torch.relu(hidden)
        return hidden


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(R, B, out) from inputs (R, B, in), or (B, in) that all replicas share: one product for all of them."""
    if inputs.dim() == 3:
        return torch.baddbmm(bias.unsqueeze(1), inputs, weight)
    replicas, _, width = weight.shape
    outputs = torch.addmm(bias.flatten(), inputs, weight.transpose(0, 1).flatten(1))
    return outputs.reshape(-1, replicas, width).transpose(0, 1)


class ModuleModel:
    """Any torch module, by `functional_call` under `vmap`; it must be stateless (no batch statistics)."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.shapes: Mapping[str, tuple[int, ...]] = {n: tuple(p.shape) for n, p in module.named_parameters()}

    def fan_in(self, name: str) -> int:
        weight = self.shapes.get(f"{name.rpartition('.')[0]}.weight", self.shapes[name])
        return max(1, math.prod(weight[1:]))

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        one = {name: parameters[name] for name in self.shapes}
        features = next(p for p in self.module.parameters()).dim()
        shared = inputs.dim() == features if features > 2 else inputs.dim() == 2

        def forward(weights: dict[str, Tensor], batch: Tensor) -> Tensor:
            output: Tensor = functional_call(self.module, weights, (batch,))
            return output

        return vmap(forward, in_dims=(0, None if shared else 0))(one, inputs)
