"""Labels from one scalar per batch: DPZV's curious device uses Δ and the embeddings that it sent itself.

DPZV: Zhang et al., "Communication-Efficient and Differentially Private Vertical Federated Learning with Zeroth-Order
Optimization".
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vflpriv.attacks._base import LabelInference, sent_instead
from vflpriv.attacks._estimators import posterior
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View
from vflpriv.core.wire import Message, Party

__all__ = ["LabelZoScalar"]

_UPLINKS = ("embedding-pair", "logit-pair")
_REPLIES = ("zo-scalar", "losses", "loss-difference")
_PASSES = 10


@register("attack")
class LabelZoScalar(LabelInference):
    """Δ is the batch mean of w(y_i)·d_i plus noise: d_i is the step by which the device moved record i's embedding,
    w(y) the unknown slope of the loss for a record of label y.

    The attack starts from a prior given by the device's own features and a few known labels, and alternates: w by
    regression of Δ on the current posterior; then, for each record and label, the likelihood of the Δs of its rounds if
    it had that label. The posterior combines both by Bayes' rule, so that without a signal in Δ it stays the prior.
    """

    name = "label_zo_scalar"
    summary = "weighs each label of a record by the batch scalars of its rounds"
    needs = frozenset({*_UPLINKS, *_REPLIES})
    auxiliary = True

    def missing(self, view: View) -> str | None:
        if not view.kinds & set(_REPLIES):
            return f"one scalar per batch; {sent_instead(view)}"
        return None if view.kinds & set(_UPLINKS) else "the pairs that the device sent; this view holds none"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        evidence = [_Evidence(view, device) for device in sorted({m.device for m in view.of_kind(*_REPLIES)})]
        count = 1 + max([int(e.records.max()) for e in evidence] + [int(auxiliary.records.max())])
        prior = torch.full((count, view.classes), 1 / view.classes, device=evidence[0].moves.device)
        if view.own:
            prior = posterior([own.features for own in view.own.values()], auxiliary, view.classes)
        certain = torch.nn.functional.one_hot(auxiliary.labels, view.classes).to(prior.dtype)
        belief = prior.index_copy(0, auxiliary.records, certain)
        for _ in range(_PASSES):
            log_likelihood = sum((e.log_likelihood(belief) for e in evidence), torch.zeros_like(prior))
            update = torch.softmax(prior.clamp(min=1e-9).log() + log_likelihood, dim=-1)
            belief = ((belief + update) / 2).index_copy(0, auxiliary.records, certain)
        records = torch.cat([e.records.flatten() for e in evidence]).unique()
        return Guess(records, belief.index_select(0, records).argmax(-1).unsqueeze(0))


class _Evidence:
    """One device's scalars (T,), their records (T, B), and the steps of these records' embeddings (T, B, width); of the
    first replica."""

    def __init__(self, view: View, device: Party) -> None:
        sent = {m.round: m for m in view.of_kind(*_UPLINKS) if m.device == device}
        replies = [m for m in view.of_kind(*_REPLIES) if m.device == device and m.round in sent]
        # Shorter batches are padded with rows that do not move: they add the same to every label of record 0.
        self.records = pad_sequence([m.records for m in replies if m.records is not None], batch_first=True)
        moves = pad_sequence([_moves(sent[m.round]) for m in replies], batch_first=True)
        scalars = torch.stack([_scalar(m) for m in replies])
        # Both are scaled to root mean square 1, which makes ridge and step independent of the engine's units.
        self.moves = moves / moves.square().mean().sqrt().clamp(min=1e-12)
        self.scalars = scalars / scalars.square().mean().sqrt().clamp(min=1e-12)

    def log_likelihood(self, belief: Tensor) -> Tensor:
        """(N, classes) of the scalars of each record's rounds, if it had that label and the others as believed."""
        batch_belief = belief[self.records]
        slopes, predicted = self._slopes(batch_belief)
        residuals = self.scalars - predicted
        shifts = self.moves @ slopes.reshape(-1, belief.shape[1], self.moves.shape[2]).transpose(1, 2)
        expected = (batch_belief * shifts).sum(-1, keepdim=True)
        errors = (residuals[:, None, None] + expected - shifts).flatten(0, 1)
        variance = residuals.square().mean().clamp(min=1e-6)
        return torch.zeros_like(belief).index_add_(0, self.records.flatten(), -errors.square() / (2 * variance))

    def _slopes(self, batch_belief: Tensor) -> tuple[Tensor, Tensor]:
        """(T, classes·width) slopes w for each round, and the scalars (T,) that they predict.

        The slopes of even rounds are fitted to the odd rounds and vice versa, then shrunk to the part of the scalars
        that they predict there by more than two standard errors: slopes that only fit their own rounds shrink to zero.
        """
        design = torch.bmm(batch_belief.transpose(1, 2), self.moves).flatten(1)
        halves = (slice(0, None, 2), slice(1, None, 2))
        slopes = torch.stack([_ridge(design[half], self.scalars[half]) for half in reversed(halves)])
        slopes = slopes[torch.arange(len(design), device=design.device) % 2]
        predicted = (design * slopes).sum(-1)
        covariance, power = (predicted * self.scalars).sum(), predicted.square().sum().clamp(min=1e-12)
        error = (predicted.square() * self.scalars.square()).sum().sqrt()
        share = ((covariance - 2 * error) / power).clamp(0, 1)
        return share * slopes, share * predicted


def _moves(sent: Message) -> Tensor:
    """(B, width) the difference of the two embeddings that the device sent."""
    t = sent.tensors
    return (t["plus"] - t["minus"] if "plus" in t else t["perturbed"] - t["embedding"])[0]


def _scalar(reply: Message) -> Tensor:
    t = reply.tensors
    return (t["delta"] if "delta" in t else t["perturbed"] - t["loss"])[0]


def _ridge(design: Tensor, target: Tensor) -> Tensor:
    gram = design.T @ design
    gram.diagonal().add_(0.1 * gram.diagonal().mean().clamp(min=1e-12) + 1e-6)
    solution: Tensor = torch.linalg.solve(gram, design.T @ target)
    return solution
