"""Clips of what devices send: how far one record or one device can move an uplink, before noise is added."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch
from vflpriv.core.units import FEATURE_UNITS, Unit
from vflpriv.training.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ClientClip", "EmbeddingClip", "Emptied", "Unclipped"]

_RAW = ("transformer-embedding",)
_WITHOUT_BIAS = ("resnet18-stem",)


class Emptied(StrEnum):
    """The outputs h(0) of a device's model for zeros; with biases they are not zeros themselves.

    Clipped into a ball of radius C, they and what the device sends otherwise are at most `factor`·C apart: C where
    h(0) = 0; √2·C where all outputs are non-negative, since two such points are at an angle of at most 90°; and 2C,
    opposite sides of the ball, where nothing is known.
    """

    ZEROS = "zeros"
    NON_NEGATIVE = "non-negative"
    ANYTHING = "anything"

    @classmethod
    def by(cls, bottom: str, *, logits: bool) -> Emptied:
        """For a kind of model that sends logits, or activations, which have a ReLU behind the last layer.

        ResNet's first convolution has neither ReLU nor bias; an encoder's embedding layer has no ReLU.
        """
        if logits or bottom in _RAW:
            return cls.ANYTHING
        return cls.ZEROS if bottom in _WITHOUT_BIAS else cls.NON_NEGATIVE

    @property
    def factor(self) -> float:
        return {Emptied.ZEROS: 1.0, Emptied.NON_NEGATIVE: math.sqrt(2), Emptied.ANYTHING: 2.0}[self]

    def outputs(self, values: Tensor) -> Tensor:
        """Outputs of a device with data, made from any values."""
        return values.abs() if self is Emptied.NON_NEGATIVE else values

    def blank(self, values: Tensor) -> Tensor:
        """Outputs of a device without data, made from any values."""
        return torch.zeros_like(values) if self is Emptied.ZEROS else self.outputs(values)


@dataclass(frozen=True, kw_only=True)
class _OutputClip(Mechanism):
    """What a device's model puts out, scaled into a ball of radius C; `emptied` is what it makes of zeros."""

    clip: float
    emptied: Emptied = Emptied.ANYTHING

    def blank(self, other: Tensor) -> Tensor:
        return Emptied(self.emptied).blank(other)

    def admissible(self, unit: Unit, values: Tensor) -> Tensor:
        return Emptied(self.emptied).outputs(values) if unit is Unit.CLIENT_ZERO else values


@dataclass(frozen=True, kw_only=True)
class ClientClip(_OutputClip):
    """A device's batch matrix, scaled into the Frobenius ball of radius C (VIMADMM §V).

    Any two points of the ball are at most 2C apart (`client`). Scaling into a ball is the projection onto it, so one
    replaced row moves it by at most 2C; a removed row leaves an angle of at most 90° between the two matrices, hence
    √2·C (`add-remove`). A device with zeros for data sends what its model makes of zeros (`client-zero`, see
    `Emptied`). Lemma 6 of the paper takes that to be zeros and declares C, which holds for models without biases.
    """

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
class EmbeddingClip(_OutputClip):
    """Each record's own embedding, scaled into the L2 ball of radius C; nothing is averaged.

    Replacing a record moves its row by at most 2C, removing it by at most C; a device moves all B rows at once: √B
    times as much. With zeros for data it sends what its model makes of zeros (`client-zero`, see `Emptied`).
    """

    batch_size: int

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


@dataclass(frozen=True, kw_only=True)
class Unclipped(EmbeddingClip):
    """Each record's own embedding as it is, plus noise: nothing bounds how far a record moves it.

    The sensitivity is infinite, and so is ε. Where a published proof takes embeddings to lie within a radius C that
    nothing enforces (`assumed`), that is its bound for a record's features at one device.
    """

    assumed: bool = False

    def noiseless(self, values: Tensor) -> Tensor:
        return values

    def pulled_back(self, values: Tensor, gradient: Tensor) -> Tensor:
        return gradient

    @property
    def sensitivity(self) -> Mapping[Unit, float]:
        return dict.fromkeys(FEATURE_UNITS, math.inf)

    @property
    def declared(self) -> Mapping[Unit, float]:
        return {**self.sensitivity, Unit.FEATURES: 2 * self.clip} if self.assumed else self.sensitivity
