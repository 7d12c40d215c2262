"""ALIBI: Laplace noise on every entry of one-hot labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.integrate import quad

from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.core.law import Pair
from vflpriv.laws.labels.law import LabelLaw
from vflpriv.laws.laplace import Laplace

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["Alibi"]


@register("law")
@dataclass(frozen=True)
class Alibi(LabelLaw):
    """Laplace noise of this standard deviation on every entry of the one-hot label; sensitivities are in L1.

    "Antipodes of Label Differential Privacy: PATE and ALIBI" (Malek et al., NeurIPS 2021). Two one-hot labels are at L1
    distance 2 and the scale is std/√2, hence ε = 2√2/std. Under label c, an observation o has the log-likelihood
    -(|o_c - 1| + Σ_{j≠c} |o_j|)/scale, which is (|o_c| - |o_c - 1|)/scale up to a term that all labels share. It grows
    with o_c up to 1 and is constant beyond, so that several labels are often equally likely. The label with the largest
    o_c is one of them and favours no class, as the first of them would.
    """

    std: float
    name = "alibi"
    sized_by = "std"
    summary = "Laplace noise of this std on every entry of one-hot labels"
    source = "ALIBI"
    statement = "ε = 2√2/λ for Laplace noise of standard deviation λ on one-hot labels"
    norm = 1
    distance = 2.0

    def __str__(self) -> str:
        return str(self.laplace)

    @property
    def laplace(self) -> Laplace:
        """The noise on each entry."""
        return Laplace(self.std / math.sqrt(2))

    @staticmethod
    def std_for(epsilon: float) -> float:
        """The standard deviation with which each label costs at most ε, rounding included."""
        return 2 * math.sqrt(2) / epsilon * (1 + 1e-9)

    @property
    def label_epsilon(self) -> float:
        return 2 * math.sqrt(2) / self.std

    def strength(self, sensitivity: float) -> float:
        return self.laplace.strength(sensitivity)

    def pair(self, sensitivity: float) -> Pair:
        return self.laplace.pair(sensitivity)

    @property
    def deviation(self) -> float:
        return self.std

    def observe(self, labels: Tensor, classes: int, stream: Draws) -> Tensor:
        # One-hot labels lie on every grid whose step is a part of 1: rounding moves none of them.
        noise, onehot = self.laplace.on_grid(1.0, 1), torch.nn.functional.one_hot(labels, classes)
        draws = noise.draw(stream, labels.shape[1] * classes).reshape(onehot.shape)
        return noise.release(onehot.to(torch.float32), draws)

    def evidence(self, observed: Tensor) -> Tensor:
        return (observed.abs() - (observed - 1).abs()) / self.laplace.scale

    def kept(self, classes: int) -> float:
        """P[1 + n_0 > n_c for all others], n independent Laplace noise: ∫ f(x - 1) F(x)^(C-1) dx.

        >>> round(Alibi(1e-3).kept(3), 6), round(Alibi(1e6).kept(4), 4), round(Alibi(2.0).kept(10), 3)
        (1.0, 0.25, 0.199)
        """
        scale = self.laplace.scale

        def below(x: float) -> float:
            tail = 0.5 * math.exp(-abs(x) / scale)
            return tail if x < 0 else 1 - tail

        def integrand(x: float) -> float:
            return math.exp(-abs(x - 1) / scale) / (2 * scale) * below(x) ** (classes - 1)

        reach = 40 * scale
        return float(quad(integrand, 1 - reach, 1 + reach, points=sorted({0.0, 1.0}), limit=400)[0])
