"""Attacks on two classes: a threshold found without labels; a few known labels decide which side is which class."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks._base import GradientInference
from vflpriv.attacks._observations import known_positions
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View

__all__ = ["TwoClassInference", "agreement", "guess_by_threshold", "not_two_classes", "two_means"]


def not_two_classes(view: View) -> str | None:
    """Why an attack on two classes does not apply, or None."""
    return None if view.classes == 2 else f"two classes; here there are {view.classes}"


class TwoClassInference(GradientInference):
    """Base of attacks on two classes that read each record's gradients and know a few labels."""

    def missing(self, view: View) -> str | None:
        return super().missing(view) or not_two_classes(view)


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
    """The share of known labels that `positive` predicts right, minus ½; negative if the two sides are swapped."""
    positions, known = known_positions(records, auxiliary.records)
    right = positive[positions] == (auxiliary.labels[known] == 1)
    return (right.to(torch.float32) - 0.5).mean().nan_to_num(0.0)


def guess_by_threshold(records: Tensor, scores: Tensor, auxiliary: Auxiliary, threshold: Tensor) -> Guess:
    """Labels of sorted records by a threshold; the known labels decide which side of it is class 1."""
    positive = scores > threshold
    swapped = agreement(records, positive, auxiliary) < 0
    scores = torch.where(swapped, -scores, scores)
    return Guess(records, (positive ^ swapped).long().unsqueeze(0), scores.unsqueeze(0))
