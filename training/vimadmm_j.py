"""VIMADMM-J: extractor and head both at the device, logits up (vimadmm.txt, Algorithm 3)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vflpriv.registry import register
from vflpriv.training._admm_engine import AdmmEngine, AdmmSettings, leaves_of
from vflpriv.training._bank import Bank
from vflpriv.training._heads import Headed

__all__ = ["VimadmmJ"]


@register("engine")
class VimadmmJ(AdmmEngine):
    """Logits up; z (eq. 19) and λ (eq. 20) at the server, which has no model; λ and s (eq. 21) down.

    Each of the τ local steps moves the head (eq. 22), then the extractor under the new head (eq. 23).
    """

    name = "vimadmm-j"
    summary = "ADMM without a server model; duals that show the labels on the downlink"
    source = "vimadmm.txt Alg. 3"
    settings_type = AdmmSettings
    settings: AdmmSettings

    def build(self) -> Bank:
        s, data = self.settings, self.data
        self.models = [Headed([block[0].numel(), *s.hidden, s.embedding], data.classes) for block in data.blocks]
        return Bank(self.models, self.stream("init"))

    def descend_locally(self, round_: int, group: int, inputs: Tensor, reply: Mapping[str, Tensor]) -> None:
        model, stacked = self.models[self.bank.groups[group][0]], self.bank.stacked[group]
        for _ in range(self.settings.local_steps):
            extractor = leaves_of({name: stacked[name] for name in model.extractor})
            embedding = model.embed(extractor, inputs)
            head = leaves_of({"head": stacked["head"]})
            self.step(group, head, torch.bmm(embedding.detach(), head["head"]), reply)  # eq. (22)
            self.step(group, extractor, torch.bmm(embedding, stacked["head"]), reply)  # eq. (23)
