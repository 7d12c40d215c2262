"""Noisy gradients: Laplace noise on every entry that the server sends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import Field

from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.core.kinds import Content
from vflpriv.laws import Laplace
from vflpriv.training.defence import Exchange, MessageDefence, Protected

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["LaplaceNoise", "laplace"]


def laplace(stream: Draws, shape: tuple[int, ...], *path: int) -> Tensor:
    """(R, *shape) Laplace noise of scale 1, of the sequence with this path."""
    drawn, _ = Laplace(1.0).unit(stream, math.prod(shape), *path)
    return drawn.to(torch.float32).to(stream.device).reshape(-1, *shape)


@register("defence")
class LaplaceNoise(MessageDefence):
    """Laplace noise of this scale, without a clip.

    "Label Inference Attacks Against Vertical Federated Learning" (Fu et al., USENIX Security 2022), noisy gradients,
    scales 1e-4 to 1e-1. Published as differential privacy; without a clip no sensitivity is bounded, and the server's
    model is moved by exact labels, so that it promises no ε.
    """

    name = "laplace"
    summary = "the server adds Laplace noise to its gradients, without a clip"
    source = "Fu et al. 2022, noisy gradients"
    content = Content.GRADIENT
    scale: float = Field(1e-2, gt=0, description="scale of the Laplace noise")

    def protect(self, values: Tensor, exchange: Exchange, stream: Draws) -> Protected:
        law, shape = Laplace(self.scale), values.shape[1:]
        draws = law.draw(stream, math.prod(shape), exchange.round, exchange.party)
        return Protected(values=law.release(values, draws.reshape(-1, *shape)))
