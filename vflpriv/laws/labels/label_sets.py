"""Subset selection: a label is answered by a random set of classes that holds it more often than others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from vflpriv.common.lazy import torch
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.laws.labels.randomised_response import RandomizedResponse

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["LabelSets", "subset_law"]

_MOST_SETS = 100_000


def subset_law(classes: int, epsilon: float) -> tuple[int, float]:
    """The size d of the sets that `LabelSets` draws, and the probability with which one holds the label.

    The latter is d e^ε/(d e^ε + C - d). Of all d that one is taken whose sets tell most of a label of which nothing is
    known: the mutual information of the two is largest.

    >>> [subset_law(10, epsilon)[0] for epsilon in (0.1, 1.0, 2.0, 2.8)]
    [5, 3, 2, 1]
    """

    def inside(size: int) -> float:
        return 1 / (1 + (classes - size) / size * math.exp(-epsilon))

    def told(size: int) -> float:
        p = inside(size)
        left = (1 - p) * math.log((1 - p) / (classes - size)) if p < 1 else 0.0
        return p * math.log(p / size) + left

    best = max(range(1, max(2, classes)), key=told)
    return best, inside(best)


@register("law")
@dataclass(frozen=True)
class LabelSets(RandomizedResponse):
    """Answers with a random set of d classes, any set with the label e^ε times as likely as another.

    "Optimal Schemes for Discrete Distribution Estimation under Locally Differential Privacy" (Ye and Barg 2018). A set
    has probability ∝ e^ε if the label is in it and ∝ 1 otherwise: ε-DP for each label. With d = 1 it is randomised
    response; where e^ε is less than the number of classes, larger sets tell more: at ε = 1 of ten classes, 1.7 times as
    much. In an observation members of the set are 1/2, and one of them, drawn whatever the label, is 1.
    """

    name = "label-sets"
    summary = "subset selection: a random set of classes that holds the label more often, with this ε"
    source = "subset selection"

    def kept(self, classes: int) -> float:
        size, inside = subset_law(classes, self.epsilon)
        return inside / size

    def observe(self, labels: Tensor, classes: int, stream: Draws) -> Tensor:
        replicas, records = labels.shape
        size, inside = subset_law(classes, self.epsilon)
        uniform = stream.uniform((classes + 2) * records).reshape(replicas, records, classes + 2)
        order, chance, pick = uniform[..., :classes], uniform[..., classes], uniform[..., classes + 1]
        # The label comes first or last, all other classes in random order between.
        rank = torch.where(chance <= inside, 2.0, -1.0).unsqueeze(-1)
        members = order.scatter(-1, labels.unsqueeze(-1), rank).topk(size, dim=-1).indices
        chosen = members.gather(-1, (pick * size).long().clamp(max=size - 1).unsqueeze(-1))
        observed = torch.zeros_like(order).scatter(-1, members, 0.5)
        return observed.scatter(-1, chosen, 1.0)

    def evidence(self, observed: Tensor) -> Tensor:
        return self.epsilon * (observed > 0)

    def table(self, inputs: int) -> Floats | None:
        size, inside = subset_law(inputs, self.epsilon)
        if math.comb(inputs, size) > _MOST_SETS:
            return None
        held = np.array([[label in chosen for chosen in combinations(range(inputs), size)] for label in range(inputs)])
        return np.where(held, inside / math.comb(inputs - 1, size - 1), (1 - inside) / math.comb(inputs - 1, size))
