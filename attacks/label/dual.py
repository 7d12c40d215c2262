"""Labels from ADMM's dual variables: every device is sent λ = softmax(z) - onehot(y) (VIMADMM Lemma 1).

VIMADMM: Xie et al., "Improving Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM".
"""

from __future__ import annotations

from vflpriv.attacks._base import LabelInference, sent_instead, smallest_entry
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View

__all__ = ["LabelDual"]


@register("attack")
class LabelDual(LabelInference):
    """The smallest entry of each record's λ, summed over the rounds. All devices are sent the same λ."""

    name = "label_dual"
    summary = "reads the label off ADMM's dual variables"
    needs = frozenset({"admm-variables"})

    def missing(self, view: View) -> str | None:
        return None if self.needs & view.kinds else f"dual variables of each record; {sent_instead(view)}"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind("admm-variables")
        return smallest_entry(messages, (m.tensors["duals"] for m in messages))
