"""Features of everything that an adversary sees of a training, from which a score of the two worlds is learned.

Nothing that a system says about itself is believed here: no release point, no ledger, no declared noise. What is read
are the messages on the wire as `Adversary.sees` hands them out: every tensor of every kind, the canary's own rows,
totals of the batch, and the low-order bits of what should be noise. For whoever holds the trained model, its parameters
are read instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.learned.learners import LearnedScore, learn
from vflpriv.audits.learned.rows import HUGE, LEVELS, ROW, WIDE, batch_moments, counted, narrow, row_features
from vflpriv.audits.two_world.trials import Trials
from vflpriv.common.devices import precise_device, to_host
from vflpriv.common.numerics import Floats
from vflpriv.core.canaries import Canary
from vflpriv.core.engine import Engine
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Message

__all__ = [
    "LARGEST",
    "WHOLE_VIEW",
    "Likeness",
    "Places",
    "WholeView",
    "WholeViewScores",
    "WholeViewTrials",
    "feature_key",
]

WHOLE_VIEW = "whole view"
"""The method, and the subject of findings, whose score is learned from all that an adversary sees."""
LARGEST = 400
"""Features of one view at most."""
_BLOCKS = 16


def feature_key(name: str) -> str:
    """The name under which the features of an adversary are stored."""
    return f"{name} whole view"


class Places:
    """Where one record stands among the records of messages. Messages that share their ids are looked up once."""

    def __init__(self, record: int) -> None:
        self._record = record
        self._known: tuple[Tensor, Tensor] | None = None

    def __call__(self, records: Tensor) -> Tensor:
        """The positions of the record; the host waits for an accelerator once for all messages that share their ids."""
        if self._known is None or self._known[0] is not records:
            self._known = (records, (records == self._record).nonzero().flatten())
        return self._known[1]


_RIDGE = 1e-3
"""What is added to the squares of the other records' features, as a share of their mean, so that they can be fitted
where there are more features than records."""


class Likeness:
    """To which of the canary's two worlds its row in a message is nearer, for an adversary who knows all other records.

    What differs between the worlds, the label or the block of a device, is known of every other record in the batch,
    and so is the row that was sent of it. The rows as a linear function of it are fitted on these records by least
    squares (for labels alone: the mean of each class), and predict the canary's row in either world.
    """

    def __init__(self, canary: Canary, labels: Tensor, blocks: Sequence[Tensor] = ()) -> None:
        self._canary, self._labels = canary, labels
        floating = all(blocks[m].is_floating_point() for m in canary.pairs) if blocks else False
        self._blocks = blocks if canary.pairs and floating else ()
        self._known: tuple[Tensor, Tensor] | None = None

    @property
    def known(self) -> bool:
        """Whether the worlds differ in what is known of other records: their labels, or features that are numbers."""
        first, second = self._canary.labels
        return bool(self._blocks) or (self._canary.unit.per_record and first != second)

    def __call__(self, rows: Tensor, records: Tensor, places: Tensor) -> Tensor:
        """(R, 2) of rows (R, B, width): the cosine of the canary's row with the difference of both predictions, and
        their product; both positive if it is nearer to world 0.
        """
        rows = torch.nan_to_num(rows.to(torch.float32), nan=0.0, posinf=0.0, neginf=0.0)
        weights = self._weights(records, places).to(rows).expand(len(rows), -1, -1)
        own = rows.index_select(1, places).mean(1)
        apart = torch.einsum("rbw,rb->rw", rows, weights[:, 0] - weights[:, 1])
        # Rows that labels tell apart, such as gradients, have their middle at zero whatever the classes in a batch.
        own = own - torch.einsum("rbw,rb->rw", rows, weights.mean(1)) if self._blocks else own
        product = (apart * own).sum(1)
        cosine = product / (apart.norm(dim=1) * own.norm(dim=1)).clamp(min=1e-30)
        return torch.stack((cosine, product), 1)

    def _weights(self, records: Tensor, places: Tensor) -> Tensor:
        """(R or 1, 2, B): how much each row of a batch counts in the prediction of the canary's row in either world."""
        if self._known is None or self._known[0] is not records:
            weights = self._by_features(records, places) if self._blocks else self._by_class(records, places)
            self._known = (records, weights)
        return self._known[1]

    def _by_class(self, records: Tensor, places: Tensor) -> Tensor:
        self._labels = self._labels.to(records.device)
        labels = self._labels.index_select(0, records)
        labels[places] = -1
        either = torch.stack([(labels == label).to(torch.float32) for label in self._canary.labels])
        return (either / either.sum(1, keepdim=True).clamp(min=1)).unsqueeze(0)

    def _by_features(self, records: Tensor, places: Tensor) -> Tensor:
        pairs = self._canary.pairs
        table = torch.cat(
            [self._blocks[m].index_select(0, records.to(self._blocks[m].device)).flatten(1) for m in pairs], 1
        )
        table = table.to(precise_device(table.device))
        either = torch.cat([pairs[m].to(table.device).flatten(2) for m in pairs], 2).to(torch.float64)
        first, second = self._canary.labels
        if first != second:
            # A record as a whole: of the label it matters whether it is that of one world or of the other.
            labels = self._labels.to(table.device).index_select(0, records.to(table.device))
            table = torch.cat((table, torch.stack((labels == first, labels == second), 1).to(table.dtype)), 1)
            either = torch.cat((either, torch.eye(2).to(either).expand(len(either), -1, -1)), 2)
        known = torch.ones(len(records), dtype=torch.bool, device=table.device)
        known[places.to(table.device)] = False
        others = table[known].to(torch.float64)
        centre = others.mean(0) if len(others) else torch.zeros_like(either[0, 0])
        others, either = others - centre, either - centre
        wide = others.shape[1] > len(others)
        squares = others @ others.T if wide else others.T @ others
        size = max(1, len(squares))
        ridge = _RIDGE * (squares.diagonal().sum() / size).clamp(min=1e-12)
        inverse = torch.linalg.inv(
            squares + ridge * torch.eye(len(squares), dtype=squares.dtype, device=squares.device)
        )
        fitted = inverse @ others if wide else others @ inverse
        weights = torch.zeros(*either.shape[:2], len(records), dtype=torch.float64, device=table.device)
        weights[:, :, known] = either @ fitted.T + 1 / max(1, len(others))
        return weights


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
        batch = batch_moments(values, whole=mine or values.shape[1] <= ROW)
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
        features = torch.cat((narrow(values), counted(values)), 1) if own is None else own
        if self.row is None or self.row.shape != features.shape:
            self.row = self.first = features
        else:
            self.row = self.row + features

    def _level(self, name: str, block: int, level: Tensor) -> None:
        count, total = self.levels.get((name, block), (0, torch.zeros_like(level)))
        self.levels[name, block] = (count + 1, total + level)

    def _repeat(self, values: Tensor) -> None:
        """Count the messages that repeat the one before, entry by entry."""
        if values.shape[1] > WIDE:
            return
        if self.previous is not None and self.previous.shape == values.shape and values.shape[1]:
            again = (self.previous == values).to(torch.float64).mean(1)
            self.repeats = again if self.repeats is None else self.repeats + again
        self.previous = values

    def on_host(self) -> _Tally:
        """The same on the CPU, where features are put together; it counts nothing more."""
        names = ("repeats", "everything", "mine", "row", "first")
        sums = {name: value for name in names if (value := getattr(self, name)) is not None}
        moved = to_host([*sums.values(), *(total for _, total in self.levels.values())])
        levels = zip(self.levels.items(), moved[len(sums) :], strict=True)
        changes: dict[str, Any] = dict(zip(sums, moved, strict=False))
        changes["levels"] = {key: (count, total) for (key, (count, _)), total in levels}
        return replace(self, previous=None, **changes)

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
            torch.cat((first, apart[:, :LEVELS]), 1),
            torch.stack(levels, 1) if levels else nothing,
        ]


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """The sum of what there is; the first alone where the second has another shape."""
    if first is None or second is None or first.shape != second.shape:
        return second if first is None else first
    return first + second


class WholeView:
    """A recorder on the wire that keeps features of what each adversary sees of the trials of a shard.

    `labels` and `blocks` are those of all records, which an adversary knows of all but the canary. `every` says that
    only each so-many-th replica is a trial of its own. An adversary that does not know the batches is given neither the
    canary's rows nor the time of a message.
    """

    def __init__(
        self,
        canary: Canary,
        adversaries: Sequence[Adversary],
        *,
        labels: Tensor,
        blocks: Sequence[Tensor] = (),
        devices: int,
        replicas: int,
        rounds: int,
        every: int = 1,
        places: Places | None = None,
    ) -> None:
        self._canary, self._adversaries, self._devices = canary, tuple(adversaries), devices
        self._likeness = Likeness(canary, labels, blocks)
        self._replicas, self._rounds, self.every = replicas, max(1, rounds), every
        self._tallies: dict[tuple[str, str, int, bool], _Tally] = {}
        self._places_of = places or Places(canary.record)

    def record(self, message: Message) -> None:
        seen_by = frozenset(str(a) for a in self._adversaries if a.sees(message, self._devices))
        if not seen_by:
            return
        mine = self._places(message)
        message = _precise(message)
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
        places = self._places_of(message.records)
        return places.to(precise_device(places.device)) if len(places) else None

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
        rows = self._of_trials(tensor.movedim(axis, 1)).reshape(self._replicas, len(message.records), -1)
        return torch.cat((self._likeness(rows, message.records, places), row_features(own)), 1)

    def features(self, engine: Engine | None = None) -> dict[str, Tensor]:
        """(R, F) features of each adversary, in float32, finite; the engine has the model, if one of them holds it."""
        holds_model = any(a.kind == "model" for a in self._adversaries)
        model = self._model(engine) if engine is not None and holds_model else None
        result, tallies = {}, {key: tally.on_host() for key, tally in sorted(self._tallies.items())}
        for adversary in self._adversaries:
            if adversary.kind == "model" and model is not None:
                result[str(adversary)] = model
                continue
            seen = {key: t for key, t in tallies.items() if str(adversary) in t.seen_by}
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
            parts = [value.reshape(1, -1) for value in to_host([trained[name].detach() for name in sorted(trained)])]
            rows.append([[row_features(part)] for part in parts if part.shape[1]])
        tiers = [[torch.cat([row[i][0] for row in rows])] for i in range(len(rows[0]))]
        return _joined(tiers, self._replicas, LARGEST)


def _precise(message: Message) -> Message:
    """The message where features can be computed in float64: on its device, or on the CPU if that one cannot."""
    device = next((t.device for t in message.tensors.values()), torch.device("cpu"))
    if precise_device(device) == device:
        return message
    records = [] if message.records is None else [message.records]
    moved = to_host([*message.tensors.values(), *records])
    tensors = dict(zip(message.tensors, moved, strict=False))
    return replace(message, tensors=tensors, records=moved[-1] if records else None)


def _joined(tiers: Sequence[Sequence[Tensor]], replicas: int, largest: int) -> Tensor:
    """(R, at most `largest`): of each tensor the same share, the most telling groups of features first."""
    share = largest // max(1, len(tiers)) or 1
    parts = [torch.cat(tuple(groups), 1)[:, :share] for groups in tiers]
    both = torch.cat(parts, 1)[:, :largest] if parts else torch.zeros(replicas, 0, dtype=torch.float64)
    filled = both if both.shape[1] else torch.zeros(replicas, 1, dtype=torch.float64)
    return torch.nan_to_num(filled, nan=0.0).clamp(-HUGE, HUGE).to(torch.float32)


# Scores that are learned from the features


@dataclass(frozen=True, eq=False, kw_only=True)
class WholeViewTrials:
    """Trials scored by the whole view of an adversary, and how many trials of each world taught the score."""

    trials: Trials
    learned_on: int
    features: int


class WholeViewScores:
    """Scores of the features of each view, (2n, F): rows of world 0 and of world 1 in turns, `trials` of each at most.

    A view with no more trials than are learned on has no score.
    """

    def __init__(self, features: Mapping[Adversary, Floats], *, canary: Canary, trials: int) -> None:
        self._features, self._canary, self._trials, self._half = features, canary, trials, trials // 2
        self._learned: dict[Adversary, LearnedScore] = {}

    def tested(self, views: Sequence[Adversary], looks: tuple[int, ...] = ()) -> WholeViewTrials | None:
        """The tested trials of that one of the views which the learning trials say most about; None if none has any."""
        known = [view for view in views if len(self._features[view]) > 2 * self._half]
        if not known:
            return None
        actual = min(known, key=lambda view: self._score(view).validation.order)
        rows, score = self._features[actual][2 * self._half : 2 * self._trials], self._score(actual)
        times = dict.fromkeys(min(t, self._trials) - self._half for t in looks if t > self._half)
        return WholeViewTrials(
            trials=Trials(
                adversary=actual,
                canary=self._canary,
                scores=(score.score(rows[0::2]), score.score(rows[1::2])),
                strengths=np.zeros(0),
                looks=tuple(times),
                method=WHOLE_VIEW,
                threshold=score.threshold,
            ),
            learned_on=self._half,
            features=rows.shape[1],
        )

    def _score(self, view: Adversary) -> LearnedScore:
        if view not in self._learned:
            rows = self._features[view][: 2 * self._half]
            self._learned[view] = learn(rows[0::2], rows[1::2])
        return self._learned[view]
