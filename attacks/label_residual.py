"""Labels from ADMM's residuals alone: what device k is sent as s_k, less its own output, moves as -λ does."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks._base import LabelAttack, by_record, ids_of, what_it_gets
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, LabelGuess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelResidual"]


@register("attack")
class LabelResidual(LabelAttack):
    """s_k = z - (ŷ - o_k), so o_k - s_k = ŷ - z, and by eq. (6) that is (λ_new - λ_old)/ρ; λ starts from zero.

    Summed over a record's rounds it is λ/ρ, whose smallest entry is the label's. o_k is what the device sent, or what
    the head it was sent makes of that; the server's own step on the heads, which lies between the two, is small.
    """

    name = "label_residual"
    summary = "reads the label off ADMM's residuals, without the dual variables"
    needs = frozenset({"admm-variables", "embeddings", "logits"})

    def missing(self, view: View) -> str | None:
        if "admm-variables" not in view.kinds:
            return f"residuals of each record; {what_it_gets(view)}"
        return None if view.kinds & {"embeddings", "logits"} else "what the device sent"

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        replies = view.of_kind("admm-variables")
        sent = {(m.round, m.device): m for m in view.of_kind("embeddings", "logits")}
        records, place = ids_of(replies)
        moves = [_output(sent[m.round, m.device], m) - m.tensors["residuals"] for m in replies]
        return LabelGuess(records, by_record(place, torch.cat(moves, dim=1), len(records)).argmin(-1))


def _output(sent: Message, reply: Message) -> Tensor:
    """(R, B, C): the device's share of the logits."""
    hidden, i = sent.tensors["embedding"], 0
    while f"head.weight{i}" in reply.tensors:
        hidden = (torch.relu(hidden) if i else hidden) @ reply.tensors[f"head.weight{i}"]
        bias = reply.tensors.get(f"head.bias{i}")
        hidden, i = hidden if bias is None else hidden + bias.unsqueeze(1), i + 1
    return hidden
