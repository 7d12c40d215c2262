"""Labels from ADMM's residuals alone: a device's output less its residual is the step of λ divided by ρ.

VIMADMM: Xie et al., "Improving Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from vflpriv.attacks._base import LabelInference, sent_instead, smallest_entry
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View
from vflpriv.core.wire import Message, Party

__all__ = ["LabelResidual", "differences"]


@register("attack")
class LabelResidual(LabelInference):
    """s_k = z - (ŷ - o_k), so o_k - s_k = ŷ - z, which by VIMADMM eq. 6 is (λ_new - λ_old)/ρ; λ starts from zero.

    Summed over a record's rounds it is λ/ρ, whose smallest entry is the label's. o_k is what the device sent or, where
    the server has heads, the output for it of the head before the server's step: the one of the device's reply before.
    Where the round before brought the device none, the reply's own head, one step newer, is taken. Residuals of the
    heads after the step (`residual = "printed"`) differ from these by the steps of the other devices' heads, which are
    neglected.
    """

    name = "label_residual"
    summary = "reads the label off ADMM's residuals, without the dual variables"
    needs = frozenset({"admm-variables", "embeddings", "logits"})

    def missing(self, view: View) -> str | None:
        if "admm-variables" not in view.kinds:
            return f"residuals of each record; {sent_instead(view)}"
        return None if view.kinds & {"embeddings", "logits"} else "what the device sent; this view holds none of it"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        replies = sorted(view.of_kind("admm-variables"), key=lambda reply: reply.round)
        sent = {(m.round, m.device): m for m in view.of_kind("embeddings", "logits")}
        return smallest_entry(replies, differences(replies, sent))


def differences(replies: Sequence[Message], sent: Mapping[tuple[int, Party], Message]) -> Iterator[Tensor]:
    """(R, B, C) of each reply, which are in the order of rounds: the device's output less its residual."""
    known: dict[Party, Message] = {}
    for reply in replies:
        m = reply.device
        before = known.get(m)
        # Heads step in every round: an older one is farther off than the one that comes with the reply.
        holder = before if before is not None and before.round == reply.round - 1 else reply
        yield _output(sent[reply.round, m], holder) - reply.tensors["residuals"]
        known[m] = reply


def _output(sent: Message, reply: Message) -> Tensor:
    """(R, B, C): the device's share of the logits, by the head of this reply."""
    hidden, i = sent.tensors["embedding"], 0
    while f"head.weight{i}" in reply.tensors:
        hidden = (torch.relu(hidden) if i else hidden) @ reply.tensors[f"head.weight{i}"]
        bias = reply.tensors.get(f"head.bias{i}")
        hidden, i = hidden if bias is None else hidden + bias.unsqueeze(1), i + 1
    return hidden
