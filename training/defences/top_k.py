"""Sparse outputs: devices send the largest entries of each record's output, and zeros for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.core.kinds import Content
from vflpriv.training.defence import Exchange, MessageDefence, Protected

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["TopK"]


@register("defence")
class TopK(MessageDefence):
    """Of each record's output the share `kept` of the entries with the largest magnitude is sent, with their places.

    "Compressed-VFL" (Castiglia et al., ICML 2022), top-k sparsification. Devices step as if nothing had been left out.
    It saves traffic, and promises no ε.
    """

    name = "top-k"
    draws = False
    summary = "devices send the largest entries of each output alone"
    source = "Castiglia et al. 2022, top-k"
    content = Content.OUTPUTS
    kept: float = Field(0.25, gt=0, le=1, description="share of an output's entries that are sent")

    def protect(self, values: Tensor, exchange: Exchange, stream: Draws) -> Protected:
        rows, width = values.shape[1:]
        kept = min(width, max(1, round(self.kept * width)))
        places = values.abs().topk(kept, dim=-1).indices
        # An entry's place in its row takes two bytes.
        size = rows * kept * (values.element_size() + 2)
        plain = rows * width * values.element_size()
        sparse = torch.zeros_like(values).scatter(-1, places, values.gather(-1, places))
        return Protected(values=sparse, size=min(size, plain))
