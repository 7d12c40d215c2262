"""Whole trainings in two worlds, as a user runs them: one replica, and data of its own that differ in one record.

Replicas of one engine share record ids, batches and what an engine computes from data that no world changes; and an
engine may send more in `run` than in its rounds. Here nothing is shared, and the engine's own `run` trains.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.twins.pairs import TwinCanary, TwinRound, other_record, scales, twin_records
from vflpriv.audits.twins.probes import Probe, Released
from vflpriv.audits.twins.reconcile import Outline, outline
from vflpriv.core.data import VerticalData
from vflpriv.core.engine import Contributions, ReleasePoint
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.wire import Message, Wire

__all__ = ["RunTape", "compare_runs", "plan_runs", "record_run", "run_data"]

_ROOM = 1 << 26
"""Bytes of messages, and of released values, that are kept of one run."""


def plan_runs(system: System, units: Sequence[Unit | None]) -> list[TwinCanary]:
    """A pair of worlds for labels and one for the features at one device, of these units; both have the same world 0.

    The record's features are far out, so that clips are reached.
    """
    data, record = system.data, twin_records(system)[0]
    other = other_record(system, record)
    active = system.schedule.active.sum(axis=0)
    m, scale = int(np.argmax(active)), next(iter(scales(system)), None)
    far = {k: b[record] if scale is None else b[record] * scale for k, b in enumerate(data.blocks)}
    same, label = {k: (block, block) for k, block in far.items()}, int(data.labels[record])
    opposite = data.blocks[m][other] if scale is None else -scale * data.blocks[m][other]
    canaries = [
        TwinCanary(
            unit=Unit.LABEL,
            what=f"whole trainings, record {record} with label {label} or {(label + 1) % data.classes}",
            record=record,
            labels=(label, (label + 1) % data.classes),
            blocks=same,
        ),
        TwinCanary(
            unit=Unit.FEATURES,
            what=f"whole trainings, record {record}'s block at device({m}) or another record's",
            record=record,
            blocks=same | {m: (far[m], opposite)},
        ),
    ]
    return [canary for canary in canaries if canary.unit in units]


def run_data(data: VerticalData, canary: TwinCanary, world: int) -> VerticalData:
    """The data set of one world."""
    labels, blocks = data.labels.clone(), list(data.blocks)
    assert canary.record is not None
    if canary.labels is not None:
        labels[canary.record] = canary.labels[world]
    for m, pair in canary.blocks.items():
        blocks[m] = blocks[m].clone()
        blocks[m][canary.record] = pair[world]
    return replace(data, labels=labels, blocks=tuple(blocks))


@dataclass(eq=False, kw_only=True)
class _Event:
    """A message or a released value, in the order of the run."""

    round: int
    message: Message | None = None
    digests: dict[str, bytes] = field(default_factory=dict)
    """Of tensors that are not kept."""
    value: Released | None = None


class RunTape(Probe):
    """Records all messages and released values of a run; with a leader it releases what the leader's run released.

    Tensors for which there is no room are kept as digests, which are equal or not. Without room for released values a
    second run cannot follow: from there on, only the form of messages is kept.
    """

    def __init__(self, leader: RunTape | None = None, *, room: int = _ROOM) -> None:
        super().__init__()
        self._leader = leader
        self._room = {"messages": room, "values": room}
        self._recent: list[tuple[Tensor, _Event]] = []
        """Values that a message of this round may carry."""
        self._older = 0
        """How many of them were there before the last message."""
        self._round = -1
        self.events: list[_Event] = []
        self.sent: Counter[Outline] = Counter()
        self.blind = False
        """Whether released values were left out."""

    def observed(self, observed: Tensor, records: Tensor, prior: Tensor | None = None) -> Tensor:
        led = None if self._leader is None else self._leader.noised_labels
        return super().observed(observed if led is None else led.index_select(1, records), records, prior)

    def released(
        self, point: ReleasePoint, contributions: Contributions, noiseless: Tensor, released: Tensor
    ) -> Tensor:
        led, place = [] if self._leader is None else self._leader.values, len(self.values)
        if not self.blind and place < len(led) and led[place].released.shape == released.shape:
            released = led[place].released.clone()
        self.blind = self.blind or not self._fits("values", noiseless, released)
        if not self.blind:
            # Copies: the engine may go on to change what it released.
            super().released(point, contributions, noiseless.clone(), released.clone())
            event = _Event(round=contributions.round, value=self.values[-1])
            self.events.append(event)
            self._recent.append((released, event))
        return released

    def record(self, message: Message) -> None:
        self.sent[outline(message)] += 1
        self._carries(message)
        kept = not self.blind and self._fits("messages", *message.tensors.values())
        tensors = {name: tensor.clone() for name, tensor in message.tensors.items()} if kept else {}
        digests = {} if kept else {name: _digest(t, values=not self.blind) for name, t in message.tensors.items()}
        records = None if message.records is None else message.records.clone()
        noted = replace(message, tensors=tensors, records=records)
        self.events.append(_Event(round=message.round, message=noted, digests=digests))

    def _carries(self, message: Message) -> None:
        """Note which released values a message carries; only the very tensor that was released counts."""
        for tensor in message.tensors.values():
            for released, event in self._recent:
                if released is tensor and event.value is not None:
                    event.round = message.round if event.value.message is None else event.round
                    event.value.message = replace(message, tensors={})
        if message.round != self._round:
            self._recent = self._recent[self._older :]
        self._round, self._older = message.round, len(self._recent)

    def _fits(self, what: str, *tensors: Tensor) -> bool:
        self._room[what] -= sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return self._room[what] >= 0

    def rounds(self, count: int) -> Iterator[list[_Event]]:
        """The events of one round after another, as often as the round changes; `count` rounds are scheduled.

        A released value belongs to the round of the message that carries it. A noised step that none carries belongs
        to the round that it names, if it is scheduled, else to that of the last message.
        """
        current = next((event.round for event in self.events if event.message is not None), 0)
        group: list[_Event] = []
        before = current
        for event in self.events:
            uncarried = event.value is not None and event.value.message is None
            round_ = current if uncarried and not 0 <= event.round < count else event.round
            if group and round_ != before:
                yield group
                group = []
            group.append(replace(event, round=round_))
            before = round_
            current = event.round if event.message is not None else current
        if group:
            yield group


def _digest(tensor: Tensor, *, values: bool) -> bytes:
    """Of a tensor's form, and of its values."""
    digest = hashlib.blake2b(f"{tuple(tensor.shape)} {tensor.dtype}".encode(), digest_size=16)
    if values:
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.digest()


def record_run(system: System, data: VerticalData, leader: RunTape | None = None, *, room: int = _ROOM) -> RunTape:
    """Train once as a user does."""
    tape = RunTape(leader, room=room)
    system.train([0], data=data, probe=tape).run(Wire(tape))
    return tape


def compare_runs(leader: RunTape, follower: RunTape, rounds: int) -> Iterator[TwinRound]:
    """Both runs, round by round, in the order in which they went."""
    nothing: list[_Event] = []
    for first, second in zip_longest(leader.rounds(rounds), follower.rounds(rounds), fillvalue=nothing):
        messages = [[event for event in events if event.message is not None] for events in (first, second)]
        pairs = [_with_digests(event, twin) for event, twin in zip_longest(*messages)]
        yield TwinRound(
            round=(first or second)[0].round,
            messages=([m for m, _ in pairs if m is not None], [m for _, m in pairs if m is not None]),
            values=(_values(first), _values(second)),
        ).on_host()


def _values(events: Sequence[_Event]) -> list[Released]:
    return [event.value for event in events if event.value is not None]


def _with_digests(mine: _Event | None, twin: _Event | None) -> tuple[Message | None, Message | None]:
    """Two messages; a tensor that is known by its digest is 0 in both, or not a number in the second if it differs."""
    first, second = (None if event is None else event.message for event in (mine, twin))
    if mine is not None and first is not None and mine.digests:
        first = replace(first, tensors={**first.tensors, **{name: torch.zeros(1) for name in mine.digests}})
    if twin is not None and second is not None and twin.digests:
        known = {} if mine is None else mine.digests
        own = {name: torch.full((1,), 0.0 if known.get(name) == d else np.nan) for name, d in twin.digests.items()}
        second = replace(second, tensors={**second.tensors, **own})
    return first, second
