"""Direct label inference (Fu et al. 2022): the gradient of summed logits is softmax - onehot, and shows the label."""

from __future__ import annotations

import torch

from vflpriv.attacks._base import LabelAttack, by_record, ids_of, what_it_gets
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, LabelGuess
from vflpriv.core.views import View

__all__ = ["LabelDirect"]


@register("attack")
class LabelDirect(LabelAttack):
    """A curious device takes the smallest entry of each record's gradient, summed over the rounds it saw.

    The entry of the true class is the only negative one. The smallest entry, not the first negative one: with noise, or
    where softmax saturates in float32, the sign alone is not enough.
    """

    name = "label_direct"
    summary = "reads the label off the gradient of summed logits"
    needs = frozenset({"logit-gradient"})

    def missing(self, view: View) -> str | None:
        return None if self.needs & view.kinds else f"per-record gradients of summed logits; {what_it_gets(view)}"

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        messages = view.of_kind("logit-gradient")
        records, place = ids_of(messages)
        gradients = torch.cat([m.tensors["gradient"] for m in messages], dim=1)
        return LabelGuess(records, by_record(place, gradients, len(records)).argmin(-1))
