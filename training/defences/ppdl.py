"""PPDL: a share of the gradients' entries, chosen by a noisy threshold, clipped and noised."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import Field

from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.core.kinds import Content
from vflpriv.training.defence import Exchange, MessageDefence, Protected
from vflpriv.training.defences.laplace import laplace

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["Ppdl"]


@register("defence")
class Ppdl(MessageDefence):
    """Of c = θ·(entries) entries in random order those with |clipped| + noise ≥ τ + noise are sent, clipped and noised.

    "Privacy-Preserving Deep Learning" (Shokri and Shmatikov, CCS 2015), as a defence in "Label Inference Attacks
    Against Vertical Federated Learning" (Fu et al., USENIX Security 2022): scales 2cΔ/ε₁, twice that, and 2cΔ/ε₂ with
    ε₁ = 8/9 ε and ε₂ = 2/9 ε. The published Δ is 2γ for each entry, so that ε holds for one entry of one round: neither
    a label, which moves a whole row in many rounds, nor the server's model is covered. It promises no ε for labels.
    Unlike the published loop every entry has a threshold noise of its own, so that all are decided at once.
    """

    name = "ppdl"
    summary = "the server sends a share of its gradients' entries, clipped, above a noisy threshold, and noised"
    source = "Shokri & Shmatikov 2015; Fu et al. 2022"
    content = Content.GRADIENT
    share: float = Field(0.75, gt=0, le=1, description="θ, the most entries that are sent, as a share of all")
    clip: float = Field(1e-3, gt=0, description="γ, the bound of an entry's magnitude")
    threshold: float = Field(1e-4, ge=0, description="τ, the least magnitude of an entry that is sent, up to noise")
    epsilon: float = Field(
        1000.0, gt=0, description="ε of all entries of one message; each has the share ε/c, and noise of scale 2cΔ/ε"
    )

    def protect(self, values: Tensor, exchange: Exchange, stream: Draws) -> Protected:
        shape = tuple(values.shape[1:])
        entries = math.prod(shape)
        most = max(1, math.floor(self.share * entries))
        path = (exchange.round, exchange.party)
        scale = 2 * most * (2 * self.clip) / self.epsilon
        noise = [laplace(stream, (entries,), *path, part) for part in range(3)]
        flat = values.reshape(len(values), entries)
        clipped = flat.clamp(-self.clip, self.clip)
        above = clipped.abs() + 2 * scale * 9 / 8 * noise[0] >= self.threshold + scale * 9 / 8 * noise[1]
        # The first `most` of those above the threshold, in a random order.
        order = stream.uniform(entries, *path, 3) * above
        chosen = torch.zeros_like(flat).scatter(1, order.topk(most, dim=1).indices, 1.0) * above
        sent = (flat + scale * 9 / 2 * noise[2]).clamp(-self.clip, self.clip) * chosen
        return Protected(values=sent.reshape(values.shape))
