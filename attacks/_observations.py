"""Observations by record: the embeddings that a device sent, and the replies that it received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflpriv.core.kinds import Content, Direction, names_of
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = [
    "REPLIES",
    "UPLINKS",
    "Observation",
    "by_link",
    "first_columns",
    "known_positions",
    "last_and_mean",
    "last_values",
    "positions_in",
    "recent",
    "records_of",
    "replies_to_own",
    "sum_by_record",
    "union_of",
    "uplinks_of",
    "with_places",
]

_TOGETHER = 512
"""Messages that are read before it is asked whether more are needed."""

UPLINKS = names_of(direction=Direction.UP)
_CHANGES = names_of(content=Content.LOSS_CHANGE)
"""Replies that say how losses change with what the device sent."""
REPLIES = names_of(direction=Direction.DOWN)
_ROWS = ("duals", "residuals", "logits", "confidences", "gradient")
"""Tensors with a row for each record, in replies that are no changes of the loss."""


@dataclass(frozen=True, eq=False)
class Observation:
    """Values (B, width) of the records (B,) of one message, in the first replica."""

    round: int
    records: Tensor
    values: Tensor


def uplinks_of(view: View, device: int) -> list[Observation]:
    """The embeddings that a device sent; of a symmetric pair around an embedding, its middle.

    Of a device that sends embeddings of several widths, those of the commonest one.
    """
    observations = []
    for m in view.of_kind(*UPLINKS):
        if m.device.index == device and m.records is not None:
            t = m.tensors
            values = t["embedding"] if "embedding" in t else (t["plus"] + t["minus"]) / 2
            observations.append(Observation(m.round, m.records, values[0]))
    widths = Counter(o.values.shape[-1] for o in observations)
    return [o for o in observations if o.values.shape[-1] == widths.most_common(1)[0][0]]


def replies_to_own(view: View) -> list[Observation]:
    """The replies that the adversary's devices received, by record; several devices' replies of a round side by side.

    If not all of its devices are active in every round, only the first device's replies are used, so that all rounds
    have the same columns. Losses of whole batches are attributed to each record along the direction in which its
    embedding was moved; the mean over the batches of a record is then its own share. Of several kinds of replies, the
    commonest is read.
    """
    sent = {(m.round, m.device): m for m in view.of_kind(*UPLINKS)}
    replies = [m for m in view.of_kind(*REPLIES) if m.device.index in view.own and m.records is not None]
    kinds = Counter(m.kind for m in replies)
    by_round: dict[int, list[Message]] = {}
    for m in replies:
        if m.kind == kinds.most_common(1)[0][0]:
            by_round.setdefault(m.round, []).append(m)
    complete = all(len(messages) == len(view.own) for messages in by_round.values())
    observations = []
    for round_, messages in by_round.items():
        used = messages if complete else [m for m in messages if m.device.index == min(view.own)]
        if used and used[0].records is not None:
            values = [_reply_values(m, sent.get((m.round, m.device))) for m in used]
            observations.append(Observation(round_, used[0].records, torch.cat(values, dim=-1)))
    return observations


def _reply_values(reply: Message, sent: Message | None) -> Tensor:
    """(B, width) what one reply contains about each record."""
    t = reply.tensors
    if reply.kind in _CHANGES and sent is not None:
        slope = _slope(reply, sent)
        return torch.cat((t["loss"][0].expand(len(slope), 1), slope), dim=1) if "loss" in t else slope
    return torch.cat([t[name][0] for name in _ROWS if name in t], dim=-1)


def _slope(reply: Message, sent: Message) -> Tensor:
    """(B, width): estimated gradient of the loss by each record's embedding, within the span of its directions."""
    t, s = reply.tensors, sent.tensors
    moved = s["plus"] - s["minus"] if "plus" in s else s["perturbed"] - _with_axes_of(s["embedding"], s["perturbed"])
    moved = moved[0].reshape(-1, *moved.shape[-2:])
    if "differences" in t:
        change = t["differences"][0]
    else:
        batch_change = t["delta"] if "delta" in t else t["perturbed"] - t["loss"]
        change = batch_change[0].reshape(1, 1)
    scale = moved.square().sum(-1).mean().clamp(min=1e-30)
    return (change.unsqueeze(-1) * moved).sum(0) / scale


def _with_axes_of(values: Tensor, perturbed: Tensor) -> Tensor:
    """(R, B, …), with an axis for the directions where the perturbed values have one."""
    return values if values.dim() == perturbed.dim() else values.unsqueeze(1)


def records_of(messages: Iterable[Message]) -> Tensor:
    """The sorted records of all messages; messages about one batch share its ids, which are looked at once."""
    shared = {id(m.records): m.records for m in messages if m.records is not None}
    records: Tensor = torch.cat(list(shared.values())).unique()
    return records


def by_link(messages: Sequence[Message]) -> list[list[Message]]:
    """The messages of each device and kind, apart from those of others."""
    links = sorted({(m.device, m.kind) for m in messages})
    return [[m for m in messages if (m.device, m.kind) == link] for link in links]


def positions_in(records: Tensor, messages: Iterable[Message]) -> Iterator[Tensor]:
    """For each message, the positions of its records among these sorted ones, of which they are."""
    return (torch.searchsorted(records, m.records) for m in messages if m.records is not None)


def sum_by_record(positions: Iterable[Tensor], values: Iterable[Tensor], count: int) -> Tensor:
    """(R, records, …) sums of each message's (R, rows, …) over the rows of each record, one message after another."""
    total: Tensor | None = None
    for rows, value in zip(positions, values, strict=True):
        if total is None:
            total = torch.zeros(len(value), count, *value.shape[2:], dtype=value.dtype, device=value.device)
        total.index_add_(1, rows, value)
    assert total is not None, "a sum of at least one message"
    return total


def last_values(messages: Sequence[Message], tensor: str, records: Tensor) -> Tensor:
    """(R, n, width) for some sorted records: a tensor's flat row in the last of these messages with it; else zeros."""
    replicas, _, width = messages[0].tensors[tensor].flatten(2).shape
    values = torch.zeros(replicas, len(records) + 1, width, device=records.device)
    for m, places in with_places(messages, records):
        values.index_copy_(1, places, m.tensors[tensor].flatten(2).to(values.dtype))
    return values[:, :-1]


def union_of(chosen: Tensor) -> Tensor:
    """The sorted records of all replicas, from those of each, (R, n), sorted."""
    return chosen[0] if len(chosen) == 1 else chosen.unique()


def first_columns(messages: Sequence[Message], tensor: str, chosen: Tensor) -> list[Tensor]:
    """For each device (R, n, width): a record's row of a tensor in the first message with it, zeros if there is none.

    `chosen` are the sorted records (R, n) of each replica.
    """
    asked = union_of(chosen)
    places, columns = torch.searchsorted(asked, chosen), []
    for device in sorted({m.device for m in messages}):
        rows = _first_values([m for m in messages if m.device == device], tensor, asked)
        columns.append(rows.gather(1, places.unsqueeze(-1).expand(-1, -1, rows.shape[2])))
    return columns


def _first_values(messages: Sequence[Message], tensor: str, records: Tensor) -> Tensor:
    """`last_values` of the first messages; those after every record was seen are not read."""
    values, seen = None, torch.zeros(len(records) + 1, dtype=torch.bool, device=records.device)
    for begin in range(0, len(messages), _TOGETHER):
        some = messages[begin : begin + _TOGETHER]
        # Of messages in reverse order, the last one with a record is its first.
        last = last_values(some[::-1], tensor, records)
        values = last if values is None else torch.where(seen[:-1, None], values, last)
        for _, places in with_places(some, records):
            seen.index_fill_(0, places, True)
        if begin + _TOGETHER < len(messages) and bool(seen[:-1].all()):
            break
    assert values is not None
    return values


def _places_or_last(records: Tensor, ids: Tensor) -> Tensor:
    """The positions of ids among sorted records, len(records) for those that are none of them: nobody waits for it."""
    places = torch.searchsorted(records, ids)
    known = records.index_select(0, places.clamp(max=len(records) - 1)) == ids
    return torch.where(known, places, len(records))


def with_places(messages: Iterable[Message], records: Tensor) -> list[tuple[Message, Tensor]]:
    """Each message about records with their places among these sorted ones, as `_places_or_last` has them.

    They are looked up for all messages at once; messages about one batch share its ids, which are looked up once.
    """
    told = [(m, m.records) for m in messages if m.records is not None]
    batches = {id(ids): ids for _, ids in told}
    if not batches:
        return []
    placed = _places_or_last(records, torch.cat(list(batches.values()))).split([len(ids) for ids in batches.values()])
    places = dict(zip(batches, placed, strict=True))
    return [(m, places[id(ids)]) for m, ids in told]


def last_and_mean(observations: Sequence[Observation]) -> tuple[Tensor, Tensor]:
    """The records (n,), sorted, and for each (n, 2·width) its last observation and the mean of all.

    The last one reflects the current model; the mean has less noise.
    """
    records, positions = torch.cat([o.records for o in observations]).unique(return_inverse=True)
    rows = torch.cat([o.values for o in observations])
    total = rows.new_zeros(len(records), rows.shape[1]).index_add_(0, positions, rows)
    times = rows.new_zeros(len(records)).index_add_(0, positions, torch.ones_like(positions, dtype=rows.dtype))
    # The highest row number of each record: messages are in the order they were sent.
    latest = torch.zeros(len(records), dtype=torch.int64, device=rows.device)
    latest.scatter_reduce_(0, positions, torch.arange(len(positions), device=rows.device), "amax", include_self=True)
    return records, torch.cat((rows.index_select(0, latest), total / times.unsqueeze(1)), dim=1)


def recent(observations: Sequence[Observation], times: int) -> list[Observation]:
    """The observations, from the end, in which some record occurs for one of its last `times` times."""
    kept, counts = [], torch.zeros(1 + max(int(o.records.max()) for o in observations), dtype=torch.int64)
    for observation in reversed(observations):
        records = observation.records.cpu()
        if bool((counts[records] < times).any()):
            kept.append(observation)
            counts[records] += 1
    return kept[::-1]


def known_positions(records: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of known records among sorted ones, and the index of each in `known`; absent ones are left out."""
    position = torch.searchsorted(records, known).clamp(max=len(records) - 1)
    present = records.index_select(0, position) == known
    return position[present], present.nonzero().flatten()
