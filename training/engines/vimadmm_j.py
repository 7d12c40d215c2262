"""VIMADMM-J: extractor and head both at the device, logits up (VIMADMM, Algorithm 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.training.engines.admm import AdmmEngine, AdmmSettings, Reused, pull_through
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.heads import Headed, times
from vflpriv.training.models.mlp import FusedMlp
from vflpriv.training.models.passes import Sgd, start

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["VimadmmJ", "VimadmmJSettings"]


class VimadmmJSettings(AdmmSettings):
    """Settings of VIMADMM-J."""

    local_order: Literal["together", "printed"] = Field(
        "together",
        description="together: a local step moves head and extractor along one gradient, as in the published code; "
        "printed: the extractor under the new head, as eqs (22) and (23) have it, which needs lower rates",
    )


@register("engine")
class VimadmmJ(AdmmEngine):
    """Logits up; z (eq. 19) and λ (eq. 20) at the server, which has no model; λ and s (eq. 21) down.

    Each of the τ local steps moves the head (eq. 22) and the extractor (eq. 23): along one gradient, or one after the
    other.
    """

    name = "vimadmm-j"
    summary = "ADMM without a server model; duals that show the labels on the downlink"
    source = "VIMADMM, Algorithm 3"
    settings_type = VimadmmJSettings
    settings: VimadmmJSettings

    def build(self) -> Bank:
        extractors = self.device_models(self.embedding, activate=True, mlp=FusedMlp)
        self.models = [Headed(own, self.embedding, self.data.classes) for own in extractors]
        return Bank(self.models, self.stream("init"))

    def outputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The logits; the passes that `descend_locally` goes back through are of the extractors alone."""
        extractors = [self.models[self.part.members[group[0]]].extractor for group in self.part.groups]
        groups = zip(extractors, self.part.stacked, inputs, strict=True)
        self._passes = [start(own, {n: stacked[n] for n in own.shapes}, batch) for own, stacked, batch in groups]
        heads = [stacked["head"] for stacked in self.part.stacked]
        return [times(own.outputs, head) for own, head in zip(self._passes, heads, strict=True)]

    def descend_locally(self, round_: int, group: int, inputs: Tensor, reply: Mapping[str, Tensor]) -> None:
        s, heads = self.settings, self.part.stacked[group]["head"]
        sgd = Sgd(rate=s.device_rate, momentum=s.top_momentum, weight_decay=s.weight_decay)
        moves = self.part.velocity(s.top_momentum)[group].get("head", torch.zeros_like(heads))
        (fixed, scale), by_outputs, together = self.constant(reply), Reused(), s.local_order == "together"

        def slope(rows: slice, step: int, embedding: Tensor) -> Tensor:
            head, move = heads[rows], moves[rows]
            pulled = pull_through(embedding, head, fixed[rows], scale)
            by_head = move.transpose(1, 2)
            torch.baddbmm(by_head, pulled, embedding, beta=sgd.momentum, out=by_head)
            at_once = by_outputs.product(head, pulled) if together else None
            sgd.apply([head], [move])  # eq. (22)
            if at_once is not None:
                return at_once
            return by_outputs.product(head, pull_through(embedding, head, fixed[rows], scale))  # eq. (23)

        self.descend_group(group, slope)
