"""What attacks on two classes share: a threshold without labels, and which side is which from a few known ones."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks._base import LabelAttack, what_it_gets
from vflpriv.core.attack import Auxiliary, LabelGuess
from vflpriv.core.views import View

__all__ = ["FromGradients", "agreement", "guess", "needs_two", "two_means"]


def needs_two(view: View) -> str | None:
    """Why an attack on two classes does not apply, or None."""
    return None if view.classes == 2 else f"two classes; here there are {view.classes}"


class FromGradients(LabelAttack):
    """An attack on two classes that reads each record's gradients, and knows a few labels."""

    needs = frozenset({"logit-gradient", "embedding-gradient"})
    auxiliary = True

    def missing(self, view: View) -> str | None:
        if not self.needs & view.kinds:
            return f"gradients of each record; {what_it_gets(view)}"
        return needs_two(view)


def two_means(scores: Tensor) -> Tensor:
    """The threshold that splits numbers into two clusters with the least sum of squares."""
    ordered = scores.sort().values.to(torch.float64)
    count = torch.arange(1, len(ordered), device=ordered.device, dtype=ordered.dtype)
    if not len(count):
        return scores.mean()
    sums = ordered.cumsum(0)
    left, right = sums[:-1], sums[-1] - sums[:-1]
    best = (left.square() / count + right.square() / (len(ordered) - count)).argmax()
    return ((ordered[best] + ordered[best + 1]) / 2).to(scores.dtype)


def agreement(records: Tensor, positive: Tensor, auxiliary: Auxiliary) -> Tensor:
    """The share of the known labels that a split into two agrees with, minus a half; negative if it is upside down."""
    at = torch.searchsorted(records, auxiliary.records).clamp(max=len(records) - 1)
    seen = records[at] == auxiliary.records
    return ((positive[at] == (auxiliary.labels == 1)).to(torch.float32) - 0.5)[seen].mean().nan_to_num(0.0)


def guess(records: Tensor, scores: Tensor, auxiliary: Auxiliary, threshold: Tensor) -> LabelGuess:
    """Labels of sorted records by a threshold; the known labels say which side is 1."""
    positive = scores > threshold
    upside_down = agreement(records, positive, auxiliary) < 0
    scores = torch.where(upside_down, -scores, scores)
    return LabelGuess(records, (positive ^ upside_down).long().unsqueeze(0), scores.unsqueeze(0))
