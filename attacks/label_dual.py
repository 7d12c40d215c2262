"""Labels from ADMM's dual variables: λ = softmax(z) - onehot(y) (vimadmm.txt, Lemma 1) is sent to every device."""

from __future__ import annotations

import torch

from vflpriv.attacks._base import LabelAttack, by_record, ids_of, what_it_gets
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, LabelGuess
from vflpriv.core.views import View

__all__ = ["LabelDual"]


@register("attack")
class LabelDual(LabelAttack):
    """The smallest entry of each record's λ, summed over the rounds; devices are all sent the same."""

    name = "label_dual"
    summary = "reads the label off ADMM's dual variables"
    needs = frozenset({"admm-variables"})

    def missing(self, view: View) -> str | None:
        return None if self.needs & view.kinds else f"dual variables of each record; {what_it_gets(view)}"

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        messages = view.of_kind("admm-variables")
        records, place = ids_of(messages)
        duals = torch.cat([m.tensors["duals"] for m in messages], dim=1)
        return LabelGuess(records, by_record(place, duals, len(records)).argmin(-1))
