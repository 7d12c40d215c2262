"""Labels from the gradients of vertical boosting: of logistic and softmax losses, only the label's is negative.

SecureBoost sends them encrypted: Cheng et al., "SecureBoost: A Lossless Federated Learning Framework", IEEE Intelligent
Systems 2021. Sent in clear, or with too little noise, they are the labels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks._base import LabelInference, sent_instead, smallest_entry
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelBoosting"]

_KIND = "tree-gradients"


@register("attack")
class LabelBoosting(LabelInference):
    """g = p - y: a device takes the class whose gradient is the smallest, summed over the trees it was sent them for.

    With two classes g is one number for each record, negative if the label is 1. Weights of records do not change its
    sign. The hessian p(1 - p) is the same for both labels, and is not read. Noise averages out over trees. Of a
    regression with the squared loss, -g/h is the target less the prediction, which before the first tree is the same
    for all records.
    """

    name = "label_boosting"
    summary = "reads the label off the gradients of vertical boosting"
    needs = frozenset({_KIND})

    def missing(self, view: View) -> str | None:
        if _KIND not in view.kinds:
            return f"gradients of boosted trees; {sent_instead(view)}"
        several = view.classes > 2 and any(_is_unnamed(m) for m in view.of_kind(_KIND))
        return "gradients that say of which class they are: a column for each, or a tensor `class`" if several else None

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind(_KIND)
        return smallest_entry(messages, [_by_class(m, view.classes) for m in messages])

    def run_targets(self, view: View) -> Guess:
        first: dict[int, Tensor] = {}
        for message in view.of_kind(_KIND):
            gradient = message.tensors["gradient"].double().flatten(1)
            hessian = message.tensors.get("hessian", torch.ones_like(gradient)).double().flatten(1)
            scale = hessian.mean(1, keepdim=True)  # that of the squared loss is the same for all records
            rows = (-gradient / torch.where(scale > 0, scale, 1.0)).T
            for record, row in zip(() if message.records is None else message.records.tolist(), rows, strict=True):
                first.setdefault(record, row)
        return Guess(torch.tensor(list(first)), torch.stack(list(first.values()), dim=1))


def _is_unnamed(message: Message) -> bool:
    gradient = message.tensors["gradient"]
    return "class" not in message.tensors and (gradient.dim() == 2 or gradient.shape[-1] == 1)


def _by_class(message: Message, classes: int) -> Tensor:
    """(R, B, C) the gradient of each record by the score of each class; 0 where the message is about another class."""
    gradient = message.tensors["gradient"].float()
    if "class" in message.tensors:
        columns = torch.arange(classes, device=gradient.device) == message.tensors["class"].long().view(-1, 1, 1)
        return gradient.unsqueeze(-1) * columns
    if gradient.dim() == 2:
        gradient = gradient.unsqueeze(-1)
    return torch.cat((-gradient, gradient), dim=-1) if gradient.shape[-1] == 1 else gradient
