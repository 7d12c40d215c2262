"""Direct label inference (Fu et al. 2022): the gradient of summed logits is softmax - onehot, and shows the label."""

from __future__ import annotations

import torch

from vflpriv.attempts import LabelGuess
from vflpriv.registry import register
from vflpriv.views import View

__all__ = ["LabelDirect"]

_WHY_NOT = {
    "zo-scalar": "the server sends one scalar for the whole batch",
    "losses": "the server sends losses of the whole batch",
    "loss-difference": "the server sends one loss difference for the whole batch",
    "loss-differences": "the server sends loss differences, not gradients",
    "admm-variables": "the server sends dual variables, not gradients",
    "summed-logits": "the server sends summed logits to devices that hold the labels",
    "embedding-gradient": "gradients of embeddings have no entry for each class",
}


@register("attack")
class LabelDirect:
    """A curious device takes the smallest entry of each record's gradient, summed over the rounds it saw.

    The entry of the true class is the only negative one. The smallest entry, not the first negative one: with noise, or
    where softmax saturates in float32, the sign alone is not enough.
    """

    name = "label_direct"
    summary = "reads the label off the gradient of summed logits"
    target = "labels"
    needs = frozenset({"logit-gradient"})

    def refusal(self, view: View) -> str | None:
        if not view.adversary.knows_batches:
            return "needs to know which record a gradient belongs to"
        if self.needs & view.kinds:
            return None
        found = next((why for kind, why in _WHY_NOT.items() if kind in view.kinds), "this view holds none")
        return f"needs per-record gradients of summed logits; {found}"

    def run(self, view: View) -> LabelGuess:
        messages = view.of_kind("logit-gradient")
        ids = torch.cat([m.records for m in messages if m.records is not None])
        records, place = ids.unique(return_inverse=True)
        gradients = torch.cat([m.tensors["gradient"] for m in messages], dim=1)
        total = torch.zeros(gradients.shape[0], len(records), gradients.shape[2], device=gradients.device)
        total.index_add_(1, place, gradients)
        return LabelGuess(records, total.argmin(-1))
