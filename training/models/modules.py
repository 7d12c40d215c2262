"""Any stateless torch module over flat records, as a model with a replica axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from vflpriv.training.models.architectures import ConvNet
from vflpriv.training.models.base import Model, Parameters
from vflpriv.training.models.mlp import RandomNeurons

__all__ = ["ModuleModel", "NoisyConvNet"]

_RECORDS = 4
"""Records that a pass takes at once where memory is to be saved."""
_MANY = 512
"""Records of a batch from which on a CPU computes one replica after the other: `vmap` makes one grouped convolution of
all of them, which is then about twice as slow (benchmarks/stacked_modules.py)."""


class ModuleModel(Model):
    """`module`, a function of (B, inputs), called by `functional_call`, under `vmap` for all replicas at once.

    The module must keep no state, such as batch statistics. Its own tensors are never read, so that it may be built on
    the meta device, where it takes no memory and draws no random numbers. Normalisation layers start at ones and zeros:
    drawn at random they would scale every layer down. `weights` are values of a checkpoint for some parameters: the
    training starts from them or, if they are `frozen`, they are no parameters and all replicas share one copy.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        inputs: int,
        key: tuple[object, ...],
        weights: Mapping[str, Tensor] | None = None,
        frozen: bool = False,
    ) -> None:
        self.module, self.inputs, self.key = module, inputs, key
        self._frozen = dict(weights or {}) if frozen else {}
        self._from_checkpoint = frozenset(weights or ())
        self._moved: dict[torch.device, dict[str, Tensor]] = {}
        self.shapes = {n: tuple(p.shape) for n, p in module.named_parameters() if n not in self._frozen}
        starting = {**_normalisation(module), **(weights or {})}
        self._bent = _bent(module)
        self.initial_values = {n: v for n, v in starting.items() if n in self.shapes}

    @property
    def published(self) -> Mapping[str, Tensor] | None:
        return self.initial_values if self._from_checkpoint.issuperset(self.shapes) else None

    def fan_in(self, name: str) -> int:
        weight = self.shapes.get(f"{name.rpartition('.')[0]}.weight", self.shapes[name])
        return max(1, math.prod(weight[1:]))

    def gain(self, name: str) -> float:
        """√6 for convolutions that a ReLU follows directly (He et al. 2015).

        Drawn as torch.nn does, each of them would make records more alike: after four, outputs hardly differ.
        """
        return math.sqrt(6) if name in self._bent else 1.0

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        self._check(inputs)
        trained = {name: parameters[name] for name in self.shapes}
        forward, further = partial(self._forward, self._frozen_on(inputs.device)), self.further(parameters)
        if inputs.device.type == "cpu" and inputs.shape[-2] >= _MANY:
            replicas = len(next(iter(trained.values())))
            rows = inputs.expand(replicas, *inputs.shape[-2:])
            by_replica = zip(_unstacked(trained), rows, *further, strict=True)
            return torch.stack([forward(*own) for own in by_replica])
        of_inputs = None if inputs.dim() == 2 else 0
        return vmap(forward, in_dims=(0, of_inputs, *(0 for _ in further)))(trained, inputs, *further)

    def apply_sparingly(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """A few records at a time, whose activations add up; a single replica without `vmap`, which copies weights."""
        self._check(inputs)
        few = inputs.split(_RECORDS, dim=-2)
        if any(len(value) != 1 for value in parameters.values()):
            return torch.cat([self.apply(parameters, rows) for rows in few], dim=1)
        frozen, only = self._frozen_on(inputs.device), {name: parameters[name][0] for name in self.shapes}
        return torch.cat([self._forward(frozen, only, rows.reshape(rows.shape[-2:])) for rows in few]).unsqueeze(0)

    def _forward(self, frozen: dict[str, Tensor], trained: dict[str, Tensor], rows: Tensor, *further: Tensor) -> Tensor:
        """Outputs (B, k) of one replica."""
        output: Tensor = functional_call(self.module, {**frozen, **trained}, (rows, *further))
        return output

    def _check(self, inputs: Tensor) -> None:
        if inputs.dim() not in (2, 3) or inputs.shape[-1] != self.inputs:
            raise ValueError(f"Expected records of {self.inputs} values, found shape {tuple(inputs.shape)}.")

    def further(self, parameters: Parameters) -> Sequence[Tensor]:
        """(R, …) what the module takes beside the records."""
        return ()

    def _frozen_on(self, device: torch.device) -> dict[str, Tensor]:
        """The frozen weights, moved once to each device that computes."""
        if device not in self._moved:
            self._moved[device] = {name: value.to(device) for name, value in self._frozen.items()}
        return self._moved[device]


class NoisyConvNet(RandomNeurons, ModuleModel):
    """A `ConvNet` with random neurons at its convolutions; `noise` is c_l of all of them, or of each one."""

    def __init__(
        self, module: ConvNet, *, inputs: int, key: tuple[object, ...], noise: float | Sequence[float]
    ) -> None:
        super().__init__(module, inputs=inputs, key=key)
        self.neuron_shapes = module.map_shapes
        self.noise = [noise] * len(module.map_shapes) if isinstance(noise, int | float) else noise

    def further(self, parameters: Parameters) -> Sequence[Tensor]:
        names = [f"neuron{layer}" for layer in range(len(self.neuron_shapes))]
        return [parameters[name] for name in names if name in parameters]


def _unstacked(parameters: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The parameters of each replica."""
    for values in zip(*parameters.values(), strict=True):
        yield dict(zip(parameters, values, strict=True))


def _bent(module: nn.Module) -> frozenset[str]:
    """The weights of convolutions that a ReLU follows directly."""
    sequences = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Sequential)]
    return frozenset(
        f"{name}.{own}.weight".lstrip(".")
        for name, sequence in sequences
        for (own, part), (_, after) in pairwise(sequence.named_children())
        if isinstance(part, nn.Conv2d) and isinstance(after, nn.ReLU)
    )


def _normalisation(module: nn.Module) -> dict[str, Tensor]:
    """Weights of one and biases of zero for every normalisation layer."""
    return {
        f"{name}.{kind}": torch.full(tuple(parameter.shape), float(kind == "weight"))
        for name, part in module.named_modules()
        if isinstance(part, (nn.GroupNorm, nn.LayerNorm))
        for kind, parameter in part.named_parameters()
    }
