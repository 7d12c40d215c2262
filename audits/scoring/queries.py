"""Membership canaries of a recorded training: which of its messages are about all of them.

Whoever takes part in a training knows its records by their ids, so that ids are not guessed from. What is read are
queries: rounds in which the model was asked about every candidate, trained on or left out. A message of any other round
says by its ids alone who was trained on, and is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vflpriv.core.canaries import MemberCanaries
from vflpriv.core.kinds import Content, kind_named, names_of
from vflpriv.core.views import View
from vflpriv.core.wire import Message, Party

__all__ = ["queries", "training_refusal"]

_Link = tuple[str, Party, Party]
"""Kind, sender and receiver."""


def queries(view: View, canaries: MemberCanaries) -> View:
    """The view with one message for each kind and link: the last round of it that is about every candidate.

    Messages of a round are taken together. Rows are those of the candidates, in the order of their numbers: where a
    system puts them in a message must not tell who was trained on.
    """
    last: dict[_Link, tuple[int, Sequence[Message]]] = {}
    for (link, round_), messages in _groups(view.messages, canaries).items():
        if _is_complete(messages, canaries) and round_ >= last.get(link, (-1, ()))[0]:
            last[link] = round_, messages
    return replace(view, messages=tuple(_merged(messages, canaries.records) for _, messages in last.values()))


def training_refusal(messages: Iterable[Message], canaries: MemberCanaries) -> str | None:
    """Why the coins measure nothing, if canaries that were to be left out took part in the training; else None."""
    groups = _groups(messages, canaries)
    queried = {key for key, group in groups.items() if _is_complete(group, canaries)}
    for (link, round_), group in sorted(groups.items(), key=lambda item: item[0][1]):
        took_part = any(bool(torch.isin(canaries.left_out, _ids(m)).any()) for m in group)
        if took_part and (link, round_) not in queried:
            where = f"round {round_} ({link[0]}), where not all canaries do"
            advice = "train on `members` alone, and ask about all canaries in one round"
            return f"a canary that its coin leaves out takes part in {where}: {advice}"
    training = {round_ for (kind, *_), round_ in queried if kind not in names_of(content=Content.CONFIDENCES)}
    if len(training) > 1 and len(queried) == len(groups):
        return "every round that names canaries names all of them, those left out too: train on `members` alone"
    return None


def _groups(messages: Iterable[Message], canaries: MemberCanaries) -> dict[tuple[_Link, int], list[Message]]:
    """The messages that name a candidate, by kind, link and round."""
    candidates, groups = canaries.records, dict[tuple[_Link, int], list[Message]]()
    for m in messages:
        if m.records is not None and bool(torch.isin(_ids(m), candidates).any()):
            groups.setdefault(((m.kind, m.sender, m.receiver), m.round), []).append(m)
    return groups


def _ids(message: Message) -> Tensor:
    assert message.records is not None
    return message.records.cpu()


def _is_complete(messages: Sequence[Message], canaries: MemberCanaries) -> bool:
    """Whether these messages are about every candidate."""
    if sum(len(_ids(m)) for m in messages) < len(canaries.records):
        return False
    return bool(torch.isin(canaries.records, torch.cat([_ids(m) for m in messages])).all())


def _merged(messages: Sequence[Message], candidates: Tensor) -> Message:
    """One message with a row for each candidate, in order; tensors without rows by record are left out."""
    ids = torch.cat([_ids(m) for m in messages])
    order = ids.argsort(stable=True)
    places = order[torch.searchsorted(ids[order], candidates)]
    tensors = {}
    for name in messages[0].tensors:
        rows = [_rows(m, name) for m in messages]
        if all(r is not None and r.shape[1:] == (rows[0] if rows[0] is not None else r).shape[1:] for r in rows):
            tensors[name] = torch.cat([r for r in rows if r is not None])[places].unsqueeze(0)
    return replace(messages[0], tensors=tensors, records=candidates, batch=None)


def _rows(message: Message, name: str) -> Tensor | None:
    """(records, width) the rows of a tensor of a message; None where it has no axis for records."""
    if name not in message.tensors:
        return None
    value, size, kind = message.tensors[name][0].cpu(), len(_ids(message)), kind_named(message.kind)
    forms = [form[name] for form in kind.forms if name in form] if kind is not None else []
    if forms:
        axis = forms[0].index("batch") if "batch" in forms[0] else None
    else:
        axis = next((i for i, length in enumerate(value.shape) if length == size), None)
    return None if axis is None else value.movedim(axis, 0).reshape(size, -1)
