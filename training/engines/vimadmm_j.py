"""VIMADMM-J: extractor and head both at the device, logits up (VIMADMM, Algorithm 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.training.engines.admm import AdmmEngine, AdmmSettings, pull_through
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.base import descend
from vflpriv.training.models.heads import Headed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["VimadmmJ"]


@register("engine")
class VimadmmJ(AdmmEngine):
    """Logits up; z (eq. 19) and λ (eq. 20) at the server, which has no model; λ and s (eq. 21) down.

    Each of the τ local steps moves the head (eq. 22), then the extractor under the new head (eq. 23).
    """

    name = "vimadmm-j"
    summary = "ADMM without a server model; duals that show the labels on the downlink"
    source = "VIMADMM, Algorithm 3"
    settings_type = AdmmSettings
    settings: AdmmSettings
    bottoms = ("mlp",)

    def build(self) -> Bank:
        s, data = self.settings, self.data
        self.models = [Headed([block[0].numel(), *s.hidden, s.embedding], data.classes) for block in data.blocks]
        return Bank(self.models, self.stream("init"))

    def descend_locally(self, round_: int, group: int, inputs: Tensor, reply: Mapping[str, Tensor]) -> None:
        s, heads = self.settings, self.bank.stacked[group]["head"]
        velocity, (constant, scale) = self.bank.velocity(s.momentum)[group], self.constant(reply)

        def slope(rows: slice, step: int, embedding: Tensor) -> Tensor:
            head, fixed = heads[rows], constant[rows]
            by_head = torch.bmm(pull_through(embedding, head, fixed, scale), embedding).transpose(1, 2)
            descend(
                {"head": head},
                {"head": by_head},
                rate=s.device_rate,
                momentum=s.momentum,
                velocity={name: value[rows] for name, value in velocity.items()},
                weight_decay=s.weight_decay,
            )  # eq. (22)
            return torch.bmm(head, pull_through(embedding, head, fixed, scale)).transpose(1, 2)  # eq. (23)

        self.descend_group(group, inputs, slope)
