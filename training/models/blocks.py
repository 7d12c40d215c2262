"""Models over flat records: a torch module under `vmap` with values of its own to start from, and the plain sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from vflpriv.common.random import Stream
from vflpriv.errors import InputError
from vflpriv.training.models.networks import Model, ModuleModel, Parameters, initialise
from vflpriv.training.models.transformer import read_weights

__all__ = ["BlockModel", "Sum", "start"]


class BlockModel(ModuleModel):
    """A module over flat records. It is built on the meta device: it holds no values and draws no random numbers.

    `given` are the parameters' values to start from that are not drawn: those of a checkpoint, and ones and zeros for
    normalisation. With `frozen` those of the checkpoint are no parameters: all replicas share one copy. Two models
    compute the same function of their parameters if their `key` is equal; equal shapes do not suffice.
    """

    def __init__(
        self,
        key: tuple[object, ...],
        build: Callable[[], nn.Module],
        inputs: int,
        *,
        folder: Path | None = None,
        frozen: bool = False,
    ) -> None:
        with torch.device("meta"):
            super().__init__(build())
        self.key, self.inputs = key, inputs
        self.given: dict[str, Tensor] = _norms(self.module)
        self._frozen: dict[str, Tensor] = {}
        self._moved: dict[torch.device, dict[str, Tensor]] = {}
        if folder is not None:
            wanted = {name: shape for name, shape in self.shapes.items() if not name.startswith("head.")}
            weights = read_weights(folder, wanted)
            self.given = {} if frozen else weights
            self._frozen = weights if frozen else {}
        self.shapes = {name: shape for name, shape in self.shapes.items() if name not in self._frozen}

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        if inputs.dim() not in (2, 3) or inputs.shape[-1] != self.inputs:
            raise ValueError(f"Expected records of {self.inputs} values, found shape {tuple(inputs.shape)}.")
        one, fixed = {name: parameters[name] for name in self.shapes}, self._fixed(inputs.device)

        def forward(weights: dict[str, Tensor], batch: Tensor) -> Tensor:
            output: Tensor = functional_call(self.module, {**fixed, **weights}, (batch,))
            return output

        return vmap(forward, in_dims=(0, None if inputs.dim() == 2 else 0))(one, inputs)

    def _fixed(self, device: torch.device) -> dict[str, Tensor]:
        """The frozen weights, moved once to each device that computes."""
        if device not in self._moved:
            self._moved[device] = {name: value.to(device) for name, value in self._frozen.items()}
        return self._moved[device]


def _norms(module: nn.Module) -> dict[str, Tensor]:
    """Ones and zeros for normalisation layers: drawn at random they would scale every layer down."""
    return {
        f"{name}.{kind}": torch.full(tuple(parameter.shape), float(kind == "weight"))
        for name, part in module.named_modules()
        if isinstance(part, (nn.GroupNorm, nn.LayerNorm))
        for kind, parameter in part.named_parameters()
    }


class Sum:
    """The devices' logits, next to each other, summed class by class (VAFL's logistic regression)."""

    shapes: Mapping[str, tuple[int, ...]]

    def __init__(self, inputs: int, classes: int) -> None:
        if inputs % classes:
            raise InputError("model.inputs", inputs, f"a multiple of {classes}, the logits of each device")
        self.classes, self.shapes = classes, {}

    def fan_in(self, name: str) -> int:
        raise KeyError(name)

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return torch.stack(inputs.split(self.classes, dim=-1)).sum(0)


class _Drawn:
    """The parameters of a model that are drawn."""

    def __init__(self, model: Model, given: Mapping[str, Tensor]) -> None:
        self.model = model
        self.shapes: Mapping[str, tuple[int, ...]] = {n: s for n, s in model.shapes.items() if n not in given}

    def fan_in(self, name: str) -> int:
        return self.model.fan_in(name)

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return self.model.apply(parameters, inputs)


def start(model: Model, stream: Stream, party: int) -> dict[str, Tensor]:
    """The parameters a training starts from: drawn by `initialise`, or brought along by the model."""
    given: Mapping[str, Tensor] = getattr(model, "given", {})
    drawn, replicas = initialise(_Drawn(model, given), stream, party), len(stream.keys)
    brought = {n: v.to(stream.keys.device).expand(replicas, *v.shape).clone() for n, v in given.items()}
    return {name: brought[name] if name in brought else drawn[name] for name in model.shapes}
