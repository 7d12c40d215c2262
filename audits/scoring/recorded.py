"""A score of canaries that is learned from a recorded training: it reads every message of a view, whatever its kind.

Attacks read the kinds of messages that they know. This score knows none. It describes each canary by numbers that the
view shows of it, learns from canaries set aside, whose coins it is told, which numbers tell the coin, and scores the
others.

Valid for the one-run bound: coins are independent. Given the coins that were set aside, what is left is a run of the
same mechanism with so many canaries fewer, and the scores of the others are a function of its output and of coins that
are then constants. Learning from canaries that are counted would not be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits.worlds.store import one_thread
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import derive, host_generator
from vflpriv.core.canaries import Canaries
from vflpriv.core.views import View

__all__ = ["LEAST_CANARIES", "Split", "learned_scores", "record_features"]

LEAST_CANARIES = 20
"""With fewer canaries there is no test of their coins."""
_LEAST_ASIDE, _SHARE_ASIDE = 10, 3
_LEAST_TOLD = 2
_MOST_KNOWN = 500
"""Records beside the canaries whose labels are learned from, at most."""

Ints = NDArray[np.int64]


# Which canaries are counted


@dataclass(frozen=True, eq=False, kw_only=True)
class Split:
    """Positions of canaries, in a random order that no coin decides.

    A third is set aside: scores are learned from these, the attack or score is chosen by those in `choosing`, and
    attacks are told the labels of those in `told`. The coins of `counted` are guessed.
    """

    told: Ints
    choosing: Ints
    counted: Ints

    @classmethod
    def of(cls, canaries: Canaries, labels: Tensor, *, seed: int) -> Split | None:
        """None with fewer than 20 canaries. `labels` are those of all records, -1 where unknown.

        Attacks are told labels of canaries only where the other records are too few: fewer than two of some class.
        """
        count = len(canaries.records)
        if count < LEAST_CANARIES:
            return None
        order = host_generator(seed, "search", count).permutation(count)
        aside = max(_LEAST_ASIDE, count // _SHARE_ASIDE)
        others = labels.clone()
        others[list(canaries.records)] = -1
        classes = labels[labels >= 0].unique()
        told = aside // 2 if any(int((others == c).sum()) < _LEAST_TOLD for c in classes) else 0
        return cls(told=order[:told], choosing=order[told:aside], counted=order[aside:])

    @property
    def aside(self) -> Ints:
        """All that are not counted."""
        return np.concatenate((self.told, self.choosing))


# What a view shows of a record

_WIDEST, _PROJECTED, _SUMMARISED = 256, 64, 64
_RELEASED = 16
_MOST_ROUNDS = 2000
_BITS = 2
_TREND = 3
_RIDGE = 0.01


@dataclass(eq=False)
class _Rows:
    """Values (rows, width) of one tensor in all messages of a kind and link, and the position of each row's record."""

    positions: list[Tensor]
    values: list[Tensor]


@dataclass(eq=False)
class _Totals:
    """Values (rounds, width) of one tensor without a row for each record, and the records of each round's batch."""

    records: list[Tensor]
    values: list[Tensor]


_Stream = tuple[str, str, int, int]


def record_features(view: View, records: Sequence[int]) -> Tensor:
    """(n, columns) what a view shows of each of these records, as float64, 0 where it shows nothing.

    Of rows that belong to a record: their mean over rounds, the first and the last, norms, signs and low bits, and how
    many there are; wide rows are projected at random. Of values that belong to a whole batch: how they differ between
    rounds with the record and rounds without it, by itself and given all other records.
    """
    rows, totals = _streams(view, records)
    columns = [_row_columns(stream, len(records)) for stream in rows.values()]
    columns += [_total_columns(stream, records) for stream in totals.values() if len(stream.values) > _TREND + 2]
    if not columns:
        return torch.zeros(len(records), 0, dtype=torch.float64)
    table = torch.cat(columns, dim=1)
    return table[:, table.std(0, unbiased=False) > 0]


def _streams(view: View, records: Sequence[int]) -> tuple[Mapping[_Stream, _Rows], Mapping[_Stream, _Totals]]:
    """The values of all messages with record ids, by kind, tensor, link and width."""
    positions = {record: position for position, record in enumerate(records)}
    rows: dict[_Stream, _Rows] = {}
    totals: dict[_Stream, _Totals] = {}
    for message in view.messages:
        if message.records is None or not len(message.records):
            continue
        ids = message.records.tolist()
        here = torch.tensor([i for i, record in enumerate(ids) if record in positions], dtype=torch.int64)
        places = torch.tensor([positions[ids[i]] for i in here.tolist()], dtype=torch.int64)
        for name, tensor in message.tensors.items():
            key, value = (message.kind, name, message.device.index), tensor[0].cpu()
            axis = next((i for i, size in enumerate(value.shape) if size == len(ids)), None)
            if axis is not None or len(ids) == 1:
                by_record = value.reshape(1, -1) if axis is None else value.movedim(axis, 0).reshape(len(ids), -1)
                for part, kept in _compact(by_record[here]):
                    stream = rows.setdefault((*key, part), _Rows([], []))
                    stream.positions.append(places)
                    stream.values.append(kept)
            else:
                single = value.reshape(1, -1).double()
                kept = single if single.shape[1] <= _RELEASED else _projected(single, _RELEASED)
                batches = totals.setdefault((*key, single.shape[1]), _Totals([], []))
                batches.records.append(message.records.cpu())
                batches.values.append(kept)
    return rows, totals


def _compact(values: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Rows (b, width) as they are; of wide ones the first entries and random projections. With a number of the form."""
    width = values.shape[1]
    if width <= _WIDEST:
        yield width, values
    else:
        yield width, values[:, :_SUMMARISED]
        yield -width, _projected(values.double(), _PROJECTED)


def _projected(values: Tensor, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(derive(0, "search", values.shape[1]) >> 1)
    directions = torch.randn(values.shape[1], width, generator=generator, dtype=torch.float64)
    projected: Tensor = values @ directions / values.shape[1] ** 0.5
    return projected


def _row_columns(stream: _Rows, count: int) -> Tensor:
    """(count, columns) the summary of one stream of rows."""
    positions, values = torch.cat(stream.positions), torch.cat(stream.values)
    wide = values.double()
    averaged = [wide, wide.square().sum(1, keepdim=True).sqrt()]
    if values.shape[1] <= _SUMMARISED:
        averaged += [wide.sign(), *_low_bits(values)]
    table = torch.cat(averaged, dim=1)
    times = torch.zeros(count, 1, dtype=torch.float64).index_add_(0, positions, torch.ones(len(positions), 1).double())
    mean = torch.zeros(count, table.shape[1], dtype=torch.float64).index_add_(0, positions, table)
    order = torch.arange(len(positions))
    first = torch.full((count,), len(positions)).scatter_reduce_(0, positions, order, "amin")
    last = torch.full((count,), -1).scatter_reduce_(0, positions, order, "amax")
    seen = (times > 0).flatten()
    columns = torch.cat((mean[seen] / times[seen], wide[first[seen]], wide[last[seen]]), dim=1)
    filled = torch.zeros(count, columns.shape[1], dtype=torch.float64)
    if bool(seen.any()):
        filled += columns.mean(0)
        filled[seen] = columns
    return torch.cat((filled, times), dim=1)


_WHOLE = {torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16}


def _low_bits(values: Tensor) -> Iterator[Tensor]:
    """The lowest bits of each entry and their mean, counted from the lowest bit that is ever set."""
    if values.dtype is torch.bfloat16:
        values = values.float()
    kind = _WHOLE.get(values.dtype)
    bits = values.to(torch.int64) if kind is None else values.contiguous().view(kind).to(torch.int64)
    if not bits.numel():
        return
    lowest = int(np.bitwise_or.reduce(bits.flatten().numpy()))
    unused = (lowest & -lowest).bit_length() - 1 if lowest else 0
    for place in range(unused, unused + _BITS):
        bit = ((bits >> place) & 1).double()
        yield bit
        yield bit.mean(1, keepdim=True)


def _total_columns(stream: _Totals, records: Sequence[int]) -> Tensor:
    """(count, 2 × width) how released totals depend on each record's participation.

    Both are free of a smooth trend over rounds. The first is the difference of means between rounds with the record and
    without it; the second its coefficient in a ridge regression on all records' participations.
    """
    batches, values = stream.records[-_MOST_ROUNDS:], torch.cat(stream.values[-_MOST_ROUNDS:])
    everyone, flat = torch.cat(batches).unique(return_inverse=True)
    rounds = torch.repeat_interleave(torch.arange(len(batches)), torch.tensor([len(b) for b in batches]))
    took_part = torch.zeros(len(batches), len(everyone), dtype=torch.float64)
    took_part[rounds, flat] = 1.0
    powers = torch.linspace(-1, 1, len(batches), dtype=torch.float64).unsqueeze(1) ** torch.arange(_TREND + 1)
    trend, _ = torch.linalg.qr(powers)
    took_part, values = (x - trend @ (trend.T @ x) for x in (took_part, values))
    gram = took_part @ took_part.T
    ridge = _RIDGE * gram.diagonal().mean().clamp(min=1e-12)
    coefficients = took_part.T @ torch.linalg.solve(gram + ridge * torch.eye(len(gram), dtype=gram.dtype), values)
    contrasts = took_part.T @ values / took_part.square().sum(0).clamp(min=1e-12).unsqueeze(1)
    known = {record: i for i, record in enumerate(everyone.tolist())}
    found = [(i, known[record]) for i, record in enumerate(records) if record in known]
    table = torch.zeros(len(records), 2 * values.shape[1], dtype=torch.float64)
    if found:
        places, columns = (torch.tensor(x) for x in zip(*found, strict=True))
        table[places] = torch.cat((contrasts, coefficients), dim=1)[columns]
    return table


# The score

_RECIPES = ((1, False), (8, False), (64, False), (64, True))
"""How many columns are kept, and whether their correlations are taken into account."""
_FOLDS = 5
_SHRINKAGE = 0.3
_FURTHEST = 8.0


def learned_scores(canaries: Canaries, labels: Tensor, view: View, split: Split, *, seed: int) -> Floats | None:
    """Of each canary, how much more the view looks like world 0 than like world 1; None if it shows nothing of them.

    Two targets are learned: the label that was trained on, also from records that are no canaries, and whether it is
    the record's own. Which of them and how many columns are used is chosen by cross-fitting among the canaries set
    aside; these are scored by what was learned from the others of them.
    """
    known = _known_records(canaries, labels, seed)
    with one_thread():
        table = record_features(view, [*canaries.records, *known])
        if not table.shape[1]:
            return None
        candidates = [s for learner in _learners(canaries, labels, known) for s in _cross_fitted(learner, table, split)]
    worlds = canaries.worlds[0].cpu().numpy()
    right = [int(((s > 0) == (worlds == 0))[split.choosing].sum()) for s in candidates]
    return candidates[int(np.argmax(right))]


def _known_records(canaries: Canaries, labels: Tensor, seed: int) -> list[int]:
    """Some of the records whose label was not decided by a coin, and is told to everyone."""
    free = labels.clone()
    free[list(canaries.records)] = -1
    records = (free >= 0).nonzero().flatten().cpu().numpy()
    return [int(r) for r in host_generator(seed, "auxiliary", 1).permutation(records)[:_MOST_KNOWN]]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Learner:
    """A target for each row of the table, canaries first; rows `also` are learned from beside canaries set aside.

    The score of a canary is the discriminant of its target in world 0, `pairs[:, 0]`, minus that of `pairs[:, 1]`.
    """

    targets: Tensor
    pairs: Tensor
    also: Tensor


def _learners(canaries: Canaries, labels: Tensor, known: Sequence[int]) -> Iterator[_Learner]:
    count, pairs = len(canaries.records), canaries.labels.cpu().long()
    worlds = canaries.worlds[0].cpu().long()
    used = torch.cat((pairs.gather(1, worlds.unsqueeze(1)).flatten(), labels.cpu()[list(known)].long()))
    others, nobody = torch.arange(count, count + len(known)), torch.empty(0, dtype=torch.int64)
    yield _Learner(targets=used, pairs=pairs, also=nobody)
    if len(known):
        yield _Learner(targets=used, pairs=pairs, also=others)
    yield _Learner(targets=worlds, pairs=torch.tensor([[0, 1]]).expand(count, 2), also=nobody)


def _cross_fitted(learner: _Learner, table: Tensor, split: Split) -> list[Floats]:
    """For each recipe the scores of all canaries: those set aside by folds, the others by all that are set aside."""
    aside, counted = (torch.from_numpy(positions) for positions in (split.aside, split.counted))
    fold_of = torch.arange(len(aside)) % _FOLDS
    parts = [(aside[fold_of != fold], aside[fold_of == fold]) for fold in range(_FOLDS)] + [(aside, counted)]
    scores = torch.zeros(len(_RECIPES), len(learner.pairs), dtype=torch.float64)
    for learned_from, scored in parts:
        fitted = torch.cat((learned_from, learner.also))
        for number, values in enumerate(_discriminants(table[fitted], learner, fitted, table[scored])):
            pair = values.gather(1, learner.pairs[scored])
            scores[number, scored] = pair[:, 0] - pair[:, 1]
    return [row.numpy() for row in scores]


def _discriminants(known: Tensor, learner: _Learner, fitted: Tensor, rows: Tensor) -> Iterator[Tensor]:
    """For each recipe (n, targets): log-densities of rows under Gaussians with one covariance for all targets.

    The columns with the largest ratio of variances between and within targets are kept. Means of rare targets are drawn
    towards the mean of all.
    """
    centre, spread = known.mean(0), known.std(0, unbiased=False)
    used = spread > 0
    known, rows = (((x - centre) / spread)[:, used].clamp(-_FURTHEST, _FURTHEST) for x in (known, rows))
    is_target = torch.nn.functional.one_hot(learner.targets[fitted], int(learner.targets.max()) + 1).double()
    times, sums = is_target.sum(0).unsqueeze(1), is_target.T @ known
    raw = sums / times.clamp(min=1)
    within = (known - is_target @ raw).square().mean(0)
    between = (times * raw.square()).sum(0) / len(known)
    order = (between / within.clamp(min=1e-9)).argsort(descending=True, stable=True)
    means = sums / (times + 1)
    for kept, correlated in _RECIPES:
        best = order[:kept]
        residual = (known - is_target @ raw)[:, best]
        covariance = residual.T @ residual / len(known)
        floor = within[best].clamp(min=1e-3)
        share = _SHRINKAGE if correlated else 1.0
        covariance = (1 - share) * covariance + torch.diag(share * floor)
        weights = torch.linalg.solve(covariance, means[:, best].T)
        yield rows[:, best] @ weights - (means[:, best].T * weights).sum(0) / 2
