"""The exponential mechanism: one of several candidates is chosen, with odds that grow with its utility."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri, softmax

from vflpriv.common.lazy import torch
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.law import Draws, Law, Pair
from vflpriv.laws.pairs import PurePair, ratio

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Exponential"]


@register("law")
@dataclass(frozen=True)
class Exponential(Law):
    """Candidate i with probability ∝ e^{u_i/scale} for utilities u; sensitivities are the largest change of a utility.

    "Mechanism Design via Differential Privacy" (McSherry, Talwar, FOCS 2007). If no utility changes by more than s,
    weights change by at most e^{s/scale}, and so does their sum: ε = 2s/scale, or s/scale if all utilities change in
    one direction (`monotonic`). It is report-noisy-max with Gumbel noise: the largest of u + scale · Gumbel. What is
    released is the choice as a one-hot vector, the utilities' shape.
    """

    scale: float
    monotonic: bool = False
    name = "exponential"
    sized_by = "scale"
    summary = "one of several candidates, with odds that grow exponentially with utility over this scale"
    norm = math.inf
    selects = True

    def __str__(self) -> str:
        return f"Exponential(scale={self.scale:.6g})"

    def strength(self, sensitivity: float) -> float:
        return (1 if self.monotonic else 2) * ratio(sensitivity, self.scale)

    def pair(self, sensitivity: float) -> Pair:
        return PurePair(self.strength(sensitivity), bound=True)

    def draw(self, source: Draws, count: int, *path: int) -> Tensor:
        # -log(uniform) is exponential, and its logarithm's opposite Gumbel.
        return -torch.log((-torch.log(source.uniform(count, *path))).clamp(min=1e-30))

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        chosen = (noiseless + self.scale * draws).argmax(-1)
        return torch.nn.functional.one_hot(chosen, noiseless.shape[-1]).to(noiseless.dtype)

    def scores(self, noise: Floats, signal: Floats, random: np.random.Generator) -> Floats | None:
        # Candidates from the best to the worst: choices that are too bold or too timid then lie to one side.
        order = np.argsort(-signal, axis=-1)
        odds = np.take_along_axis(softmax(signal / self.scale, axis=-1), order, axis=-1)
        chosen = np.take_along_axis(noise + signal, order, axis=-1).argmax(-1)[..., None]
        upper = np.take_along_axis(np.cumsum(odds, axis=-1), chosen, axis=-1)
        place = upper - random.uniform(size=upper.shape) * np.take_along_axis(odds, chosen, axis=-1)
        return np.asarray(ndtri(np.clip(place, 1e-300, 1 - 1e-16)))

    def table(self, inputs: int) -> Floats | None:
        """Of so many candidates, one for each input, whose utility is larger by the scale than all others'."""
        return np.asarray(softmax(np.eye(inputs), axis=-1))
