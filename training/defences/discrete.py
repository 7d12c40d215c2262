"""Discrete gradients: every entry is rounded to one of a few steps."""

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

__all__ = ["Discrete"]


@register("defence")
class Discrete(MessageDefence):
    """Entries are rounded to multiples of 2·bound/steps, which cuts [-bound, bound] into `steps` intervals.

    "Label Inference Attacks Against Vertical Federated Learning" (Fu et al., USENIX Security 2022), DiscreteSGD. The
    paper clears entries outside the bound, which it takes from the first epoch's gradients; its code rounds them like
    all others, to a bound that is given. This is the code's, with the bound as a multiple of the root mean square of
    the batch's entries, so that one setting suits all engines. It promises no ε.
    """

    name = "discrete"
    draws = False
    summary = "the server rounds its gradients to a few steps"
    source = "Fu et al. 2022, DiscreteSGD"
    content = Content.GRADIENT
    steps: int = Field(12, ge=1, description="number of intervals between -bound and bound")
    bound: float = Field(2.0, gt=0, description="bound in multiples of the root mean square of a batch's entries")

    def protect(self, values: Tensor, exchange: Exchange, stream: Draws) -> Protected:
        scale = values.square().mean(dim=(1, 2), keepdim=True).sqrt()
        step = (2 * self.bound / self.steps * scale).clamp(min=torch.finfo(values.dtype).tiny)
        entries = math.prod(values.shape[1:])
        # A whole number of steps in two bytes each, and the length of a step.
        return Protected(values=(values / step).round() * step, size=2 * entries + values.element_size())
