"""What a model with a replica axis is, how its parameters start, the gradient step that moves them, and the plain MLP.

R replicas of a training advance together: a parameter is one tensor (R, *shape), and one call computes all replicas.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import count, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING

from vflpriv.common.lazy import no_grad, torch
from vflpriv.core.law import Draws

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Mlp",
    "Model",
    "Parameters",
    "affine",
    "descend",
    "first_replicas",
    "initialise",
    "is_narrow",
    "loss_gradient",
    "product",
    "size_of",
]

Parameters = Mapping[str, "Tensor"]
"""Parameters by name, (R, *shape) each."""

_NARROW = 32
"""Up to this width a layer's outputs lie records last in memory."""


class Model(ABC):
    """A function of parameters and inputs without any state of its own: it holds no parameters and draws nothing."""

    shapes: Mapping[str, tuple[int, ...]]
    """Shape of each parameter of one replica, in the order in which they are used."""
    initial_values: Mapping[str, Tensor] = MappingProxyType({})
    """Starting values, `shape` each, of the parameters that are not drawn at random."""
    key: tuple[object, ...] = ()
    """Two models of one class compute the same function of their parameters if their keys and shapes are equal."""

    @property
    def published(self) -> Mapping[str, Tensor] | None:
        """The starting values, `shape` each, where all are those of a checkpoint that anybody can download."""
        return None

    @abstractmethod
    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Outputs (R, B, …) for inputs (R, B, …), or for inputs (B, …) that all replicas share."""

    def apply_sparingly(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """The same outputs, up to rounding, with as little memory as there is a way to, even if that takes longer."""
        return self.apply(parameters, inputs)

    @abstractmethod
    def fan_in(self, name: str) -> int:
        """The number of inputs that one output of this parameter's layer sums over."""

    def gain(self, name: str) -> float:
        """How many times as far from zero as torch.nn draws it this parameter starts."""
        return 1.0

    def stored(self, value: Tensor) -> Tensor:
        """The same parameter (R, *shape), in the order of memory in which this model's passes are fastest."""
        return value


def size_of(model: Model) -> int:
    """The number of parameters of one replica."""
    return sum(math.prod(shape) for shape in model.shapes.values())


def initialise(model: Model, stream: Draws, party: int) -> dict[str, Tensor]:
    """The (R, *shape) parameters that a training starts from, in new memory.

    They are uniform in ±gain/√fan_in, with a gain of one as torch.nn draws them, each replica from its own random
    sequence; those in `model.initial_values` are copied for every replica. `party` numbers the sequences of one run's
    models.
    """
    replicas, index = stream.replicas, count()

    def drawn(name: str, shape: tuple[int, ...]) -> Tensor:
        bound = model.gain(name) / math.sqrt(model.fan_in(name))
        uniform = stream.uniform(math.prod(shape), party, next(index))
        values: Tensor = ((2 * uniform - 1) * bound).unflatten(1, shape)
        return values

    def copied(value: Tensor) -> Tensor:
        return value.to(stream.device).expand(replicas, *value.shape).clone()

    given = model.initial_values
    starts = {n: copied(given[n]) if n in given else drawn(n, shape) for n, shape in model.shapes.items()}
    return {name: model.stored(value) for name, value in starts.items()}


def first_replicas(parameters: Parameters, count: int) -> dict[str, Tensor]:
    """The parameters of the first `count` replicas, as views."""
    return {name: value[:count] for name, value in parameters.items()}


def loss_gradient(logits: Tensor, labels: Tensor, batch_size: int) -> Tensor:
    """The gradient by logits (R, B, C) of the summed cross-entropy over the batch size: softmax - target.

    The target are labels (R, B) or a posterior (R, B, C), through which no gradient flows. Records lie last in memory.
    """
    # Over the second axis: a softmax over a short last one is several times slower.
    gradient = torch.softmax(logits.transpose(1, 2), 1)
    if labels.is_floating_point():
        gradient = gradient - labels.transpose(1, 2)
    else:
        gradient.scatter_add_(1, labels.unsqueeze(1), gradient.new_full((), -1.0).expand(labels.unsqueeze(1).shape))
    return gradient.div_(batch_size).transpose(1, 2)


@no_grad
def descend(
    parameters: Parameters,
    gradient: Parameters,
    *,
    rate: float,
    momentum: float,
    velocity: dict[str, Tensor],
    weight_decay: float = 0.0,
) -> None:
    """w -= rate · gradient, in place, with heavy-ball momentum and ℓ2 weight decay where they are not zero.

    With momentum, `velocity` holds the momentum buffers by parameter name: they are updated in place, and made by the
    first step. `gradient` is never changed.
    """
    for name, value in parameters.items():
        step = gradient[name]
        if momentum and name in velocity:
            step = velocity[name].mul_(momentum).add_(step)
        elif momentum:
            step = velocity[name] = step.clone()
        if weight_decay:
            step = (step.add_ if momentum else step.add)(value, alpha=weight_decay)
        value.sub_(step, alpha=rate)


class Mlp(Model):
    """Linear layers `weight0`, `bias0`, … with ReLU between them, and after the last one if `activate`.

    `widths` are those of inputs, hidden layers and outputs. Layers are batched matrix products over the replicas.
    """

    def __init__(self, widths: Sequence[int], *, activate: bool) -> None:
        self.widths = tuple(widths)
        self.activate = activate
        self.shapes = {
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

    def after_first(self, parameters: Parameters, sums: Tensor, *, overwrite: bool = False) -> Tensor:
        """Outputs (R, k, B) given the first layer's W x + b, (R, n, B): both records last."""
        relu = torch.relu_ if overwrite else torch.relu
        for i in range(1, len(self.widths) - 1):
            # Never two layers' parameters at once: they may be made when they are indexed.
            sums = affine(parameters[f"weight{i}"], parameters[f"bias{i}"], relu(sums))
        return relu(sums) if self.activate else sums


def affine(weights: Tensor, biases: Tensor, rows: Tensor) -> Tensor:
    """(R, k, B) from weights (R, n, k), biases (R, k) and rows (R, n, B): records last, one product per replica."""
    if is_narrow(weights):
        return torch.baddbmm(biases.unsqueeze(2), weights.transpose(1, 2), rows)
    return torch.baddbmm(biases.unsqueeze(1), rows.transpose(1, 2), weights).transpose(1, 2)


def product(weights: Tensor, rows: Tensor) -> Tensor:
    """`affine` without biases."""
    if is_narrow(weights):
        return torch.bmm(weights.transpose(1, 2), rows)
    return torch.bmm(rows.transpose(1, 2), weights).transpose(1, 2)


def is_narrow(weights: Tensor) -> bool:
    """Whether the outputs of weights (R, n, k) lie records last in memory."""
    return weights.shape[2] <= _NARROW


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(R, B, out) from inputs (R, B, in), or from (B, in) that all replicas share: then one product for all of them."""
    if inputs.dim() == 3:
        return torch.baddbmm(bias.unsqueeze(1), inputs, weight)
    replicas, _, width = weight.shape
    outputs = torch.addmm(bias.flatten(), inputs, weight.transpose(0, 1).flatten(1))
    return outputs.reshape(-1, replicas, width).transpose(0, 1)
