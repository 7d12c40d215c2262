"""How a zeroth-order engine's server learns: as published (sgd, zo), or with a guarantee (joint, dp-sgd, dp-zo)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from vflpriv.training._directions import Direction, Directions, Shifted, move_along
from vflpriv.training._mechanisms import Mechanism, ScalarMean, VectorMean
from vflpriv.training._models import Model, Parameters, descend
from vflpriv.training._noise import NoiseSource

__all__ = ["SERVER_UPDATES", "Losses", "ServerSettings", "ServerStep", "server_mechanism"]


class ServerSettings(Protocol):
    """The settings a server update reads."""

    @property
    def server_update(self) -> str: ...
    @property
    def smoothing(self) -> float: ...
    @property
    def server_rate(self) -> float: ...
    @property
    def momentum(self) -> float: ...
    @property
    def server_clip(self) -> float: ...
    @property
    def server_noise_std(self) -> float: ...


def server_mechanism(settings: ServerSettings, batch_size: int) -> Mechanism | None:
    """The mechanism of the server's own noised step, where it has one."""
    std, clip = settings.server_noise_std, settings.server_clip
    if settings.server_update == "dp-zo":
        return ScalarMean(noise_std=std, clip=clip, batch_size=batch_size)
    if settings.server_update == "dp-sgd":
        return VectorMean(noise_std=std, clip=clip, batch_size=batch_size)
    return None


@dataclass(frozen=True)
class Losses:
    """Log-probabilities (R, B, classes) of one evaluation, from which any label's loss is read."""

    log_probabilities: Tensor

    def of(self, labels: Tensor) -> Tensor:
        """(R, B) cross-entropy of each record under its label."""
        return -self.log_probabilities.gather(-1, labels.unsqueeze(-1)).squeeze(-1)

    def at(self, place: int, labels: tuple[int, int]) -> Tensor:
        """(R, 2) cross-entropy of the record at one place under each of two labels."""
        return -self.log_probabilities[:, place][:, list(labels)]


@dataclass(frozen=True, eq=False, kw_only=True)
class ServerStep:
    """All the server has in hand in one round."""

    settings: ServerSettings
    model: Model
    parameters: dict[str, Tensor]
    velocity: dict[str, Tensor]
    rows: Tensor
    """(R, B, all embeddings): the table's rows of the batch, stale for the other devices."""
    columns: slice
    mean: Tensor
    labels: Tensor
    batch_size: int
    round: int
    party: int
    directions: Directions
    noise: NoiseSource

    @cached_property
    def direction(self) -> Direction:
        return self.directions.at(self.round, self.party)

    @property
    def pair(self) -> tuple[Parameters, Parameters]:
        """w0 + λu0 and w0 - λu0."""
        step = self.settings.smoothing
        return Shifted(self.parameters, self.direction, step), Shifted(self.parameters, self.direction, -step)

    def inputs(self, embedding: Tensor) -> Tensor:
        """The table's rows with the active device's columns replaced."""
        return torch.cat((self.rows[..., : self.columns.start], embedding, self.rows[..., self.columns.stop :]), dim=-1)

    def losses(self, parameters: Parameters, embedding: Tensor) -> Losses:
        return Losses(torch.log_softmax(self.model.apply(parameters, self.inputs(embedding)), dim=-1))

    def own_differences(self) -> Tensor:
        """(R, B) the server's own finite differences, divided by 2λ as in dpzv-journal eq. (3)."""
        plus, minus = (self.losses(p, self.mean).of(self.labels) for p in self.pair)
        return (plus - minus) / (2 * self.settings.smoothing)

    def along(self, scalar: Tensor) -> None:
        move_along(
            self.parameters,
            self.direction,
            scalar,
            rate=self.settings.server_rate,
            momentum=self.settings.momentum,
            velocity=self.velocity,
        )

    def against(self, gradient: Mapping[str, Tensor]) -> None:
        descend(
            self.parameters,
            gradient,
            rate=self.settings.server_rate,
            momentum=self.settings.momentum,
            velocity=self.velocity,
        )


class ServerUpdate:
    """A rule: which w0 the device's two evaluations use, and how w0 moves afterwards."""

    def weights(self, step: ServerStep) -> tuple[Parameters, Parameters]:
        return step.parameters, step.parameters

    def apply(self, step: ServerStep, delta: Tensor) -> None:
        raise TypeError(f"Expected {type(self).__name__} to define apply().")


class Sgd(ServerUpdate):
    """Plain first-order step on the labels (published, option ii): w0 then carries them into every later release."""

    def apply(self, step: ServerStep, delta: Tensor) -> None:
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in step.parameters.items()}
            loss = step.losses(leaves, step.mean).of(step.labels).sum() / step.batch_size
            gradient = torch.autograd.grad(loss, list(leaves.values()))
        step.against(dict(zip(leaves, gradient, strict=True)))


class Zo(ServerUpdate):
    """Plain zeroth-order step on the labels (published, option i): the same leak."""

    def apply(self, step: ServerStep, delta: Tensor) -> None:
        step.along(step.own_differences().sum(1) / step.batch_size)


class Joint(ServerUpdate):
    """w0 is shifted by ±λu0 in the device's own two evaluations, and moves along u0 by the released scalar.

    Nothing that is ever read later has seen a label except through that scalar: post-processing, for every view.
    """

    def weights(self, step: ServerStep) -> tuple[Parameters, Parameters]:
        return step.pair

    def apply(self, step: ServerStep, delta: Tensor) -> None:
        step.along(delta)


class DpZo(ServerUpdate):
    """The zeroth-order step with a clip and noise of its own."""

    def apply(self, step: ServerStep, delta: Tensor) -> None:
        mechanism = server_mechanism(step.settings, step.batch_size)
        assert mechanism is not None
        step.along(mechanism.release(mechanism.noiseless(step.own_differences()), step.noise.scalar(step.round)))


class DpSgd(ServerUpdate):
    """The first-order step with per-record clipping and noise."""

    def apply(self, step: ServerStep, delta: Tensor) -> None:
        mechanism = server_mechanism(step.settings, step.batch_size)
        assert mechanism is not None

        gradients = self._per_record(step)
        flat = torch.cat([value.flatten(2) for value in gradients.values()], dim=-1)
        normals = step.noise.tensor((flat.shape[-1],), step.round, step.party)
        released = mechanism.release(mechanism.noiseless(flat), normals)
        parts = released.split([value[0, 0].numel() for value in gradients.values()], dim=-1)
        step.against({n: p.unflatten(1, g.shape[2:]) for (n, g), p in zip(gradients.items(), parts, strict=True)})

    @staticmethod
    def _per_record(step: ServerStep) -> dict[str, Tensor]:
        """(R, B, *shape) gradients: each record gets a copy of the parameters, as if it were a replica of its own."""
        rows, count = step.inputs(step.mean), step.labels.shape[1]
        with torch.enable_grad():
            leaves = {n: v.repeat_interleave(count, 0).requires_grad_() for n, v in step.parameters.items()}
            logits = step.model.apply(leaves, rows.flatten(0, 1).unsqueeze(1)).squeeze(1)
            loss = torch.nn.functional.cross_entropy(logits, step.labels.flatten(), reduction="sum")
            gradients = torch.autograd.grad(loss, list(leaves.values()))
        return {n: g.unflatten(0, (-1, count)) for n, g in zip(leaves, gradients, strict=True)}


SERVER_UPDATES: Mapping[str, ServerUpdate] = {
    "sgd": Sgd(),
    "zo": Zo(),
    "joint": Joint(),
    "dp-sgd": DpSgd(),
    "dp-zo": DpZo(),
}
