"""Mechanisms of the uplink: what a device sends of a batch, scaled into a ball, with noise on every entry."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from vflpriv.training._emptied import Emptied
from vflpriv.training._mechanisms import Mechanism
from vflpriv.units import Unit

__all__ = ["ClientClip", "EmbeddingClip"]


@dataclass(frozen=True, kw_only=True)
class ClientClip(Mechanism):
    """A device's batch matrix, scaled into the Frobenius ball of radius C (vimadmm.txt §V).

    Any two points of the ball are at most 2C apart (`client`). Scaling into a ball is the projection onto it, so one
    replaced row moves it by at most 2C; a removed row leaves an angle of at most 90° between the two matrices, hence
    √2·C (`add-remove`). A device with zeros for data sends what its model makes of zeros (`client-zero`, see
    `Emptied`). Lemma 6 of the paper takes that to be zeros and declares C, which holds for models without biases.
    """

    clip: float
    emptied: Emptied = Emptied.ANYTHING

    def blank(self, other: Tensor) -> Tensor:
        return Emptied(self.emptied).blank(other)

    def admissible(self, unit: Unit, values: Tensor) -> Tensor:
        return Emptied(self.emptied).outputs(values) if unit is Unit.CLIENT_ZERO else values

    def noiseless(self, values: Tensor) -> Tensor:
        norm = values.square().sum((-2, -1)).sqrt().clamp(min=1e-30)
        return values * (self.clip / norm).clamp(max=1.0)[..., None, None]

    @property
    def sensitivity(self) -> Mapping[Unit, float]:
        return {
            Unit.RECORD: 2 * self.clip,
            Unit.FEATURES: 2 * self.clip,
            Unit.ADD_REMOVE: math.sqrt(2) * self.clip,
            Unit.CLIENT_ZERO: Emptied(self.emptied).factor * self.clip,
            Unit.CLIENT: 2 * self.clip,
        }

    @property
    def declared(self) -> Mapping[Unit, float]:
        return {**self.sensitivity, Unit.CLIENT_ZERO: self.clip}  # Lemma 6


@dataclass(frozen=True, kw_only=True)
class EmbeddingClip(Mechanism):
    """Each record's own embedding, scaled into the L2 ball of radius C; nothing is averaged.

    Replacing a record moves its row by at most 2C, removing it by at most C; a device moves all B rows at once: √B
    times as much. With zeros for data it sends what its model makes of zeros (`client-zero`, see `Emptied`).
    """

    clip: float
    batch_size: int
    emptied: Emptied = Emptied.ANYTHING

    def blank(self, other: Tensor) -> Tensor:
        return Emptied(self.emptied).blank(other)

    def admissible(self, unit: Unit, values: Tensor) -> Tensor:
        return Emptied(self.emptied).outputs(values) if unit is Unit.CLIENT_ZERO else values

    def noiseless(self, values: Tensor) -> Tensor:
        norm = values.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-30)
        return values * (self.clip / norm).clamp(max=1.0)

    @property
    def sensitivity(self) -> Mapping[Unit, float]:
        whole = self.clip * math.sqrt(self.batch_size)
        return {
            Unit.RECORD: 2 * self.clip,
            Unit.FEATURES: 2 * self.clip,
            Unit.ADD_REMOVE: self.clip,
            Unit.CLIENT_ZERO: Emptied(self.emptied).factor * whole,
            Unit.CLIENT: 2 * whole,
        }
