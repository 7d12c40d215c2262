"""Features of everything that an adversary sees of a training, from which a score of the two worlds is learned.

Nothing that a system says about itself is believed here: no release point, no ledger, no declared noise. What is read
are the messages on the wire as `Adversary.sees` hands them out: every tensor of every kind, the canary's own rows,
totals of the batch, and the low-order bits of what should be noise. For whoever holds the trained model, its parameters
are read instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from vflpriv.common.seeds import derive
from vflpriv.core.canaries import Canary
from vflpriv.core.engine import Engine
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Message

__all__ = [
    "LARGEST",
    "WholeView",
    "feature_key",
    "moments",
    "record_features",
    "row_features",
]

LARGEST = 400
"""Features of one view at most."""
_WIDE = 4096
"""Entries per replica above which a tensor is projected, and its bits are read in a sample of them."""
_ROW = 12
"""Entries of a record's row that are features as they are; a wider row is projected to as many numbers."""
_BLOCKS = 16
_SHIFTS = (0, 8, 16)
"""Powers of two by which values are multiplied before their fractional part is taken."""
_VALUES = 10
"""Integers from 0 on that are counted one by one."""
_HUGE = 1e30


def feature_key(name: str) -> str:
    """The name under which the features of an adversary are stored."""
    return f"{name} whole view"


# Numbers that describe one tensor


def _low_bits(values: Tensor) -> Tensor:
    """The lowest eight bits of each entry as it is on the wire."""
    integers = {torch.float32: torch.int32, torch.float64: torch.int64, torch.float16: torch.int16}
    integers[torch.bfloat16] = torch.int16
    if values.dtype in integers:
        return values.contiguous().view(integers[values.dtype]) & 0xFF
    return values.to(torch.int64) & 0xFF


def _cheap(numbers: Tensor) -> list[Tensor]:
    """(R,) each: mean, mean square, least, largest."""
    return [numbers.mean(1), numbers.square().mean(1), numbers.amin(1), numbers.amax(1)]


def moments(values: Tensor) -> Tensor:
    """(R, K) numbers that describe (R, n) entries: level and spread first, then signs, repetitions and raw bits."""
    numbers = values.to(torch.float64)
    finite = torch.isfinite(numbers)
    clean = torch.where(finite, numbers, 0.0)
    whole, bits = clean.round(), _low_bits(values)
    same = numbers[:, 1:] == numbers[:, :-1] if values.shape[1] > 1 else torch.zeros_like(finite)
    parts = _cheap(clean)
    parts += [part.to(torch.float64).mean(1) for part in (clean > 0, clean == 0, same, ~finite, clean == whole)]
    parts += [whole.remainder(2).mean(1), (bits & 1).to(torch.float64).mean(1), bits.to(torch.float64).mean(1)]
    parts += [(clean * 2.0**shift).remainder(1.0).mean(1) for shift in _SHIFTS]
    return torch.stack(parts, dim=1)


_MOMENTS = 12 + len(_SHIFTS)
_CHEAP = 4


def _of_batch(values: Tensor, *, whole: bool) -> Tensor:
    """(R, K) `moments` of all entries; without `whole` only level and spread, the others zero.

    A wide tensor's bits are read in a sample of its entries, the same in every trial.
    """
    if not values.shape[1]:
        return values.new_zeros((len(values), _MOMENTS), dtype=torch.float64)
    if whole and values.shape[1] <= _WIDE:
        return moments(values)
    clean = torch.nan_to_num(values.to(torch.float32), nan=0.0, posinf=_HUGE, neginf=-_HUGE)
    cheap = torch.stack(_cheap(clean), dim=1).to(torch.float64)
    if not whole:
        return torch.nn.functional.pad(cheap, (0, _MOMENTS - _CHEAP))
    sample = torch.linspace(0, values.shape[1] - 1, _WIDE, device=values.device).long()
    return torch.cat((cheap, moments(values.index_select(1, sample))[:, _CHEAP:]), dim=1)


@lru_cache(maxsize=32)
def _projection(width: int, device: torch.device) -> Tensor:
    """(width, _ROW) signs, the same for every tensor of this width."""
    generator = torch.Generator().manual_seed(derive(0, "search", width) % (1 << 63))
    signs = torch.randint(0, 2, (width, _ROW), generator=generator)
    return ((2 * signs - 1).to(torch.float32) / math.sqrt(width)).to(device)


def _narrow(row: Tensor) -> Tensor:
    """(…, at most _ROW) the entries of a row, or fixed random projections of a wider one."""
    if row.shape[-1] <= _ROW:
        return row.to(torch.float64)
    clean = torch.nan_to_num(row.to(torch.float32), nan=0.0, posinf=_HUGE, neginf=-_HUGE)
    return (clean @ _projection(row.shape[-1], row.device)).to(torch.float64)


def _counted(row: Tensor) -> Tensor:
    """(R, _VALUES) the share of each small integer among the entries; nothing is counted in tensors of reals."""
    if row.is_floating_point() or row.is_complex() or not row.shape[1]:
        return row.new_zeros((len(row), 0), dtype=torch.float64)
    values = torch.arange(_VALUES, device=row.device)
    return (row.to(torch.int64).unsqueeze(2) == values).to(torch.float64).mean(1)


def row_features(rows: Tensor) -> Tensor:
    """(k, F) features of k rows (k, width) of one tensor: their entries, or projections of them, and their moments."""
    if not rows.shape[1]:
        return rows.new_zeros((len(rows), 0), dtype=torch.float64)
    return torch.cat((_narrow(rows), moments(rows), _counted(rows)), dim=1)


# Features of a training


@dataclass(eq=False)
class _Tally:
    """What was seen of one tensor of one kind of message on the link of one device.

    `everything` and `mine` are summed `moments` of all its messages, and of those that concern the canary; `row` and
    `first` are the features of the canary's own entries, summed and of the first time; `levels` are the means by time.
    """

    seen_by: frozenset[str]
    entries: int
    messages: int = 0
    mine_messages: int = 0
    records: int = 0
    repeats: Tensor | None = None
    everything: Tensor | None = None
    mine: Tensor | None = None
    row: Tensor | None = None
    first: Tensor | None = None
    levels: dict[tuple[str, int], tuple[int, Tensor]] = field(default_factory=dict)
    previous: Tensor | None = None

    def add(self, values: Tensor, *, mine: bool, own: Tensor | None, block: int) -> None:
        """Take in the entries (R, n) of one message; `own` are the features of the canary's entries, if it has any."""
        narrow = values.shape[1] <= _ROW
        batch = _of_batch(values, whole=mine or narrow)
        self.everything = batch if self.everything is None else self.everything + batch
        self.messages += 1
        self._level("all", block, batch[:, 0])
        self._repeat(values)
        if not mine:
            return
        self.mine = batch if self.mine is None else self.mine + batch
        self.mine_messages += 1
        self._level("mine", block, batch[:, 0])
        # Where no entries are the canary's own, the moments of all of them are in `mine` already.
        features = torch.cat((_narrow(values), _counted(values)), 1) if own is None else own
        if self.row is None or self.row.shape != features.shape:
            self.row = self.first = features
        else:
            self.row = self.row + features

    def _level(self, name: str, block: int, level: Tensor) -> None:
        count, total = self.levels.get((name, block), (0, torch.zeros_like(level)))
        self.levels[name, block] = (count + 1, total + level)

    def _repeat(self, values: Tensor) -> None:
        """Count the messages that repeat the one before, entry by entry."""
        if values.shape[1] > _WIDE:
            return
        if self.previous is not None and self.previous.shape == values.shape and values.shape[1]:
            again = (self.previous == values).to(torch.float64).mean(1)
            self.repeats = again if self.repeats is None else self.repeats + again
        self.previous = values

    def __add__(self, other: _Tally) -> _Tally:
        """Both together, as if they were one tensor on one link; the first time is that of the first."""
        levels = dict(self.levels)
        for key, (count, total) in other.levels.items():
            known, before = levels.get(key, (0, torch.zeros_like(total)))
            levels[key] = (known + count, before + total)
        return _Tally(
            seen_by=self.seen_by,
            entries=self.entries + other.entries,
            messages=self.messages + other.messages,
            mine_messages=self.mine_messages + other.mine_messages,
            records=self.records + other.records,
            repeats=_sum(self.repeats, other.repeats),
            everything=_sum(self.everything, other.everything),
            mine=_sum(self.mine, other.mine),
            row=_sum(self.row, other.row),
            first=other.first if self.first is None else self.first,
            levels=levels,
        )

    def tiers(self, replicas: int) -> list[Tensor]:
        """Its features (R, F) in groups, the most telling first."""
        counts = torch.tensor([[self.messages, self.mine_messages, self.records, self.entries]], dtype=torch.float64)
        nothing = torch.zeros(replicas, 0, dtype=torch.float64)
        mine, row, first = (nothing if part is None else part for part in (self.mine, self.row, self.first))
        everything = nothing if self.everything is None else self.everything
        mean_row, mean_mine = row / max(1, self.mine_messages), mine / max(1, self.mine_messages)
        others = self.messages - self.mine_messages
        apart = mean_mine - (everything - mine) / others if mine.shape[1] and others else nothing
        levels = [total / count for _, (count, total) in sorted(self.levels.items())]
        repeats = nothing if self.repeats is None else self.repeats.unsqueeze(1)
        return [
            torch.cat((mean_row, mean_mine), 1),
            torch.cat((everything / max(1, self.messages), repeats, counts.expand(replicas, -1)), 1),
            torch.cat((first, apart[:, :_CHEAP]), 1),
            torch.stack(levels, 1) if levels else nothing,
        ]


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """The sum of what there is; the first alone where the second has another shape."""
    if first is None or second is None or first.shape != second.shape:
        return second if first is None else first
    return first + second


class WholeView:
    """A recorder on the wire that keeps features of what each adversary sees of the trials of a shard.

    `labels` are those of all records, which an adversary knows of all but the canary. `every` says that only each
    so-many-th replica is a trial of its own. An adversary that does not know the batches
    is given neither the canary's rows nor the time of a message.
    """

    def __init__(
        self,
        canary: Canary,
        adversaries: Sequence[Adversary],
        *,
        labels: Tensor,
        devices: int,
        replicas: int,
        rounds: int,
        every: int = 1,
    ) -> None:
        self._canary, self._adversaries, self._devices = canary, tuple(adversaries), devices
        self._labels = labels
        self._replicas, self._rounds, self.every = replicas, max(1, rounds), every
        self._tallies: dict[tuple[str, str, int, bool], _Tally] = {}

    def record(self, message: Message) -> None:
        seen_by = frozenset(str(a) for a in self._adversaries if a.sees(message, self._devices))
        if not seen_by:
            return
        mine = self._places(message)
        block = min(_BLOCKS - 1, max(0, message.round) * _BLOCKS // self._rounds)
        tensors = dict(message.tensors) or {"": torch.zeros(1, 0)}
        for name, tensor in tensors.items():
            key = (message.kind, name, message.device.index, message.sender.is_server)
            values = self._of_trials(tensor)
            own = None if mine is None else self._own(tensor, message, mine)
            tally = self._tallies.setdefault(key, _Tally(seen_by=seen_by, entries=0))
            tally.entries += values.shape[1]
            tally.records += 0 if message.records is None else len(message.records)
            tally.add(values, mine=mine is not None, own=own, block=block)

    def _places(self, message: Message) -> Tensor | None:
        """Where the canary stands among the records of a message; None if the message does not concern it.

        A message without records may concern anyone, and a unit that is not a record is in every message.
        """
        if message.records is None or not self._canary.unit.per_record:
            return torch.zeros(0, dtype=torch.int64)
        places = (message.records == self._canary.record).nonzero().flatten()
        return places if len(places) else None

    def _of_trials(self, tensor: Tensor) -> Tensor:
        """(R, n) the entries of each trial; a tensor without the replica axis is the same in all of them."""
        tensor = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
        if tensor.dim() and len(tensor) == self._replicas * self.every:
            return tensor.reshape(len(tensor), -1)[:: self.every]
        return tensor.reshape(1, -1).expand(self._replicas, -1)

    def _own(self, tensor: Tensor, message: Message, places: Tensor) -> Tensor | None:
        """(R, F) features of the canary's rows; None if the tensor has no axis of records."""
        if message.records is None or not len(places):
            return None
        axis = next((a for a in (1, 2) if tensor.dim() > a and tensor.shape[a] == len(message.records)), None)
        if axis is None or len(tensor) != self._replicas * self.every:
            return None
        own = self._of_trials(tensor.index_select(axis, places))
        return torch.cat((self._likeness(tensor.movedim(axis, 1), message.records, places), row_features(own)), 1)

    def _likeness(self, tensor: Tensor, records: Tensor, places: Tensor) -> Tensor:
        """(R, 2): is the canary's row in (R, B, …) more like those of its class in world 0, or of that in world 1?

        The adversary knows every other record's label. The cosine of the row with the difference of the two classes'
        means, and their product.
        """
        rows = self._of_trials(tensor).reshape(self._replicas, len(records), -1).to(torch.float32)
        rows = torch.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
        labels = self._labels.to(records.device)[records].clone()
        labels[places] = -1
        first, second = ((labels == label).to(rows) for label in self._canary.labels)
        weights = first / first.sum().clamp(min=1) - second / second.sum().clamp(min=1)
        apart, own = torch.einsum("rbw,b->rw", rows, weights), rows.index_select(1, places).mean(1)
        product = (apart * own).sum(1)
        cosine = product / (apart.norm(dim=1) * own.norm(dim=1)).clamp(min=1e-30)
        return torch.stack((cosine, product), 1).to(torch.float64)

    def features(self, engine: Engine) -> dict[str, Tensor]:
        """(R, F) features of each adversary, in float32, finite."""
        model = self._model(engine) if any(a.kind == "model" for a in self._adversaries) else None
        result = {}
        for adversary in self._adversaries:
            if adversary.kind == "model" and model is not None:
                result[str(adversary)] = model
                continue
            seen = {key: t for key, t in sorted(self._tallies.items()) if str(adversary) in t.seen_by}
            together: dict[tuple[str, str, bool], _Tally] = {}
            for (kind, name, _, down), tally in seen.items():
                known = together.get((kind, name, down))
                together[kind, name, down] = tally if known is None else known + tally
            several = len(seen) > len(together)
            parts = [self._part(adversary, together.values(), LARGEST // 2 if several else LARGEST)]
            parts += [self._part(adversary, seen.values(), LARGEST // 2)] if several else []
            result[str(adversary)] = torch.cat(parts, 1)
        return result

    def _part(self, adversary: Adversary, tallies: Iterable[_Tally], largest: int) -> Tensor:
        tiers = [tally.tiers(self._replicas) for tally in tallies]
        if not adversary.knows_batches:
            tiers = [[groups[1]] for groups in tiers]
        return _joined(tiers, self._replicas, largest)

    def _model(self, engine: Engine) -> Tensor:
        """(R, F) features of the trained parameters."""
        rows = []
        for r in range(self._replicas):
            trained = engine.trained(r * self.every)
            parts = [trained[name].detach().reshape(1, -1) for name in sorted(trained)]
            rows.append([[row_features(part)] for part in parts if part.shape[1]])
        tiers = [[torch.cat([row[i][0] for row in rows])] for i in range(len(rows[0]))]
        return _joined(tiers, self._replicas, LARGEST)


def _joined(tiers: Sequence[Sequence[Tensor]], replicas: int, largest: int) -> Tensor:
    """(R, at most `largest`): of each tensor the same share, the most telling groups of features first."""
    share = largest // max(1, len(tiers)) or 1
    parts = [torch.cat([group.cpu() for group in groups], 1)[:, :share] for groups in tiers]
    both = torch.cat(parts, 1)[:, :largest] if parts else torch.zeros(replicas, 0, dtype=torch.float64)
    filled = both if both.shape[1] else torch.zeros(replicas, 1, dtype=torch.float64)
    return torch.nan_to_num(filled, nan=0.0).clamp(-_HUGE, _HUGE).to(torch.float32)


def record_features(
    messages: Iterable[Message], records: Sequence[int], adversary: Adversary, devices: int, *, largest: int = LARGEST
) -> Tensor:
    """(k, F) features of k records within one training: what the adversary sees of each, message by message.

    Of every tensor with a row for each record they are the mean and the first of the record's rows; of every other one
    the mean over the messages that name the record. The first replica is read.
    """
    places = {record: place for place, record in enumerate(records)}
    tallies: dict[tuple[str, str, int, bool], _RecordTally] = {}
    for message in messages:
        if message.records is None or not adversary.sees(message, devices):
            continue
        ids = [int(record) for record in message.records.tolist()]
        here = [(place, places[record]) for place, record in enumerate(ids) if record in places]
        for name, tensor in message.tensors.items() if here else ():
            key = (message.kind, name, message.device.index, message.sender.is_server)
            tallies.setdefault(key, _RecordTally(len(records))).add(tensor.detach(), len(ids), here)
    return _joined([tally.tiers() for _, tally in sorted(tallies.items())], len(records), largest)


class _RecordTally:
    """What one tensor of one kind of message says of each of k records."""

    def __init__(self, records: int) -> None:
        self._counts = torch.zeros(records, 1, dtype=torch.float64)
        self._total: Tensor | None = None
        self._first: Tensor | None = None

    def add(self, tensor: Tensor, batch: int, here: Sequence[tuple[int, int]]) -> None:
        """One message of `batch` records; `here` pairs places in it with numbers of records."""
        tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        rows = tensor[0] if tensor.dim() else tensor
        axis = next((a for a in (0, 1) if rows.dim() > a and rows.shape[a] == batch), None)
        places, numbers = (torch.tensor(column) for column in zip(*here, strict=True))
        if axis is None:
            features = row_features(rows.reshape(1, -1)).cpu().expand(len(places), -1)
        else:
            features = row_features(rows.movedim(axis, 0)[places.to(rows.device)].reshape(len(places), -1)).cpu()
        if self._total is None or self._first is None:
            self._total = torch.zeros(len(self._counts), features.shape[1], dtype=torch.float64)
            self._first = torch.zeros_like(self._total)
        if features.shape[1] != self._total.shape[1]:
            return
        new = self._counts[numbers] == 0
        self._first[numbers] = torch.where(new, features, self._first[numbers])
        self._total.index_add_(0, numbers, features)
        self._counts.index_add_(0, numbers, torch.ones(len(numbers), 1, dtype=torch.float64))

    def tiers(self) -> list[Tensor]:
        """Its features in groups, the most telling first."""
        if self._total is None or self._first is None:
            return [self._counts]
        return [self._total / self._counts.clamp(min=1), self._counts, self._first]
