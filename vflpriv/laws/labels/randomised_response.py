"""Randomised response: a label that is kept or replaced at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vflpriv.common.lazy import torch
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.law import Pair
from vflpriv.laws.labels.law import LabelLaw
from vflpriv.laws.pairs import PurePair

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["RandomizedResponse"]


@register("law")
@dataclass(frozen=True)
class RandomizedResponse(LabelLaw):
    """Keeps a label with probability e^ε/(e^ε + C - 1), else draws one of the C - 1 others (Warner 1965).

    The probabilities of any output under two labels differ by at most the factor e^ε: ε-DP for each label, whatever the
    sensitivity. An observation is the one-hot encoding of the drawn label.
    """

    epsilon: float
    name = "rr"
    summary = "randomised response: a label is kept or replaced at random, with this ε"
    source = "randomised response"
    statement = "ε-DP for each label"

    def __str__(self) -> str:
        return f"RandomizedResponse(epsilon={self.epsilon:.6g})"

    def strength(self, sensitivity: float) -> float:
        return self.epsilon

    def pair(self, sensitivity: float) -> Pair:
        return PurePair(self.epsilon)

    def kept(self, classes: int) -> float:
        """e^ε/(e^ε + C - 1).

        >>> round(RandomizedResponse(1.0).kept(2), 3)
        0.731
        """
        return 1 / (1 + (classes - 1) * math.exp(-self.epsilon))

    def observe(self, labels: Tensor, classes: int, stream: Draws) -> Tensor:
        replicas, records = labels.shape
        uniform = stream.uniform(2 * records).reshape(replicas, records, 2)
        shift = 1 + (uniform[..., 1] * (classes - 1)).long().clamp(max=classes - 2)
        drawn = torch.where(uniform[..., 0] <= self.kept(classes), labels, (labels + shift) % classes)
        return torch.nn.functional.one_hot(drawn, classes).to(torch.float32)

    def evidence(self, observed: Tensor) -> Tensor:
        return self.epsilon * observed

    def table(self, inputs: int) -> Floats | None:
        probabilities = np.full((inputs, inputs), self.kept(inputs) * math.exp(-self.epsilon))
        np.fill_diagonal(probabilities, self.kept(inputs))
        return probabilities
