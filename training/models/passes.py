"""One forward pass of stacked models and the gradient steps that follow it: what a party does between two messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflpriv.common.lazy import gradients_along, no_grad, torch
from vflpriv.training.models.base import Model, Parameters, descend
from vflpriv.training.models.layers import LayersPass, Sgd, Slope, empty_rows
from vflpriv.training.models.mlp import FusedMlp

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Pass", "Sgd", "Slope", "constant", "leaves_of", "start"]


class Pass(ABC):
    """A forward pass of models that are stacked along the first axis. It goes backward once."""

    outputs: Tensor
    """(k, B, …), without a graph. They are new memory, which later steps leave as it is."""

    @abstractmethod
    def descend(
        self, slope: Slope, velocity: dict[str, Tensor], sgd: Sgd, *, steps: int = 1, together: bool = False
    ) -> None:
        """`steps` SGD steps, in place: the first goes back through this pass, each other one through a new pass.

        `velocity` holds the momentum buffers by parameter name; with momentum, those that are missing start at zero. An
        MLP takes its steps a few models at a time, so that their values stay in the cache, unless `together`.
        """

    @abstractmethod
    def by_inputs(self, by_outputs: Tensor) -> Tensor:
        """The gradient of the inputs."""

    @abstractmethod
    def descend_and_return(self, by_outputs: Tensor, velocity: dict[str, Tensor], sgd: Sgd) -> Tensor:
        """One SGD step, in place, and the gradient of the inputs before it."""


def start(
    model: Model,
    parameters: Parameters,
    inputs: Tensor,
    extra: Parameters | None = None,
    *,
    learn: bool = True,
    fixed: bool = True,
) -> Pass:
    """A pass of inputs (k, B, n), or of rows that groups of models share, (groups, models of a group, B, n).

    `extra` is what the model reads beside parameters, such as the noise of neurons. Without `learn` the parameters are
    not stepped afterwards; `fixed` inputs are not differentiated by.
    """
    if isinstance(model, FusedMlp) and not extra:
        return _Fused(model, parameters, inputs)
    rows = inputs.flatten(0, 1) if inputs.dim() == 4 else inputs
    return _Differentiated(model, parameters, rows, extra or {}, learn=learn, fixed=fixed)


def leaves_of(parameters: Parameters) -> dict[str, Tensor]:
    """The same parameters as leaves that autograd can differentiate by; they share the parameters' memory."""
    return {name: value.detach().requires_grad_() for name, value in parameters.items()}


def constant(gradient: Tensor) -> Slope:
    """The slope of an objective that is linear in the outputs."""
    return lambda models, step, outputs: gradient[models]


class _Fused(Pass):
    """Matrix products in memory that is reused."""

    def __init__(self, model: FusedMlp, parameters: Parameters, inputs: Tensor) -> None:
        self._model, self._parameters = model, parameters
        with torch.no_grad():
            self._pass: LayersPass = model.start(parameters, inputs)
        self.outputs = self._pass.outputs
        self._inputs_shape = (*self.outputs.shape[:2], inputs.shape[-1])

    def descend(
        self, slope: Slope, velocity: dict[str, Tensor], sgd: Sgd, *, steps: int = 1, together: bool = False
    ) -> None:
        self._pass.descend(slope, self._moves(velocity, sgd), sgd, steps=steps, together=together)

    @no_grad
    def by_inputs(self, by_outputs: Tensor) -> Tensor:
        by_inputs = empty_rows(self.outputs, *self._inputs_shape)
        self._pass.backward(by_outputs, [], by_inputs)
        return by_inputs

    def descend_and_return(self, by_outputs: Tensor, velocity: dict[str, Tensor], sgd: Sgd) -> Tensor:
        by_inputs = empty_rows(self.outputs, *self._inputs_shape)
        self._pass.descend(constant(by_outputs), self._moves(velocity, sgd), sgd, by_inputs=by_inputs)
        return by_inputs

    def _moves(self, velocity: dict[str, Tensor], sgd: Sgd) -> list[Tensor]:
        if not sgd.momentum:
            return []
        for name in self._model.names:
            if name not in velocity:
                velocity[name] = torch.zeros_like(self._parameters[name])
        return self._model.flat(velocity)


class _Differentiated(Pass):
    """Autograd, for models of any kind. The graph reaches parameters that `learn`, and inputs that are not `fixed`."""

    def __init__(
        self, model: Model, parameters: Parameters, inputs: Tensor, extra: Parameters, *, learn: bool, fixed: bool
    ) -> None:
        self._model, self._parameters, self._extra, self._learn = model, parameters, extra, learn
        self._inputs = inputs if fixed else inputs.detach().requires_grad_()
        self._forward()

    def _forward(self) -> None:
        self._leaves = leaves_of(self._parameters) if self._learn else dict(self._parameters)
        with torch.enable_grad():
            self._graph = self._model.apply({**self._leaves, **self._extra}, self._inputs)
        self.outputs = self._graph.detach()

    def descend(
        self, slope: Slope, velocity: dict[str, Tensor], sgd: Sgd, *, steps: int = 1, together: bool = False
    ) -> None:
        for step in range(steps):
            if step:
                self._forward()
            by_outputs = slope(slice(0, len(self.outputs)), step, self.outputs)
            self._descend(gradients_along(self._graph, list(self._leaves.values()), by_outputs), velocity, sgd)

    def by_inputs(self, by_outputs: Tensor) -> Tensor:
        return gradients_along(self._graph, [self._inputs], by_outputs)[0]

    def descend_and_return(self, by_outputs: Tensor, velocity: dict[str, Tensor], sgd: Sgd) -> Tensor:
        leaves = [self._inputs, *self._leaves.values()]
        by_inputs, *gradients = gradients_along(self._graph, leaves, by_outputs)
        self._descend(gradients, velocity, sgd)
        return by_inputs

    def _descend(self, gradients: Sequence[Tensor], velocity: dict[str, Tensor], sgd: Sgd) -> None:
        named = dict(zip(self._leaves, gradients, strict=True))
        rate, momentum, decay = sgd.rate, sgd.momentum, sgd.weight_decay
        descend(self._parameters, named, rate=rate, momentum=momentum, velocity=velocity, weight_decay=decay)
