"""What a loss is taken against: labels, or the posterior of noised ones."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["as_target", "posterior", "summed_loss"]


def posterior(evidence: Tensor, logits: Tensor | None = None) -> Tensor:
    """P[label = c | what was observed], (…, C), from log-likelihoods of the observation under each label, (…, C).

    The prior is uniform, or the prediction that these logits are (ALIBI, Malek et al. 2021). No gradient flows through
    it. With the prediction as prior, softmax(z) - posterior is the gradient by z of -log P[observation] under the
    model: cross-entropy against it descends what was observed, noise included.
    """
    if logits is None:
        return torch.softmax(evidence, dim=-1)
    return torch.softmax(evidence + torch.log_softmax(logits.detach(), dim=-1), dim=-1)


def as_target(labels: Tensor, like: Tensor) -> Tensor:
    """One-hot labels (…, C) of labels (…), with the type of `like` (…, C); a posterior stays what it is."""
    onehot = labels if labels.is_floating_point() else torch.nn.functional.one_hot(labels, like.shape[-1])
    return onehot.to(like.dtype)


def summed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of logits (R, B, C) against labels (R, B) or a posterior (R, B, C), summed over all records."""
    target = labels.transpose(1, 2) if labels.is_floating_point() else labels
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), target, reduction="sum")
