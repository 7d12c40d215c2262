"""Models of devices that learn nothing: features as they are, or the lowest frequencies of a part of an image."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch
from vflpriv.training.models.base import Model, Parameters

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Cosines", "Identity"]


class Identity(Model):
    """Sends features as they are."""

    shapes: Mapping[str, tuple[int, ...]] = {}

    def __init__(self, width: int) -> None:
        self.width, self.key = width, (width,)

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return inputs.unsqueeze(0) if inputs.dim() == 2 else inputs

    def fan_in(self, name: str) -> int:
        raise KeyError(name)


class Cosines(Model):
    """The lowest frequencies of the cosine transform of an image (height, width): `down` times `across` numbers.

    The transform keeps lengths, and what is left of it makes no vector longer.
    """

    shapes: Mapping[str, tuple[int, ...]] = {}

    def __init__(self, image: tuple[int, int], frequencies: tuple[int, int]) -> None:
        self.image = image
        self.kept = (min(frequencies[0], image[0]), min(frequencies[1], image[1]))
        self.width, self.key = math.prod(self.kept), (*self.image, *self.kept)

    def apply(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        images = (inputs.unsqueeze(0) if inputs.dim() == 2 else inputs).unflatten(-1, self.image)
        down, across = (_waves(n, kept, inputs) for n, kept in zip(self.image, self.kept, strict=True))
        return torch.matmul(torch.matmul(down, images), across.T).flatten(-2)

    def fan_in(self, name: str) -> int:
        raise KeyError(name)


def _waves(length: int, count: int, like: Tensor) -> Tensor:
    """(count, length) orthonormal cosines, from the constant to higher frequencies."""
    places = torch.arange(length, device=like.device, dtype=like.dtype) + 0.5
    steps = torch.arange(count, device=like.device, dtype=like.dtype)[:, None]
    waves: Tensor = torch.nn.functional.normalize(torch.cos(math.pi / length * steps * places), dim=1)
    return waves
