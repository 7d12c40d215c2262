"""Direct label inference (Fu et al. 2022): the smallest entry of a gradient (softmax - onehot)/B is the label's.

Fu et al., "Label Inference Attacks Against Vertical Federated Learning", USENIX Security 2022.
"""

from __future__ import annotations

from vflpriv.attacks._base import LabelInference, sent_instead, smallest_entry
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View

__all__ = ["LabelDirect"]


@register("attack")
class LabelDirect(LabelInference):
    """A curious device takes the smallest entry of each record's gradient, summed over the rounds it saw.

    The entry of the true class is the only negative one. The attack takes the smallest entry rather than the first
    negative one: with noise, or where softmax saturates in float32, the sign alone does not identify the class.
    """

    name = "label_direct"
    summary = "reads the label off the gradient of summed logits"
    needs = frozenset({"logit-gradient"})

    def missing(self, view: View) -> str | None:
        return None if self.needs & view.kinds else f"per-record gradients of summed logits; {sent_instead(view)}"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind("logit-gradient")
        return smallest_entry(messages, (m.tensors["gradient"] for m in messages))
