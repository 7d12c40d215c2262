"""Labels from loss values: a curious device designs what it sends and reads the gradient off the replies.

vfl-cascaded.txt Table I tries one query a record. A device may ask more often; this attack takes any number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vflpriv.attacks._base import LabelAttack, by_record, ids_of, what_it_gets
from vflpriv.common.random import Stream
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Conduct, LabelGuess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelZoQuery", "random_queries"]

_STEP = 1e-3
_UPLINKS = ("logit-pair", "logits")
_REPLIES = ("losses", "loss-difference", "loss-differences")


def random_queries(round_: int, records: Tensor, honest: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """c and c + μu instead of logits: c ~ N(0, I), the same whenever a record comes up again, and a fresh u ~ N(0, I).

    A device that perturbs its outputs itself (several perturbations a record) already has what it needs.
    """
    own = honest["embedding"]
    if honest["perturbed"].shape != own.shape:
        return honest
    stream = Stream.of(0, "attack", range(len(own)), own.device)
    base = stream.normal(own.shape[-1], 0, records)
    return {"embedding": base, "perturbed": base + _STEP * stream.normal(own.shape[-1], 1 + round_, records)}


@register("attack")
class LabelZoQuery(LabelAttack):
    """Least squares for each record's gradient of the summed logits, from the steps it took and the losses' changes.

    With replies for each record, k of them give the gradient within the span of k directions, and all of it from
    k = classes on. With one reply for a batch the unknowns are the gradients of all its records together. What queries
    leave open is taken as zero (the least norm); the guess is the smallest entry. An adversary who sees the replies but
    not what was sent, as the paper's eavesdropper, makes directions up.
    """

    name = "label_zo_query"
    summary = "rebuilds the gradient of summed logits from losses, query by query"
    needs = frozenset({*_UPLINKS, *_REPLIES})
    conduct = Conduct(name="random-queries", forge=random_queries)

    def missing(self, view: View) -> str | None:
        if not view.kinds & set(_REPLIES):
            return f"losses of outputs it can vary; {what_it_gets(view)}"
        if view.kinds & {"embedding-pair", "embeddings"}:
            return "summed logits: losses of embeddings under a server model have no entry for each class"
        return None

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        sent = {(m.round, m.device): m for m in view.of_kind(*_UPLINKS)}
        replies = view.of_kind(*_REPLIES)
        records, place = ids_of(replies)
        places = place.split([len(m.records) for m in replies if m.records is not None])
        coins = torch.Generator().manual_seed(auxiliary.seed)
        pairs = []
        for reply, rows in zip(replies, places, strict=True):
            change = _change(reply)
            steps = _steps(sent.get((reply.round, reply.device)), change, len(rows), view.classes, coins)
            pairs.append((rows, steps, change))
        solve = _each_record if pairs[0][2].dim() == 3 else _each_batch
        return LabelGuess(records, solve(pairs, len(records), view.classes).argmin(-1))


_Pairs = Sequence[tuple[Tensor, Tensor, Tensor]]
"""For each reply: the places of its records, the steps (R, n, B, C) and what they changed, (R, n) or (R, n, B)."""


def _change(reply: Message) -> Tensor:
    tensors = reply.tensors
    if reply.kind == "loss-differences":
        return tensors["differences"]
    change = tensors["delta"] if reply.kind == "loss-difference" else tensors["perturbed"] - tensors["loss"]
    return change.unsqueeze(1)


def _steps(sent: Message | None, change: Tensor, batch: int, classes: int, coins: torch.Generator) -> Tensor:
    if sent is None:
        return torch.randn(*change.shape[:2], batch, classes, generator=coins).to(change.device)
    perturbed, own = sent.tensors["perturbed"], sent.tensors["embedding"].unsqueeze(1)
    return (perturbed if perturbed.dim() == 4 else perturbed.unsqueeze(1)) - own


def _each_record(pairs: _Pairs, count: int, classes: int) -> Tensor:
    """(R, records, C) from replies for each record: A = Σ u uᵀ, b = Σ δ u, and A⁺ b."""
    replicas = len(pairs[0][2])
    a = torch.zeros(replicas, count, classes, classes, dtype=torch.float64, device=pairs[0][2].device)
    b = torch.zeros(replicas, count, classes, dtype=torch.float64, device=a.device)
    for rows, steps, change in pairs:
        wide = steps.to(a.dtype)
        a.index_add_(1, rows, torch.einsum("rnbc,rnbd->rbcd", wide, wide))
        b.index_add_(1, rows, torch.einsum("rnb,rnbc->rbc", change.to(a.dtype), wide))
    found: Tensor = torch.linalg.pinv(a, rtol=1e-6, hermitian=True) @ b.unsqueeze(-1)
    return found.squeeze(-1)


def _each_batch(pairs: _Pairs, count: int, classes: int) -> Tensor:
    """(R, records, C) from one reply a batch: queries of the same batch are solved together, different ones added."""
    groups: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = defaultdict(list)
    for rows, steps, change in pairs:
        ordered, order = rows.sort()
        groups[tuple(ordered.tolist())].append((steps.index_select(2, order).flatten(2), change))
    total = torch.zeros(len(pairs[0][2]), count, classes, dtype=torch.float64, device=pairs[0][2].device)
    for batch, asked in groups.items():
        matrix = torch.cat([steps for steps, _ in asked], dim=1).to(total.dtype)
        right = torch.cat([change for _, change in asked], dim=1).to(total.dtype).unsqueeze(-1)
        found = _least_norm(matrix, right).reshape(len(total), len(batch), classes)
        total += by_record(torch.tensor(batch, device=total.device), found, count)
    return total


def _least_norm(matrix: Tensor, right: Tensor) -> Tensor:
    """(R, unknowns, 1): the smallest solution of too few equations, the best one of too many."""
    wide = matrix.shape[1] <= matrix.shape[2]
    transposed = matrix.transpose(1, 2)
    gram = matrix @ transposed if wide else transposed @ matrix
    diagonal = gram.diagonal(dim1=1, dim2=2)
    diagonal += 1e-9 * diagonal.mean(-1, keepdim=True)
    solution: Tensor = torch.linalg.solve(gram, right if wide else transposed @ right)
    return transposed @ solution if wide else solution
