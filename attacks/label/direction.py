"""Labels of two classes from the direction of gradients (Li et al. 2021): the two classes' are opposite.

Li et al., "Label Leakage and Protection in Two-party Split Learning", 2021.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks._observations import positions_in, records_of, sum_by_record
from vflpriv.attacks.label._two_classes import TwoClassInference, guess_by_threshold
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelDirection"]


@register("attack")
class LabelDirection(TwoClassInference):
    """The cosine between a record's gradients and those of the few records whose label is known.

    g = (p - y) ∂logit/∂h: p - y has opposite signs for the two labels, and ∂logit/∂h differs little between records.
    Gradients are unit vectors summed over a record's rounds; the cosines of several devices are added.
    """

    name = "label_direction"
    summary = "splits two classes by the direction of gradients"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind(*self.needs)
        records = records_of(messages)
        scores = torch.zeros(len(records), device=records.device)
        for device in sorted({m.device for m in messages}):
            device_records, cosines = _cosines([m for m in messages if m.device == device], auxiliary)
            scores.index_add_(0, torch.searchsorted(records, device_records), cosines)
        return guess_by_threshold(records, scores, auxiliary, torch.zeros((), device=scores.device))


def _cosines(messages: list[Message], auxiliary: Auxiliary) -> tuple[Tensor, Tensor]:
    """One device's sorted records (n,) and, for each, the cosine of its mean gradient with the reference gradient."""
    records = records_of(messages)
    units = (torch.nn.functional.normalize(m.tensors["gradient"], dim=-1) for m in messages)
    total = sum_by_record(positions_in(records, messages), units, len(records))[0]
    mean = torch.nn.functional.normalize(total, dim=-1)
    known = torch.searchsorted(records, auxiliary.records).clamp(max=len(records) - 1)
    signs = torch.where(auxiliary.labels == 1, 1.0, -1.0) * (records[known] == auxiliary.records)
    reference = (mean[known] * signs.unsqueeze(-1)).sum(0)
    return records, mean @ torch.nn.functional.normalize(reference, dim=0)
