"""Several SGD steps of the same models on the same records: what a device does between two messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch
from vflpriv.training.models.base import Model, Parameters, descend
from vflpriv.training.models.mlp import FusedMlp, Layers, empty_rows

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Slope", "local_steps"]

Slope = Callable[[slice, int, "Tensor"], "Tensor"]
"""(models, step, outputs) → gradient of the objective by `outputs` (k, B, …), which are those of the slice `models`."""

_NARROW = 64


def local_steps(
    model: Model,
    parameters: Parameters,
    velocity: dict[str, Tensor],
    inputs: Tensor,
    slope: Slope,
    *,
    steps: int,
    rate: float,
    momentum: float,
    weight_decay: float,
    together: bool = False,
) -> None:
    """`steps` SGD steps, in place, of models that are stacked along the first axis (devices · R, …).

    `velocity` holds their momentum buffers, and is empty without momentum. A `FusedMlp` takes its steps a few models at
    a time, so that their values stay in the cache, unless `together`; any other model is differentiated by autograd.
    """
    step = partial(descend, rate=rate, momentum=momentum, weight_decay=weight_decay)
    if not isinstance(model, FusedMlp) or inputs.dim() != 3:
        _by_autograd(model, parameters, velocity, inputs, slope, steps, step)
        return
    for models in [slice(0, len(inputs))] if together else model.chunks(inputs):
        _fused(model, models, parameters, velocity, inputs[models], slope, steps, step)


def _by_autograd(
    model: Model,
    parameters: Parameters,
    velocity: dict[str, Tensor],
    inputs: Tensor,
    slope: Slope,
    steps: int,
    descend_: Callable[..., None],
) -> None:
    for step in range(steps):
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        with torch.enable_grad():
            outputs = model.apply(leaves, inputs)
        upstream = slope(slice(0, len(outputs)), step, outputs.detach())
        gradients = torch.autograd.grad(outputs, list(leaves.values()), upstream)
        descend_(parameters, dict(zip(leaves, gradients, strict=True)), velocity=velocity)


def _fused(
    model: FusedMlp,
    models: slice,
    parameters: Parameters,
    velocity: dict[str, Tensor],
    inputs: Tensor,
    slope: Slope,
    steps: int,
    descend_: Callable[..., None],
) -> None:
    """All steps of some models, in memory that is allocated once; `inputs` are those models' own."""
    parameters = {name: value[models] for name, value in parameters.items()}
    velocity = {name: value[models] for name, value in velocity.items()}
    flat, (count, records, _) = model.flat(parameters), inputs.shape
    values = [empty_rows(inputs, count, records, width, narrow=_NARROW) for width in model.widths[1:]]
    value_gradients = [None, *(torch.empty_like(value) for value in values)]
    layers = Layers([inputs, *values], flat[::2], flat[1::2], activate=model.activate)
    gradients = layers.gradient_memory(narrow=_NARROW)
    for step in range(steps):
        layers.forward()
        layers.backward(slope(models, step, values[-1]), value_gradients, gradients)
        descend_(parameters, model.named(gradients), velocity=velocity)
