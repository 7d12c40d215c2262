"""The area under the ROC curve, of many models at once and without waiting for the torch device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["auc", "class_auc"]


def auc(scores: Tensor, positive: Tensor) -> Tensor:
    """The share of pairs of a positive and another record in which the positive one has the larger score.

    Ties count half, and scores that are NaN, as those of a training that diverged, tie below all others. `scores` is
    (…, N) and `positive` (N,) of truth values; the result has the leading axes of `scores` and is NaN where all records
    are positive, or none.

    >>> auc(torch.tensor([0.1, 0.4, 0.4, 0.9]), torch.tensor([False, False, True, True])).item()
    0.875
    """
    own = scores.masked_fill(scores.isnan(), -torch.inf).contiguous()
    ordered = own.sort(dim=-1).values
    # A record's place among all, counted from both ends of its ties: whole numbers, exact on every device.
    twice = torch.searchsorted(ordered, own) + torch.searchsorted(ordered, own, right=True) + 1
    members = positive.sum()
    above = (twice * positive).sum(-1) - members * (members + 1)
    return above.to(torch.float32) / (2 * members * (positive.numel() - members)).to(torch.float32)


def class_auc(logits: Tensor, labels: Tensor) -> Tensor:
    """(…,) the AUC of models with these logits (…, N, classes) of records with these labels (N,).

    Of two classes it is that of the second. Of more it is the mean over the classes, each against all others, without
    those that no record has.
    """
    classes = logits.shape[-1]
    if classes == 2:
        return auc(logits[..., 1] - logits[..., 0], labels == 1)
    return torch.stack([auc(_log_odds(logits, c), labels == c) for c in range(classes)]).nanmean(0)


def _log_odds(logits: Tensor, chosen: int) -> Tensor:
    """log p/(1-p) of one class: it orders records as p does, and sure ones do not round to the same number."""
    others = torch.cat((logits[..., :chosen], logits[..., chosen + 1 :]), dim=-1)
    return logits[..., chosen] - others.logsumexp(-1)
