"""Labels of two classes from the length of gradients (Li et al. 2021): the rarer class has the longer ones."""

from __future__ import annotations

import torch

from vflpriv.attacks._base import by_record, ids_of
from vflpriv.attacks._two_classes import FromGradients, guess, two_means
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, LabelGuess
from vflpriv.core.views import View

__all__ = ["LabelNorm"]


@register("attack")
class LabelNorm(FromGradients):
    """‖g_i‖ over its batch's mean, averaged over the rounds; two clusters, named by the few known labels.

    A record's gradient is |p - y| long up to a common factor: where one class is rare, a model is surer of the other.
    """

    name = "label_norm"
    summary = "splits two classes by the length of gradients"

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        messages = view.of_kind(*self.needs)
        records, place = ids_of(messages)
        norms = [torch.linalg.vector_norm(m.tensors["gradient"], dim=-1) for m in messages]
        relative = torch.cat([n / n.mean(1, keepdim=True).clamp(min=1e-30) for n in norms], dim=1)
        times = by_record(place, torch.ones_like(relative), len(records))
        scores = (by_record(place, relative, len(records)) / times)[0]
        return guess(records, scores, auxiliary, two_means(scores))
