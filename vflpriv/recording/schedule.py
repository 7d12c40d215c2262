"""The schedule of a recorded training, read off its messages, and which of its turns hold which kind.

A turn is one message of each kind on one device's link; a round has as many turns as devices took part and messages of
a kind were sent to each. So every message counts once, for whoever sees its link.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vflpriv.core.schedules import Batching, Schedule
from vflpriv.core.wire import Message
from vflpriv.errors import InputError

__all__ = ["RecordedSchedule", "Sampled"]

Ints = NDArray[np.int64]
_MOST_TURNS = 50_000_000
"""Messages on all links that were not recorded; more would not fit into memory."""
_FAR = 6.0
"""Standard deviations beyond which recorded batch sizes are not those of a Poisson sample."""


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """How the ledger says that batches were drawn, and how many rounds of the training are not in the transcript."""

    batching: Batching = Batching.SHUFFLE
    size: int | None = None
    unrecorded: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedSchedule:
    """Turns as the rounds of a schedule, and for each kind the turns that hold one of its messages."""

    schedule: Schedule
    kinds: Mapping[str, NDArray[np.bool_]]
    unrecorded: NDArray[np.bool_]
    """The turns that are not in the transcript, at the end."""
    note: str | None
    """Why batches are counted otherwise than they were drawn, if they are."""

    @classmethod
    def of(
        cls,
        messages: Sequence[Message],
        *,
        records: int,
        devices: int,
        shared: frozenset[str],
        public: frozenset[str],
        sampled: Sampled,
    ) -> RecordedSchedule:
        """`shared` kinds are one value for every device, counted once a round; `public` ones hold nothing private."""
        turns, held = _turns(messages, shared, public)
        everyone = np.arange(records, dtype=np.int64)
        batches = [_union(parts, everyone) for parts in turns.values()]
        links = [device for _, device, _ in turns]
        busiest = max(Counter(round_ for round_, _, _ in turns).values(), default=0)
        kinds = {kind: np.isin(np.arange(len(turns)), list(places)) for kind, places in held.items()}
        private = [kind for kind in kinds if kind not in public]
        extra = sampled.unrecorded * devices
        if extra > _MOST_TURNS:
            most = f"at most {_MOST_TURNS // devices} with {devices} devices"
            raise InputError("ledger.batches.unrecorded_rounds", sampled.unrecorded, most)
        batching, note = _batching(sampled, batches, records, max(busiest, devices if extra else 0))
        if not batches:
            # What is released once, and the trained model, are released although no message is private.
            batches, links = [everyone[:0]], [0]
            kinds = {kind: np.zeros(1, dtype=np.bool_) for kind in kinds}
        links += list(range(devices)) * sampled.unrecorded
        kinds = {kind: np.append(at, np.full(extra, kind in private)) for kind, at in kinds.items()}
        size = np.array([len(b) for b in batches] + [records] * extra, dtype=np.int64)
        start = np.cumsum(size) - size
        start[len(batches) :] = sum(map(len, batches))
        schedule = Schedule(
            batching=batching,
            records=records,
            batch_size=records if batching is Batching.FULL else sampled.size or int(size.max(initial=1)) or 1,
            devices=devices,
            active=np.arange(devices) == np.array(links, dtype=np.int64).reshape(-1, 1),
            order=np.concatenate([*batches, everyone]),
            start=start,
            size=size,
        )
        return cls(schedule=schedule, kinds=kinds, unrecorded=np.arange(len(size)) >= len(batches), note=note)


_Turn = tuple[int, int, int]
"""Round, device, and the how-manyeth message of its kind on that link."""


def _turns(
    messages: Sequence[Message], shared: frozenset[str], public: frozenset[str]
) -> tuple[dict[_Turn, list[Ints | None]], dict[str, set[int]]]:
    """The record ids of each turn's private messages, and the places of each kind's turns."""
    seen: Counter[tuple[int, int, str]] = Counter()
    first: dict[tuple[int, str, int], tuple[_Turn, Message]] = {}
    turns: dict[_Turn, list[Ints | None]] = {}
    held: dict[str, set[int]] = {}
    place: dict[_Turn, int] = {}
    for m in messages:
        lane = (m.round, m.device.index, m.kind)
        turn = (m.round, m.device.index, seen[lane])
        seen[lane] += 1
        held.setdefault(m.kind, set())
        if m.kind in public:
            continue
        if m.kind in shared:
            turn, original = first.setdefault((m.round, m.kind, turn[2]), (turn, m))
            _check_same(m, original)
        at = place.setdefault(turn, len(place))
        held[m.kind].add(at)
        turns.setdefault(turn, []).append(None if m.records is None else m.records.numpy())
    return turns, held


def _check_same(message: Message, original: Message) -> None:
    """A value that is counted once for all devices must be one value."""
    pairs = [(message.tensors.get(name), value) for name, value in original.tensors.items()]
    same = len(message.tensors) == len(pairs) and all(a is not None and a.equal(b) for a, b in pairs)
    ids = (message.records, original.records)
    alike = ids[0].equal(ids[1]) if ids[0] is not None and ids[1] is not None else ids[0] is ids[1]
    if not (same and alike):
        where = f"release {message.kind}: shared"
        raise InputError(where, True, f"false: in round {message.round} devices were sent different values")


def _union(parts: Sequence[Ints | None], everyone: Ints) -> Ints:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return everyone
    return known[0] if len(known) == 1 else np.unique(np.concatenate(known))


def _batching(sampled: Sampled, batches: Sequence[Ints], records: int, busiest: int) -> tuple[Batching, str | None]:
    """How batches may be counted, once the recorded ones agree with what is said of them."""
    said, size = sampled.batching, sampled.size
    sizes = np.array([len(b) for b in batches], dtype=np.int64)
    if said is Batching.SHUFFLE:
        return said, None
    if said is Batching.FULL:
        if (sizes != records).any():
            raise InputError(
                "batches.batching", said.value, f"{records} records in every batch; a recorded one has fewer"
            )
        return said, None
    if size is None or not 1 <= size <= records:
        raise InputError("batches.size", size, f"the size of {said.value} batches, 1 to {records}")
    if said is Batching.FIXED and (sizes != size).any():
        raise InputError("batches.size", size, f"the size of every batch; a recorded one has {sizes[sizes != size][0]}")
    spread = math.sqrt(len(sizes) * size * (1 - size / records))
    if said is Batching.POISSON and abs(sizes.sum() - len(sizes) * size) > _FAR * max(1.0, spread):
        raise InputError(
            "batches.size", size, f"the mean of Poisson batches; the recorded ones have {sizes.mean():.4g}"
        )
    if busiest > 1:
        # Turns of one round read one batch: sampled one by one they would count as if each had drawn its own.
        return Batching.SHUFFLE, f"{said.value} batches are counted as known: several messages of a round share one"
    return said, None
