"""What a view shows of each record: the embeddings a device sent, and what it was sent back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflpriv.core.kinds import Content, Direction, names_of
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["REPLIES", "UPLINKS", "Seen", "known_rows", "last_and_mean", "replies_of_own", "uplinks_of"]

UPLINKS = names_of(direction=Direction.UP)
_CHANGES = names_of(content=Content.LOSS_CHANGE)
"""Replies that say how losses change with what the device sent."""
REPLIES = names_of(direction=Direction.DOWN)
_ROWS = ("duals", "residuals", "logits", "confidences", "gradient")
"""Tensors with a row for each record, in replies that are no changes of the loss."""


@dataclass(frozen=True, eq=False)
class Seen:
    """Values (B, width) that one message of the first replica holds of these records."""

    round: int
    records: Tensor
    values: Tensor


def uplinks_of(view: View, device: int) -> list[Seen]:
    """What a device sent: its embeddings, or the middle of a pair that lies symmetrically around them."""
    found = []
    for m in view.of_kind(*UPLINKS):
        if m.device.index == device and m.records is not None:
            t = m.tensors
            values = t["embedding"] if "embedding" in t else (t["plus"] + t["minus"]) / 2
            found.append(Seen(m.round, m.records, values[0]))
    return found


def replies_of_own(view: View) -> list[Seen]:
    """What the adversary's devices were sent of each record: of several devices of one round, side by side.

    Devices that are not always active together have replies of their own width in every round; then only those of
    the first device count. Where losses of whole batches are sent, a record's share is what remains on average over
    the batches it was in.
    """
    sent = {(m.round, m.device): m for m in view.of_kind(*UPLINKS)}
    rounds: dict[int, list[Message]] = {}
    for m in view.of_kind(*REPLIES):
        if m.device.index in view.own and m.records is not None:
            rounds.setdefault(m.round, []).append(m)
    together = all(len(messages) == len(view.own) for messages in rounds.values())
    found = []
    for round_, messages in rounds.items():
        used = messages if together else [m for m in messages if m.device.index == min(view.own)]
        if used and used[0].records is not None:
            rows = [_row(m, sent.get((m.round, m.device))) for m in used]
            found.append(Seen(round_, used[0].records, torch.cat(rows, dim=-1)))
    return found


def _row(message: Message, sent: Message | None) -> Tensor:
    t = message.tensors
    if message.kind in _CHANGES and sent is not None:
        slope = _slope(message, sent)
        return torch.cat((t["loss"][0].expand(len(slope), 1), slope), dim=1) if "loss" in t else slope
    return torch.cat([t[name][0] for name in _ROWS if name in t], dim=-1)


def _slope(reply: Message, sent: Message) -> Tensor:
    """(B, width): how losses change along each record's own embedding, as far as the directions it was moved in say."""
    t, s = reply.tensors, sent.tensors
    moved = s["plus"] - s["minus"] if "plus" in s else s["perturbed"] - _like(s["embedding"], s["perturbed"])
    moved = moved[0].reshape(-1, *moved.shape[-2:])
    if "differences" in t:
        change = t["differences"][0]
    else:
        one = t["delta"] if "delta" in t else t["perturbed"] - t["loss"]
        change = one[0].reshape(1, 1)
    scale = moved.square().sum(-1).mean().clamp(min=1e-30)
    return (change.unsqueeze(-1) * moved).sum(0) / scale


def _like(values: Tensor, others: Tensor) -> Tensor:
    """(R, B, …), with a direction axis where the others have one."""
    return values if values.dim() == others.dim() else values.unsqueeze(1)


def last_and_mean(seen: Sequence[Seen]) -> tuple[Tensor, Tensor]:
    """The records (n,), sorted, and of each (n, 2·width): what was seen last, and the mean over all rounds.

    The last shows the model as it is now; the mean has less noise.
    """
    records, place = torch.cat([s.records for s in seen]).unique(return_inverse=True)
    rows = torch.cat([s.values for s in seen])
    total = rows.new_zeros(len(records), rows.shape[1]).index_add_(0, place, rows)
    times = rows.new_zeros(len(records)).index_add_(0, place, torch.ones_like(place, dtype=rows.dtype))
    # The highest row number of each record: messages are in the order they were sent.
    latest = torch.zeros(len(records), dtype=torch.int64, device=rows.device)
    latest.scatter_reduce_(0, place, torch.arange(len(place), device=rows.device), "amax", include_self=True)
    return records, torch.cat((rows.index_select(0, latest), total / times.unsqueeze(1)), dim=1)


def known_rows(records: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Where known records stand among sorted ones: their places there, and which of the known they are."""
    at = torch.searchsorted(records, known).clamp(max=len(records) - 1)
    there = records.index_select(0, at) == known
    return at[there], there.nonzero().flatten()
