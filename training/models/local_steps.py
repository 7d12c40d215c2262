"""Several SGD steps of the same models on the same rows: what a device does between two messages."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vflpriv.training.models.fused import FusedMlp, Layers, empty
from vflpriv.training.models.networks import Model, Parameters, descend

__all__ = ["Slope", "local_steps"]

Slope = Callable[[slice, int, Tensor], Tensor]
"""The gradient of the objective by the outputs (k, B, …) of the k models `rows`, in one step."""

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
    """`steps` steps of the stacked models (devices · R, …) in place; `velocity` is theirs, empty without momentum.

    A few models at a time take all their steps, unless `together`: their rows stay in the cache.
    """
    if not isinstance(model, FusedMlp) or inputs.dim() != 3:
        for step in range(steps):
            leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
            with torch.enable_grad():
                outputs = model.apply(leaves, inputs)
            upstream = slope(slice(0, len(outputs)), step, outputs.detach())
            found = dict(zip(leaves, torch.autograd.grad(outputs, list(leaves.values()), upstream), strict=True))
            descend(parameters, found, rate=rate, momentum=momentum, velocity=velocity, weight_decay=weight_decay)
        return
    for rows in [slice(0, len(inputs))] if together else model.chunks(inputs):
        own = {name: value[rows] for name, value in parameters.items()}
        speed = {name: value[rows] for name, value in velocity.items()}
        x, flat = inputs[rows], model.flat(own)
        models, records, _ = x.shape
        values = [empty(x, models, records, width, narrow=_NARROW) for width in model.widths[1:]]
        slopes = [None, *(torch.empty_like(value) for value in values)]
        layers = Layers([x, *values], flat[::2], flat[1::2], activate=model.activate)
        room = layers.room(narrow=_NARROW)
        gradient = model.named(room)
        for step in range(steps):
            layers.up()
            layers.down(slope(rows, step, values[-1]), slopes, room)
            descend(own, gradient, rate=rate, momentum=momentum, velocity=speed, weight_decay=weight_decay)
