"""What a device sends when its block is all zeros: the neighbour of the `client-zero` unit."""

from __future__ import annotations

import math
from enum import StrEnum

import torch
from torch import Tensor

__all__ = ["Emptied"]

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
        """Of a kind of model that sends logits, or activations: those have a ReLU behind the last layer.

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
