"""Labels of two classes from the direction of gradients (Li et al. 2021): those of two labels point opposite ways."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks._base import by_record, ids_of
from vflpriv.attacks._two_classes import FromGradients, guess
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, LabelGuess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelDirection"]


@register("attack")
class LabelDirection(FromGradients):
    """The cosine between a record's gradients and those of the few records whose label is known.

    g = (p - y) ∂logit/∂h: p - y has the opposite sign for the two labels, and ∂logit/∂h differs little between records.
    Gradients are unit vectors summed over a record's rounds; several devices' cosines are added.
    """

    name = "label_direction"
    summary = "splits two classes by the direction of gradients"

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        messages = view.of_kind(*self.needs)
        records, _ = ids_of(messages)
        scores = torch.zeros(len(records), device=records.device)
        for link in sorted({m.device for m in messages}):
            own = [m for m in messages if m.device == link]
            seen, cosine = _cosines(own, auxiliary)
            scores.index_add_(0, torch.searchsorted(records, seen), cosine)
        return guess(records, scores, auxiliary, torch.zeros((), device=scores.device))


def _cosines(messages: list[Message], auxiliary: Auxiliary) -> tuple[Tensor, Tensor]:
    records, place = ids_of(messages)
    units = torch.cat([torch.nn.functional.normalize(m.tensors["gradient"], dim=-1) for m in messages], dim=1)
    mean = torch.nn.functional.normalize(by_record(place, units, len(records))[0], dim=-1)
    at = torch.searchsorted(records, auxiliary.records).clamp(max=len(records) - 1)
    signs = torch.where(auxiliary.labels == 1, 1.0, -1.0) * (records[at] == auxiliary.records)
    reference = (mean[at] * signs.unsqueeze(-1)).sum(0)
    return records, mean @ torch.nn.functional.normalize(reference, dim=0)
