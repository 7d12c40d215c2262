"""Labels from loss values: a curious device chooses what it sends and estimates the gradient from the replies.

VFL-Cascaded (Wang et al., "Secure and Fast Asynchronous Vertical Federated Learning via Cascaded Hybrid Optimization"),
Table I, tries one query per record. A device may ask more often; this attack uses any number of queries.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vflpriv.attacks._base import LabelInference, sent_instead
from vflpriv.attacks._observations import positions_in, records_of, sum_by_record
from vflpriv.common.devices import to_host
from vflpriv.common.random import Stream
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Conduct, Guess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelZoQuery", "random_queries"]

_STEP = 1e-3
_UPLINKS = ("logit-pair", "logits")
_REPLIES = ("losses", "loss-difference", "loss-differences")


def random_queries(round_: int, records: Tensor, honest: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """c and c + μu in place of the logits: c ~ N(0, I), the same in every round of a record, and a fresh u ~ N(0, I).

    A device whose protocol already has it send several perturbations per record stays honest: they serve as queries.
    """
    own = honest["embedding"]
    if honest["perturbed"].shape != own.shape:
        return honest
    stream = Stream.of(0, "attack", range(len(own)), own.device)
    base = stream.normal(own.shape[-1], 0, records)
    return {"embedding": base, "perturbed": base + _STEP * stream.normal(own.shape[-1], 1 + round_, records)}


@register("attack")
class LabelZoQuery(LabelInference):
    """Least squares for each record's gradient by the summed logits, from the perturbations and the changes in loss.

    With one reply per record, k replies give the gradient within the span of k directions, hence all of it for
    k ≥ classes. With one reply per batch, the unknowns are the gradients of all its records together. Where the
    queries leave it undetermined, the gradient of least norm is taken; the guess is its smallest entry. An adversary
    who sees the replies but not what was sent, such as the paper's eavesdropper, draws directions at random.
    """

    name = "label_zo_query"
    summary = "estimates the gradient of summed logits from losses, query by query"
    needs = frozenset({*_UPLINKS, *_REPLIES})
    conduct = Conduct(name="random-queries", forge=random_queries)

    def missing(self, view: View) -> str | None:
        if not view.kinds & set(_REPLIES):
            return f"losses of outputs that it varies; {sent_instead(view)}"
        if view.kinds & {"embedding-pair", "embeddings"}:
            return "summed logits; here the devices send embeddings, whose gradients have no entry per class"
        return None

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        sent = {(m.round, m.device): m for m in view.of_kind(*_UPLINKS)}
        replies = view.of_kind(*_REPLIES)
        records = records_of(replies)
        by_reply = list(positions_in(records, replies))
        changes = [_change(reply) for reply in replies]
        unseen = [i for i, reply in enumerate(replies) if (reply.round, reply.device) not in sent]
        shapes = [(*changes[i].shape[:2], len(by_reply[i]), view.classes) for i in unseen]
        drawn = dict(zip(unseen, _random_steps(shapes, auxiliary.seed, records.device), strict=True))
        queries = [
            _Query(batch, drawn[i] if i in drawn else _steps(sent[reply.round, reply.device]), change)
            for i, (reply, batch, change) in enumerate(zip(replies, by_reply, changes, strict=True))
        ]
        gradients = _gradients_by_record if queries[0].change.dim() == 3 else _gradients_by_batch
        return Guess(records, gradients(queries, len(records), view.classes).argmin(-1))


class _Query(NamedTuple):
    """The positions (B,) of a reply's records, the steps (R, n, B, C), and the change in loss (R, n) or (R, n, B)."""

    positions: Tensor
    steps: Tensor
    change: Tensor


def _change(reply: Message) -> Tensor:
    tensors = reply.tensors
    if reply.kind == "loss-differences":
        return tensors["differences"]
    change = tensors["delta"] if reply.kind == "loss-difference" else tensors["perturbed"] - tensors["loss"]
    return change.unsqueeze(1)


def _random_steps(shapes: Sequence[tuple[int, ...]], seed: int, device: torch.device) -> list[Tensor]:
    """Normal steps of these shapes, drawn on the CPU and copied to the device together."""
    if not shapes:
        return []
    random = torch.Generator().manual_seed(seed)
    drawn = torch.cat([torch.randn(shape, generator=random).flatten() for shape in shapes]).to(device)
    parts = drawn.split([math.prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _steps(sent: Message) -> Tensor:
    perturbed, own = sent.tensors["perturbed"], sent.tensors["embedding"].unsqueeze(1)
    return (perturbed if perturbed.dim() == 4 else perturbed.unsqueeze(1)) - own


def _gradients_by_record(queries: Sequence[_Query], count: int, classes: int) -> Tensor:
    """(R, records, C) from one reply per record: A = Σ u uᵀ, b = Σ δ u, and A⁺ b."""
    first = queries[0].change
    a = torch.zeros(len(first), count, classes, classes, dtype=torch.float64, device=first.device)
    b = torch.zeros(len(first), count, classes, dtype=torch.float64, device=a.device)
    for query in queries:
        u = query.steps.to(a.dtype)
        a.index_add_(1, query.positions, torch.einsum("rnbc,rnbd->rbcd", u, u))
        b.index_add_(1, query.positions, torch.einsum("rnb,rnbc->rbc", query.change.to(a.dtype), u))
    gradients: Tensor = torch.linalg.pinv(a, rtol=1e-6, hermitian=True) @ b.unsqueeze(-1)
    return gradients.squeeze(-1)


def _gradients_by_batch(queries: Sequence[_Query], count: int, classes: int) -> Tensor:
    """(R, records, C) from one reply per batch: queries of one batch are solved jointly, then batches are added."""
    groups: dict[tuple[int, ...], list[tuple[Tensor, Tensor, Tensor]]] = defaultdict(list)
    for (positions, steps, change), known in zip(queries, to_host([q.positions for q in queries]), strict=True):
        ordered, order = positions.sort()
        groups[tuple(sorted(known.tolist()))].append((ordered, steps.index_select(2, order).flatten(2), change))
    first = queries[0].change
    total = torch.zeros(len(first), count, classes, dtype=torch.float64, device=first.device)
    for equations in groups.values():
        batch = equations[0][0]
        matrix = torch.cat([steps for _, steps, _ in equations], dim=1).to(total.dtype)
        right = torch.cat([change for *_, change in equations], dim=1).to(total.dtype).unsqueeze(-1)
        gradients = _least_norm(matrix, right).reshape(len(total), len(batch), classes)
        total += sum_by_record([batch], [gradients], count)
    return total


def _least_norm(matrix: Tensor, right: Tensor) -> Tensor:
    """(R, unknowns, 1): the solution of least norm if there are too few equations, else the least-squares solution."""
    wide = matrix.shape[1] <= matrix.shape[2]
    transposed = matrix.transpose(1, 2)
    gram = matrix @ transposed if wide else transposed @ matrix
    diagonal = gram.diagonal(dim1=1, dim2=2)
    diagonal += 1e-9 * diagonal.mean(-1, keepdim=True)
    solution: Tensor = torch.linalg.solve(gram, right if wide else transposed @ right)
    return transposed @ solution if wide else solution
