"""Max-norm: noise along each record's gradient that gives all records the largest norm, on average."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflpriv.common.registry import register
from vflpriv.core.kinds import Content
from vflpriv.training.defence import Exchange, MessageDefence, Protected

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["MaxNorm"]


@register("defence")
class MaxNorm(MessageDefence):
    """g̃ = g + ξ·√(‖g_max‖²/‖g‖² - 1)·g with one normal ξ for each record: E‖g̃‖² = ‖g_max‖² for all of the batch.

    "Label Leakage and Protection in Two-party Split Learning" (Li et al., ICLR 2022), the heuristic `max_norm`. The
    direction of a gradient stays as it is, up to its sign. It promises no ε.
    """

    name = "max-norm"
    summary = "the server adds noise along each record's gradient, so that norms tell nothing"
    source = "Li et al. 2022, max_norm"
    content = Content.GRADIENT

    def protect(self, values: Tensor, exchange: Exchange, stream: Draws) -> Protected:
        squares = values.square().sum(-1, keepdim=True)
        excess = (squares.amax(1, keepdim=True) / squares.clamp(min=1e-30) - 1).clamp(min=0).sqrt()
        normals = stream.normal(values.shape[1], exchange.round, exchange.party).unsqueeze(-1)
        return Protected(values=values + normals * excess * values)
