"""Labels from what each record is sent with an entry for each class: the smallest entry is that of its label.

Fu et al., "Label Inference Attacks Against Vertical Federated Learning", USENIX Security 2022, for a gradient (softmax
- onehot)/B; Xie et al., "Improving Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM"
(VIMADMM, Lemma 1), for ADMM's dual variables λ = softmax(z) - onehot(y), which every device is sent.
"""

from __future__ import annotations

from vflpriv.attacks._base import LabelInference, smallest_entry
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View

__all__ = ["LabelDirect", "LabelDual"]


@register("attack")
class LabelDirect(LabelInference):
    """A curious device takes the smallest entry of each record's gradient, summed over the rounds it saw.

    The entry of the true class is the only negative one. The attack takes the smallest entry rather than the first
    negative one: with noise, or where softmax saturates in float32, the sign alone does not identify the class.
    """

    name = "label_direct"
    summary = "reads the label off the gradient of summed logits"
    needs = frozenset({"logit-gradient"})
    reads = "per-record gradients of summed logits"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind("logit-gradient")
        return smallest_entry(messages, (m.tensors["gradient"] for m in messages))


@register("attack")
class LabelDual(LabelInference):
    """The smallest entry of each record's λ, summed over the rounds. All devices are sent the same λ."""

    name = "label_dual"
    summary = "reads the label off ADMM's dual variables"
    needs = frozenset({"admm-variables"})
    reads = "dual variables of each record"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind("admm-variables")
        return smallest_entry(messages, (m.tensors["duals"] for m in messages))
