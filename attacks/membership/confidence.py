"""Membership inference: whether a record was trained on, from the trained model's prediction of it."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks.membership._base import MembershipInference
from vflpriv.common.registry import register
from vflpriv.core.attack import MembershipAuxiliary

__all__ = ["FeatureMembership"]

_PRIOR = 4.0
"""The mean of all known candidates has the weight of so many candidates of one class."""


@register("attack")
class FeatureMembership(MembershipInference):
    """Models are more confident on their training records: the log-odds of the right label, less its class's mean.

    Whoever took part in the training knows its records by their ids; this attack uses nothing of the training, only
    predictions of candidates afterwards. A server computes these from the embeddings it receives, a device is sent
    them, the model's holder computes them. The class means and the threshold above which a candidate is called a member
    are taken from the known candidates.
    """

    name = "feature_membership"
    summary = "recognises training records by the model's confidence in their labels"
    knows = frozenset({"labels", "membership"})

    def missing(self, auxiliary: MembershipAuxiliary) -> str | None:
        two = len(auxiliary.members.unique()) == 2
        return None if two else "known candidates that were trained on and that were not"

    def guessed(self, odds: Tensor, candidates: Tensor, auxiliary: MembershipAuxiliary, classes: int) -> Tensor:
        labels = auxiliary.labels.index_select(0, candidates)
        positions = torch.isin(candidates, auxiliary.records).nonzero().flatten()
        scores = odds - _class_means(odds[positions], labels[positions], classes)[labels]
        order = auxiliary.records.argsort()
        known = order[torch.searchsorted(auxiliary.records[order], candidates[positions])]
        return scores - _threshold(scores[positions], auxiliary.members[known] == 1)


def _class_means(odds: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(classes,) mean log-odds of each class, shrunk towards the mean of all."""
    total = odds.new_zeros(classes).index_add_(0, labels, odds)
    count = odds.new_zeros(classes).index_add_(0, labels, torch.ones_like(odds))
    return (total + _PRIOR * odds.mean()) / (count + _PRIOR)


def _threshold(scores: Tensor, members: Tensor) -> Tensor:
    """The threshold with the largest difference of true and false positive rate; half way between two scores."""
    ordered, order = scores.sort()
    gain = torch.where(members[order], 1 / members.sum(), -1 / (~members).sum())
    above = gain.flip(0).cumsum(0).flip(0)
    first = int(above.argmax())
    return (ordered[first] + ordered[max(0, first - 1)]) / 2 if first else ordered[0] - 1
