"""Labels of two classes from the norm of gradients (Li et al. 2021): those of the rarer class are longer.

Li et al., "Label Leakage and Protection in Two-party Split Learning", 2021.
"""

from __future__ import annotations

import torch

from vflpriv.attacks._observations import positions_in, records_of, sum_by_record
from vflpriv.attacks.label._two_classes import TwoClassInference, guess_by_threshold, two_means
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View

__all__ = ["LabelNorm"]


@register("attack")
class LabelNorm(TwoClassInference):
    """‖g_i‖ divided by the mean of its batch, averaged over the rounds; two clusters, named by the few known labels.

    A record's gradient has the norm |p - y| up to a common factor: where one class is rare, the model is more certain
    of the other, whose gradients are shorter.
    """

    name = "label_norm"
    summary = "splits two classes by the norm of gradients"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind(*self.needs)
        records = records_of(messages)
        norms = (torch.linalg.vector_norm(m.tensors["gradient"], dim=-1) for m in messages)
        relative = (torch.stack((n / n.mean(1, keepdim=True).clamp(min=1e-30), torch.ones_like(n)), -1) for n in norms)
        sums = sum_by_record(positions_in(records, messages), relative, len(records))[0]
        scores = sums[:, 0] / sums[:, 1]
        return guess_by_threshold(records, scores, auxiliary, two_means(scores))
