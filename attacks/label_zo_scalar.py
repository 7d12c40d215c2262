"""Labels from one scalar a batch: DPZV's curious device, from Δ and the embeddings it sent itself."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vflpriv.attacks._base import LabelAttack
from vflpriv.attacks._features import posterior
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, LabelGuess
from vflpriv.core.views import View
from vflpriv.core.wire import Message, Party

__all__ = ["LabelZoScalar"]

_UPLINKS = ("embedding-pair", "logit-pair")
_REPLIES = ("zo-scalar", "losses", "loss-difference")
_PASSES = 10


@register("attack")
class LabelZoScalar(LabelAttack):
    """Δ is the batch's mean of w(y_i)·d_i plus noise: d_i is how far the device moved a record's embedding, w(y) the
    slope of the loss for a record of label y, which the device does not know.

    Beginning with what its own features and a few known labels say, it alternates: w by regression of Δ on the labels
    it believes in, then for each record and label the likelihood of the Δs of its rounds had the record that label. The
    beliefs are Bayes' with the features' as prior, so that without a signal in Δ they stay what they were.
    """

    name = "label_zo_scalar"
    summary = "weighs each label of a record by the batch scalars of its rounds"
    needs = frozenset({*_UPLINKS, *_REPLIES})
    auxiliary = True

    def missing(self, view: View) -> str | None:
        if not view.kinds & set(_REPLIES):
            return "a scalar for each batch; the server sends more than that, or nothing"
        return None if view.kinds & set(_UPLINKS) else "what the device sent"

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        links = sorted({m.device for m in view.of_kind(*_REPLIES)})
        evidence = [_Evidence(view, link) for link in links]
        count = 1 + max([int(e.record.max()) for e in evidence] + [int(auxiliary.records.max())])
        prior = torch.full((count, view.classes), 1 / view.classes, device=evidence[0].moves.device)
        if view.own:
            prior = posterior([own.features for own in view.own.values()], auxiliary, view.classes)
        certain = torch.nn.functional.one_hot(auxiliary.labels, view.classes).to(prior.dtype)
        belief = prior.index_copy(0, auxiliary.records, certain)
        for _ in range(_PASSES):
            weight = sum((e.log_likelihood(belief) for e in evidence), torch.zeros_like(prior))
            fresh = torch.softmax(prior.clamp(min=1e-9).log() + weight, dim=-1)
            belief = ((belief + fresh) / 2).index_copy(0, auxiliary.records, certain)
        records = torch.cat([e.record.flatten() for e in evidence]).unique()
        return LabelGuess(records, belief.index_select(0, records).argmax(-1).unsqueeze(0))


class _Evidence:
    """The scalars (T,) of one device, their records (T, B), and how it moved their embeddings (T, B, width); of the
    first replica."""

    def __init__(self, view: View, link: Party) -> None:
        sent = {m.round: m for m in view.of_kind(*_UPLINKS) if m.device == link}
        replies = [m for m in view.of_kind(*_REPLIES) if m.device == link and m.round in sent]
        # Shorter batches are filled up with rows that do not move: they add the same to every label of record 0.
        self.record = pad_sequence([m.records for m in replies if m.records is not None], batch_first=True)
        moves = pad_sequence([_moves(sent[m.round]) for m in replies], batch_first=True)
        scalars = torch.stack([_scalar(m) for m in replies])
        # Both to scale 1: then ridge and step are free of the engine's units.
        self.moves = moves / moves.square().mean().sqrt().clamp(min=1e-12)
        self.scalars = scalars / scalars.square().mean().sqrt().clamp(min=1e-12)

    def log_likelihood(self, belief: Tensor) -> Tensor:
        """(N, classes) of the scalars of each record's rounds, had it that label and the others what is believed.

        The slopes of even rounds come from the odd ones and the other way round, shrunk to what they predict there for
        certain (two standard errors): slopes that fit only the rounds they were taken from end as none.
        """
        mine = belief[self.record]
        classes, width = belief.shape[1], self.moves.shape[2]
        design = torch.bmm(mine.transpose(1, 2), self.moves).flatten(1)
        halves = (slice(0, None, 2), slice(1, None, 2))
        slopes = torch.stack([_ridge(design[half], self.scalars[half]) for half in reversed(halves)])
        slopes = slopes[torch.arange(len(design), device=design.device) % 2]
        said = (design * slopes).sum(-1)
        agrees, reach = (said * self.scalars).sum(), said.square().sum().clamp(min=1e-12)
        spread = (said.square() * self.scalars.square()).sum().sqrt()
        shrunk = ((agrees - 2 * spread) / reach).clamp(0, 1)
        left = self.scalars - shrunk * said
        shifts = self.moves @ (shrunk * slopes).reshape(-1, classes, width).transpose(1, 2)
        expected = (mine * shifts).sum(-1, keepdim=True)
        errors = (left[:, None, None] + expected - shifts).flatten(0, 1)
        variance = left.square().mean().clamp(min=1e-6)
        return torch.zeros_like(belief).index_add_(0, self.record.flatten(), -errors.square() / (2 * variance))


def _moves(sent: Message) -> Tensor:
    """(B, width) how far the two embeddings it sent lie apart."""
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
