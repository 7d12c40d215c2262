"""The schedule of a recorded training, derived from its messages, and the turns with a message of each kind.

A turn is at most one message of each kind on one device's link. A round has a turn for each device that took part, and
more where several messages of a kind were sent on one link. So every message counts once, for adversaries that observe
its link.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vflpriv.core.schedules import Batching, Schedule
from vflpriv.core.wire import Message
from vflpriv.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BatchSampling", "RecordedSchedule"]

Ints = NDArray[np.int64]
_MOST_TURNS = 50_000_000
"""The most turns of unrecorded rounds; more would not fit into memory."""
_MOST_CELLS = 1_000_000_000
"""The most entries of the table of turns and devices, of one byte each."""
_FAR = 6.0
"""The number of standard deviations beyond which recorded batch sizes are not those of a Poisson sample."""


@dataclass(frozen=True, kw_only=True)
class BatchSampling:
    """The ledger file's description of how batches were drawn, and the number of rounds that were not recorded."""

    batching: Batching = Batching.SHUFFLE
    size: int | None = None
    unrecorded: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedSchedule:
    """Turns as the rounds of a schedule, and for each kind the turns that have a message of it."""

    schedule: Schedule
    kinds: Mapping[str, NDArray[np.bool_]]
    unrecorded: NDArray[np.bool_]
    """The turns that are not in the transcript, which come last."""
    rounds: Ints
    """The round of each turn, as the training counts them from 0."""
    note: str | None
    """Why batches are counted differently from how they were drawn, or None."""

    @classmethod
    def of(
        cls,
        messages: Sequence[Message],
        *,
        records: int,
        devices: int,
        shared: frozenset[str],
        public: frozenset[str],
        sampled: BatchSampling,
    ) -> RecordedSchedule:
        """Derive the schedule. `shared` kinds are one value for all devices, `public` ones hold nothing private."""
        turns, turns_of = _turns(messages, shared, public)
        all_records = np.arange(records, dtype=np.int64)
        batches = [_union(parts, all_records) for parts in turns.values()]
        links = [turn.ends for turn in turns]
        busiest = max(Counter(turn.round for turn in turns).values(), default=0)
        kinds = {kind: np.isin(np.arange(len(turns)), list(numbers)) for kind, numbers in turns_of.items()}
        private = [kind for kind in kinds if kind not in public]
        extra = sampled.unrecorded * devices
        if extra > _MOST_TURNS:
            most = f"at most {_MOST_TURNS // devices} with {devices} devices"
            raise InputError("ledger.batches.unrecorded_rounds", sampled.unrecorded, most)
        batching, note = _batching(sampled, batches, records, max(busiest, devices if extra else 0))
        if not batches:
            # Values that are released once, and the trained model, count although no message is private.
            batches, links = [all_records[:0]], [(0, 0)]
            kinds = {kind: np.zeros(1, dtype=np.bool_) for kind in kinds}
        links += [(m, m) for m in range(devices)] * sampled.unrecorded
        kinds = {kind: np.append(at, np.full(extra, kind in private)) for kind, at in kinds.items()}
        if (len(batches) + extra) * devices > _MOST_CELLS:
            most = f"at most {_MOST_CELLS // (len(batches) + extra)} with {len(batches) + extra} turns"
            raise InputError("transcript: devices", devices, most)
        size = np.array([len(b) for b in batches] + [records] * extra, dtype=np.int64)
        # A batch of several turns, as that of all records is, is one list of ids for all of them.
        distinct = {id(batch): batch for batch in (*batches, all_records)}
        starts = dict(zip(distinct, accumulate(map(len, distinct.values()), initial=0), strict=False))
        start = np.array([starts[id(b)] for b in batches] + [starts[id(all_records)]] * extra, dtype=np.int64)
        schedule = Schedule(
            batching=batching,
            records=records,
            batch_size=records if batching is Batching.FULL else sampled.size or int(size.max(initial=1)) or 1,
            devices=devices,
            active=(np.arange(devices) == np.array(links, dtype=np.int64).reshape(-1, 2, 1)).any(axis=1),
            order=np.concatenate(list(distinct.values())),
            start=start,
            size=size,
        )
        known = [turn.round for turn in turns] or [0]
        later = max(known) + 1 + np.arange(extra, dtype=np.int64) // devices
        return cls(
            schedule=schedule,
            kinds=kinds,
            unrecorded=np.arange(len(size)) >= len(batches),
            rounds=np.append(np.array(known, dtype=np.int64), later),
            note=note,
        )


class _Turn(NamedTuple):
    """A round, the devices at the ends of a link (one and the same if the server is the other end), and a number.

    The number is that of a message among those of its kind on that link in that round.
    """

    round: int
    ends: tuple[int, int]
    number: int


def _turns(
    messages: Sequence[Message], shared: frozenset[str], public: frozenset[str]
) -> tuple[dict[_Turn, list[Ints | None]], dict[str, set[int]]]:
    """The record ids of each turn's private messages, and the numbers of the turns with a message of each kind."""
    sent: Counter[tuple[int, tuple[int, int], str]] = Counter()
    first: dict[tuple[int, str, int], tuple[_Turn, Message]] = {}
    turns: dict[_Turn, list[Ints | None]] = {}
    turns_of: dict[str, set[int]] = {}
    number_of: dict[_Turn, int] = {}
    ids = _SharedIds()
    for m in messages:
        ends = (m.sender.index, m.receiver.index) if m.across else (m.device.index, m.device.index)
        turn = _Turn(m.round, ends, sent[m.round, ends, m.kind])
        sent[m.round, ends, m.kind] += 1
        turns_of.setdefault(m.kind, set())
        if m.kind in public:
            continue
        if m.kind in shared:
            turn, original = first.setdefault((m.round, m.kind, turn.number), (turn, m))
            _check_same(m, original)
        turns_of[m.kind].add(number_of.setdefault(turn, len(number_of)))
        turns.setdefault(turn, []).append(ids.of(m))
    return turns, turns_of


class _SharedIds:
    """The record ids of messages: one array for all messages that share theirs."""

    def __init__(self) -> None:
        self._last: tuple[Tensor, Ints] | None = None

    def of(self, message: Message) -> Ints | None:
        ids = message.contributors
        if ids is None:
            return None
        if self._last is None or self._last[0] is not ids:
            self._last = ids, ids.numpy()
        return self._last[1]


def _check_same(message: Message, original: Message) -> None:
    """Raise an error if a value that counts once for all devices differs between them."""
    pairs = [(message.tensors.get(name), value) for name, value in original.tensors.items()]
    same = len(message.tensors) == len(pairs) and all(a is not None and a.equal(b) for a, b in pairs)
    ids = (message.contributors, original.contributors)
    alike = ids[0].equal(ids[1]) if ids[0] is not None and ids[1] is not None else ids[0] is ids[1]
    if not (same and alike):
        where = f"release {message.kind}: shared"
        raise InputError(where, True, f"false: in round {message.round} devices were sent different values")


def _union(parts: Sequence[Ints | None], all_records: Ints) -> Ints:
    """The records of a turn; all of them if one of its messages does not name its records."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return all_records
    return known[0] if all(part is known[0] for part in known) else np.unique(np.concatenate(known))


def _batching(
    sampled: BatchSampling, batches: Sequence[Ints], records: int, busiest: int
) -> tuple[Batching, str | None]:
    """How batches may be counted, after a check that the recorded ones agree with their description."""
    batching, size = sampled.batching, sampled.size
    sizes = np.array([len(b) for b in batches], dtype=np.int64)
    if batching is Batching.SHUFFLE:
        return batching, None
    if batching is Batching.FULL:
        if (sizes != records).any():
            raise InputError(
                "batches.batching", batching.value, f"{records} records in every batch; a recorded one has fewer"
            )
        return batching, None
    if size is None or not 1 <= size <= records:
        raise InputError("batches.size", size, f"the size of {batching.value} batches, 1 to {records}")
    if batching is Batching.FIXED and (sizes != size).any():
        raise InputError("batches.size", size, f"the size of every batch; a recorded one has {sizes[sizes != size][0]}")
    spread = math.sqrt(len(sizes) * size * (1 - size / records))
    if batching is Batching.POISSON and abs(sizes.sum() - len(sizes) * size) > _FAR * max(1.0, spread):
        raise InputError(
            "batches.size", size, f"the mean of Poisson batches; the recorded ones have {sizes.mean():.4g}"
        )
    if busiest > 1:
        # Turns of one round share a batch; as sampled rounds they would count as if each had drawn its own.
        reason = "several messages of a round share a batch"
        return Batching.SHUFFLE, f"{batching.value} batches are counted as known, since {reason}"
    return batching, None
