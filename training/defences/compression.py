"""Gradient compression: the server sends the largest entries of its gradients, and zeros for the others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import Field

from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.core.kinds import Content
from vflpriv.training.defence import Exchange, MessageDefence, Protected

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["Compression", "largest_entries"]


def largest_entries(values: Tensor, kept: int) -> Tensor:
    """(R, …) values whose `kept` entries of largest magnitude, of each replica, are as they were; the others are 0."""
    flat = values.flatten(1)
    places = flat.abs().topk(kept, dim=1).indices
    return torch.zeros_like(flat).scatter(1, places, flat.gather(1, places)).reshape(values.shape)


@register("defence")
class Compression(MessageDefence):
    """The share `kept` of a batch's gradient entries with the largest magnitude is sent, with their places.

    "Label Inference Attacks Against Vertical Federated Learning" (Fu et al., USENIX Security 2022), §6.2: with 10 % to
    75 % of the entries completion attacks reach about what they reach without it. It promises no ε.
    """

    name = "compression"
    draws = False
    summary = "the server sends the largest entries of its gradients alone"
    source = "Fu et al. 2022, gradient compression"
    content = Content.GRADIENT
    kept: float = Field(0.25, gt=0, le=1, description="share of the entries that are sent")

    def protect(self, values: Tensor, exchange: Exchange, stream: Draws) -> Protected:
        entries = math.prod(values.shape[1:])
        kept = max(1, round(self.kept * entries))
        # Each entry with its place, in four bytes.
        return Protected(values=largest_entries(values, kept), size=kept * (values.element_size() + 4))
