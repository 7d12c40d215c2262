"""Quantised outputs: devices send their outputs in a few bits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import Field

from vflpriv.common.registry import register
from vflpriv.core.kinds import Content
from vflpriv.training.defence import Exchange, MessageDefence, Protected

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["Quantised"]


@register("defence")
class Quantised(MessageDefence):
    """Each entry is rounded to one of 2^bits equally spaced values between the least and the largest of its message.

    "Compressed-VFL" (Castiglia et al., ICML 2022), scalar quantisation. Devices step as if nothing had been rounded. It
    saves traffic, and promises no ε.
    """

    name = "quantised"
    draws = False
    summary = "devices send their outputs in a few bits"
    source = "Castiglia et al. 2022, scalar quantisation"
    content = Content.OUTPUTS
    bits: int = Field(4, ge=1, le=16, description="bits of an entry")

    def protect(self, values: Tensor, exchange: Exchange, stream: Draws) -> Protected:
        entries = math.prod(values.shape[1:])
        least, largest = values.amin(dim=(1, 2), keepdim=True), values.amax(dim=(1, 2), keepdim=True)
        step = ((largest - least) / (2**self.bits - 1)).clamp(min=1e-30)
        # The least value and the step come with the message.
        size = -(-entries * self.bits // 8) + 2 * values.element_size()
        return Protected(values=((values - least) / step).round() * step + least, size=size)
