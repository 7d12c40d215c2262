"""What a view shows of each record: the embeddings a device sent, and what it was sent back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflpriv.views import View
from vflpriv.wire import Message

__all__ = ["REPLIES", "UPLINKS", "Seen", "known_rows", "last_and_mean", "replies_of_own", "uplinks_of"]

UPLINKS = frozenset({"embeddings", "logits", "embedding-pair", "logit-pair"})
REPLIES = frozenset(
    {"summed-logits", "admm-variables", "logit-gradient", "embedding-gradient", "loss-differences", "predictions"}
)


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
    the first device count.
    """
    rounds: dict[int, list[Message]] = {}
    for m in view.of_kind(*REPLIES):
        if m.device.index in view.own and m.records is not None:
            rounds.setdefault(m.round, []).append(m)
    together = all(len(messages) == len(view.own) for messages in rounds.values())
    found = []
    for round_, messages in rounds.items():
        used = messages if together else [m for m in messages if m.device.index == min(view.own)]
        if used and used[0].records is not None:
            found.append(Seen(round_, used[0].records, torch.cat([_row(m) for m in used], dim=-1)))
    return found


def _row(message: Message) -> Tensor:
    t = message.tensors
    if message.kind == "loss-differences":
        return t["differences"][0].T
    names = {"admm-variables": ("duals", "residuals"), "summed-logits": ("logits",), "predictions": ("confidences",)}
    return torch.cat([t[name][0] for name in names.get(message.kind, ("gradient",))], dim=-1)


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
