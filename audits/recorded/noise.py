"""Tests of the declared noise of a recorded training, of which only the messages are known.

A recorded value is signal + noise, and the signal may be anything. But if the noise of an entry is independent of all
that was sent before, so is it of every prediction that is made from that: the error of the prediction is (signal -
prediction) + noise, which is at least as large as the noise alone. So errors that are too small refute the declared
noise, whatever the signal; and where the signal can be predicted, no noise, too little of it and noise that returns
all show, however large the signal is beside it.

That values do not hold their noise as they were sent refutes no claim: a value that is scaled, clamped or averaged
after its noise does not hold it either, and tells no more. A transcript cannot tell the two apart, so that claims about
such values are unmeasured. So are those about values which were rounded so coarsely that no test could miss the noise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaincinv

from vflpriv.audits.statistics.significance import holm_adjusted, smallest
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import host_generator
from vflpriv.core.audit import Finding
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.law import Law
from vflpriv.core.ledger import Ledger
from vflpriv.core.releases import Release
from vflpriv.core.wire import Message
from vflpriv.laws import Gaussian

__all__ = [
    "ALPHA",
    "QUESTIONS",
    "Errors",
    "NoiseLimit",
    "NoiseTest",
    "RecordedNoise",
    "noise_limit",
    "prediction_errors",
    "recorded_noises",
]

ALPHA = 1e-3
"""The family-wise error at which recorded values are called too small to hold their noise."""
_BLOCKS = 8
_MEAN = 8
_ENTRIES = 64
_LAGS = 256
_DISTINCT, _RETURNS = 16, 4
"""So many values on a grid show its step; fewer do where each is there so many times."""
_MOST = 1 << 24
"""Entries of one kind that are looked at."""
_LEAST = 8
_WHOLE = -1
"""The number of the row that stands for a message without rows."""
QUESTIONS = {
    "size": "as they are",
    "last": "beside the same entries before",
    "trend": "beside the line through the same entries twice before",
    "mean": "beside the mean of the same entries before",
    "pairs": "beside the opposite of the noise before",
    "place": "beside the record's row before and what returns at its place in the batch",
    "device": "beside those of another device",
    "change": "beside the change of another device's",
    "fit": "beside a fit by other entries of the message",
    "fit before": "beside a fit by other entries of this message and the one before",
    "returns": "beside those any number of messages before",
}
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class NoiseTest:
    """One question about the noise: its p-value, and Holm's over all such questions about the system."""

    name: str
    question: str
    p_value: float
    p_adjusted: float


@dataclass(frozen=True, kw_only=True)
class RecordedNoise:
    """Whether recorded messages of one kind can hold their noise; each test's `p_adjusted` is Holm's over all kinds."""

    kind: str
    noise: Law
    entries: int
    messages: int
    tests: tuple[NoiseTest, ...]
    alpha: float = ALPHA
    coarse: bool = False
    """Whether the values were rounded so coarsely that they would pass without noise."""

    @property
    def p_adjusted(self) -> float:
        return min(t.p_adjusted for t in self.tests)

    @property
    def rejected(self) -> tuple[NoiseTest, ...]:
        return tuple(t for t in self.tests if t.p_adjusted <= self.alpha)

    @property
    def holds(self) -> bool:
        return not self.rejected and not self.coarse

    @property
    def sentence(self) -> str:
        p = f"p {'=' if self.p_adjusted >= 1e-300 else '<'} {max(self.p_adjusted, 1e-300):.2g}"
        declared = f"{self.noise} is said to be on {self.kind}, {self.entries} entries of {self.messages} messages"
        if self.rejected:
            small = f"too small to hold it {'; '.join(t.question for t in self.rejected)} ({p})"
            return f"{declared}: as they were sent, they are {small}; it is missing, or they were processed after it"
        if self.coarse:
            return f"{declared}: rounded so coarsely that they would pass without it"
        count = len(self.tests)
        return f"{declared}: large enough to hold it in {count} {'test' if count == 1 else 'tests'} ({p})"

    def findings(self, claims: Sequence[Claim], releases: Sequence[Release]) -> list[Finding]:
        """Each claim that rests on this noise is unmeasured if it is not there; without claims it counts by itself.

        Values that are large enough may be so without noise: that measures nothing.
        """
        finding = Finding(
            audit="noise",
            subject=self.kind,
            verdict=Verdict.CONSISTENT if self.holds else Verdict.UNMEASURED,
            sentence=self.sentence,
            figure=self.p_adjusted,
            measure="p-value of the declared noise",
            p_value=self.p_adjusted,
            claim_units=frozenset(),
            decides_alone=True,
            measures=False,
            evidence=self,
        )
        resting = [] if self.holds else [c for c in claims if any(_rests_on(c, r) for r in releases)]
        return [finding] + [
            replace(finding, claim=c.key, unit=c.unit, adversary=c.adversary, p_value=None, decides_alone=False)
            for c in resting
        ]


def _rests_on(claim: Claim, release: Release) -> bool:
    """Whether the adversary of a claim sees a release that depends on its unit."""
    return claim.adversary.kind in release.seen_by and bool(release.sensitivity.get(claim.unit, 0.0))


_Computed = dict[str, torch.Tensor]


def _computed(kind: str, compute: Callable[[], _Computed]) -> _Computed:
    del kind
    return compute()


def recorded_noises(
    ledger: Ledger,
    messages: Sequence[Message],
    *,
    shared: Collection[str],
    confidence: float,
    kept: Callable[[str, Callable[[], _Computed]], _Computed] = _computed,
) -> list[RecordedNoise]:
    """Tests of the declared noise of every kind that was recorded.

    The family-wise error is 1 in 1000, or 1 - confidence where that is less. `kept` is given a kind and what computes
    its p-values, and may have them already.
    """
    declared = {r.kind: r.noise for r in ledger.releases if not r.once and r.noise.bounds_size}
    tested = {
        kind: kept(kind, partial(_tested, noise, messages, kind, kind in shared)) for kind, noise in declared.items()
    }
    raw = {kind: _named(stored["p_values"]) for kind, stored in tested.items() if int(stored["entries"])}
    adjusted = iter(holm_adjusted([p for p_values in raw.values() for p in p_values.values()]))
    return [
        RecordedNoise(
            kind=kind,
            noise=declared[kind],
            entries=int(tested[kind]["entries"]),
            messages=int(tested[kind]["messages"]),
            alpha=min(ALPHA, 1 - confidence),
            coarse=bool(tested[kind]["coarse"]),
            tests=tuple(
                NoiseTest(name=name, question=QUESTIONS[name], p_value=p, p_adjusted=next(adjusted))
                for name, p in p_values.items()
            ),
        )
        for kind, p_values in raw.items()
    ]


def _tested(noise: Law, messages: Sequence[Message], kind: str, shared: bool) -> _Computed:
    """The p-value of each question, NaN where it was not asked, and how much was looked at."""
    recorded = _recorded(messages, kind, shared)
    p_values = _p_values(noise, recorded) if recorded else {}
    return {
        "p_values": torch.tensor([p_values.get(name, torch.nan) for name in QUESTIONS], dtype=torch.float64),
        "entries": torch.tensor(sum(r.stored.size for r in recorded)),
        "messages": torch.tensor(len({(r.round, r.device) for r in recorded})),
        "coarse": torch.tensor(_coarse(noise, recorded)),
    }


def _coarse(noise: Law, recorded: Sequence[_Recorded]) -> bool:
    """Whether even values that are all predicted exactly would be large enough, with what rounding may have moved."""
    least = sum(float(noise.sizes(r.rounding(r.x)).sum()) for r in recorded)
    count = sum(r.stored.size for r in recorded)
    return count >= _LEAST and float(noise.lower_tail(least, count)) > ALPHA


def _named(p_values: torch.Tensor) -> dict[str, float]:
    """By question, without those that were not asked."""
    return {name: p for name, p in zip(QUESTIONS, p_values.tolist(), strict=True) if not math.isnan(p)}


@dataclass(frozen=True, kw_only=True)
class NoiseLimit:
    """The largest Gaussian noise that recorded messages of a kind can hold, and what shows that."""

    std: float
    question: str
    """The prediction with the smallest errors."""
    entries: int
    """The number of entries that it was compared with."""
    size: float
    """The root mean square of the recorded values, beside which the noise is large or small."""


def noise_limit(messages: Sequence[Message], kind: str, *, shared: bool = False) -> NoiseLimit | None:
    """The largest std of independent Gaussian noise on every entry that is not refuted at 1 in 1000; None if unknown.

    An error of a prediction is at least as large as the noise. So with n errors, Σ error²/σ² is at least chi-squared,
    and σ² is at most Σ error² over its lower quantile (Bonferroni over the predictions).
    """
    recorded = _recorded(messages, kind, shared)
    errors = prediction_errors(Gaussian(1.0), recorded)
    sums = {name: (e.totals["all", 0], e.counts["all", 0]) for name, e in errors.items()}
    limits = {
        name: math.sqrt(half_squares / float(gammaincinv(count / 2, ALPHA / len(sums))))
        for name, (half_squares, count) in sums.items()
        if count >= _LEAST
    }
    if not limits:
        return None
    best = min(limits, key=lambda name: limits[name])
    half_squares, count = sums["size"]
    return NoiseLimit(
        std=limits[best], question=QUESTIONS[best], entries=sums[best][1], size=math.sqrt(2 * half_squares / count)
    )


@dataclass(frozen=True, eq=False)
class _Recorded:
    """One tensor of one message: its rows, (B, width), the record of each, and how far rounding may have moved them."""

    round: int
    device: int
    name: str
    stored: Floats | NDArray[np.float32]
    ids: Ints
    precision: float
    """Half the step between values, relative to their size."""
    step: float
    """Half the step between values, whatever their size."""

    @property
    def x(self) -> Floats:
        return self.stored.astype(np.float64)

    def rounding(self, x: Floats) -> Floats:
        """How far rounding may have moved these of its values."""
        return np.maximum(self.precision * np.abs(x), self.step)


def _recorded(messages: Sequence[Message], kind: str, shared: bool) -> list[_Recorded]:
    """The tensors of a kind; of a shared one, what the first device of a round was sent.

    What is sent to several devices of a round bit for bit is one release, too.
    """
    first: dict[int, int] = {}
    recorded: list[_Recorded] = []
    total = sum(t.numel() for m in messages if m.kind == kind for t in m.tensors.values())
    share = min(1.0, _MOST / max(1, total))
    seen: set[tuple[int, str, bytes]] = set()
    for m in messages:
        if m.kind != kind or (shared and first.setdefault(m.round, m.device.index) != m.device.index):
            continue
        for name, tensor in m.tensors.items():
            value = _tensor(m, name, tensor, share)
            key = (m.round, name, value.stored.tobytes())
            if value.stored.size and key not in seen:
                seen = {k for k in seen if k[0] == m.round} | {key}
                recorded.append(value)
    return _on_a_grid(recorded)


def _tensor(message: Message, name: str, tensor: torch.Tensor, share: float) -> _Recorded:
    """A tensor by its rows; of a long recording only a share of the entries of each row, the same in every message."""
    x = tensor.detach().cpu()
    ids = np.empty(0, dtype=np.int64) if message.records is None else message.records.cpu().numpy()
    by_rows = len(ids) > 0 and x.dim() >= 2 and x.shape[0] == 1 and x.shape[1] == len(ids)
    rows = x.reshape(len(ids) if by_rows else 1, -1)
    if share < 1:
        width = rows.shape[1]
        some = host_generator(0, "search").permutation(width)[: max(_LEAST, math.ceil(width * share))]
        rows = rows[:, torch.from_numpy(np.sort(some))]
    # Copies: what is recorded may lie in a file that is mapped for a while only.
    short = x.dtype in (torch.float32, torch.float16, torch.bfloat16)
    values = np.array((rows.float() if short else rows.double()).numpy())
    precision, step = (_precision(x) / 2, 0.0) if x.is_floating_point() else (0.0, 0.5)
    own = ids if by_rows else np.array([_WHOLE])
    return _Recorded(message.round, message.device.index, name, values, own, precision, step)


def _precision(x: torch.Tensor) -> float:
    """The relative step between values: of the type itself, or of a shorter one that holds all of them."""
    types = [d for d in (torch.bfloat16, torch.float16) if torch.equal(x.to(d).to(x.dtype), x)]
    return max(torch.finfo(d).eps for d in (x.dtype, *types))


def _on_a_grid(recorded: list[_Recorded]) -> list[_Recorded]:
    """Where all values are multiples of one step, they were rounded to it after the noise, by half a step at most."""
    if not recorded:
        return recorded
    sample = np.concatenate([r.x.ravel()[:4096] for r in recorded[:256]])
    values = np.unique(sample)
    if len(values) < 2 or (len(values) < _DISTINCT and len(sample) < _RETURNS * len(values)):
        return recorded
    step = float(np.diff(values).min())
    multiples = values / step
    if np.abs(multiples).max() > 2.0**20 or np.abs(multiples - np.rint(multiples)).max() > 1e-3:
        return recorded
    return [replace(r, step=max(r.step, step / 2)) for r in recorded]


@dataclass(eq=False)
class Errors:
    """Sums of the sizes of the errors of one prediction: of all, by time, round, device and entry."""

    totals: dict[tuple[str, int], float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))

    def add(self, sizes: Floats, *, time: int, value: _Recorded) -> None:
        """Add the sizes, (rows, width), of one message's errors."""
        width = sizes.shape[-1]
        by_entry = np.bincount(np.arange(width) * _BLOCKS // max(_BLOCKS, width), sizes.reshape(-1, width).sum(0))
        entries = np.bincount(np.arange(width) * _BLOCKS // max(_BLOCKS, width)) * (sizes.size // width)
        parts = [(("all", 0), float(sizes.sum()), sizes.size), (("time", time), float(sizes.sum()), sizes.size)]
        parts += [
            ((name, n), float(sizes.sum()), sizes.size)
            for name, n in (("device", value.device), ("round", value.round))
        ]
        parts += [(("entry", e), float(t), int(n)) for e, (t, n) in enumerate(zip(by_entry, entries, strict=True))]
        for group, total, number in parts:
            self.totals[group] += total
            self.counts[group] += number

    def p_value(self, noise: Law) -> float:
        """Bonferroni's over all groups."""
        groups = [group for group, number in self.counts.items() if number]
        totals, counts = (np.array([of[group] for group in groups]) for of in (self.totals, self.counts))
        return smallest(noise.lower_tail(totals, counts))


def _p_values(noise: Law, recorded: Sequence[_Recorded]) -> dict[str, float]:
    errors = prediction_errors(noise, recorded)
    p_values = {name: errors[name].p_value(noise) for name in QUESTIONS if name in errors}
    returns = _returns(noise, recorded)
    return p_values if returns is None else p_values | {"returns": returns}


class _Source:
    """The rows of one tensor of a device, of one width: the last few of each record, and its place in its batch."""

    def __init__(self, width: int) -> None:
        self._slots = np.full(1, -1, dtype=np.int64)
        self._rows = np.zeros((1, 1, width))
        self.turns = np.zeros(1, dtype=np.int64)
        self.places = np.zeros(1, dtype=np.int64)
        self._known = 0
        self.offsets: Floats | None = None
        self.message: Floats | None = None

    def slots(self, ids: Ints) -> Ints:
        """The places of these records in the tables, new ones for those that were not there yet."""
        shifted = ids - _WHOLE
        if (most := int(shifted.max(initial=0))) >= len(self._slots):
            self._slots = np.concatenate((self._slots, np.full(2 * (most + 1) - len(self._slots), -1)))
        new = shifted[self._slots[shifted] < 0]
        self._slots[new] = self._known + np.arange(len(new))
        self._known += len(new)
        self._grow()
        return self._slots[shifted]

    def _grow(self) -> None:
        """Room for all records that are known."""
        if self._known > len(self.turns):
            more = max(self._known, 2 * len(self.turns)) - len(self.turns)
            self.turns, self.places = (np.concatenate((t, np.zeros(more, t.dtype))) for t in (self.turns, self.places))
            self._rows = np.concatenate((self._rows, np.zeros((more, *self._rows.shape[1:]))))

    def earlier(self, slots: Ints, back: int) -> Floats:
        """The rows of these records so many turns before the last one; meaningless where there are not as many."""
        return self._rows[slots, (self.turns[slots] - 1 - back) % self._rows.shape[1]]

    def mean(self, slots: Ints) -> Floats:
        """The mean of the rows of each record that are there."""
        count = np.minimum(self.turns[slots], self._rows.shape[1])
        return np.asarray(self._rows[slots].sum(1) / np.maximum(count, 1)[:, None])

    def moved(self, slots: Ints, shape: tuple[int, ...]) -> tuple[Bools, Floats]:
        """Which records stood elsewhere in a batch of this shape, and their last rows with the offset of this place."""
        if self.offsets is None or self.offsets.shape != shape:
            return np.zeros(len(slots), dtype=np.bool_), np.empty((0, shape[1]))
        here, last = np.arange(len(slots)), self.places[slots]
        known = (self.turns[slots] > 0) & (last < len(self.offsets)) & (last != here)
        return known, self.earlier(slots[known], 0) + self.offsets[here[known]] - self.offsets[last[known]]

    def _learn_offsets(self, x: Floats, slots: Ints) -> None:
        """Kaczmarz's steps towards offsets of the places in a batch that explain how rows changed.

        Noise that is drawn alike for every batch is such an offset.
        """
        if self.offsets is None or self.offsets.shape != x.shape:
            self.offsets = np.zeros_like(x)
        known, _ = self.moved(slots, x.shape)
        change = x - self.earlier(slots, 0)
        for place, last in zip(np.flatnonzero(known).tolist(), self.places[slots[known]].tolist(), strict=True):
            half = (change[place] - self.offsets[place] + self.offsets[last]) / 2
            self.offsets[place] += half
            self.offsets[last] -= half

    def add(self, x: Floats, slots: Ints) -> None:
        """One message."""
        self._learn_offsets(x, slots)
        depth = self._rows.shape[1]
        if depth < _MEAN and int(self.turns[slots].max(initial=0)) >= depth:
            self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)), axis=1)[:, :_MEAN]
        self._rows[slots, self.turns[slots] % self._rows.shape[1]] = x
        self.turns[slots] += 1
        self.places[slots] = np.arange(len(slots))
        self.message = x


class _Other(NamedTuple):
    """A message of another device in this round: its records in order, their rows, and those of the round before."""

    ids: Ints
    rows: Floats
    before: Floats
    had_before: Bools


class _Past:
    """What was sent before: the last rows of each record and device, and the last message of this round."""

    def __init__(self) -> None:
        self._sources: dict[tuple[int, str, int], _Source] = {}
        self.round = -1
        self.others: dict[str, _Other] = {}

    def begin(self, round_: int) -> None:
        """Forget the other devices' rows when a new round begins."""
        if round_ != self.round:
            self.round, self.others = round_, {}

    def source(self, value: _Recorded) -> _Source:
        key = (value.device, value.name, value.stored.shape[1])
        if key not in self._sources:
            self._sources[key] = _Source(key[2])
        return self._sources[key]

    def add(self, value: _Recorded, x: Floats, source: _Source, slots: Ints) -> None:
        order = np.argsort(value.ids, kind="stable")
        before = source.earlier(slots, 0)[order]
        self.others[value.name] = _Other(value.ids[order], x[order], before, source.turns[slots][order] > 0)
        source.add(x, slots)


def prediction_errors(noise: Law, recorded: Sequence[_Recorded]) -> dict[str, Errors]:
    """The errors of all predictions of every message from what was sent before it.

    A rounding error of half a step is added to each error: the error before rounding is not larger than that.
    """
    past = _Past()
    errors: defaultdict[str, Errors] = defaultdict(Errors)
    for number, value in enumerate(recorded):
        past.begin(value.round)
        time, x, source = number * _BLOCKS // len(recorded), value.x, past.source(value)
        slots = source.slots(value.ids)
        for name, (known, predicted) in _predictions(past, value, x, source, slots).items():
            if known.any():
                off = np.abs(x[known] - predicted) + value.rounding(x[known])
                errors[name].add(noise.sizes(off), time=time, value=value)
        for name, fitted in _fits(source.message, x).items():
            target = x[_target(x)]
            off = np.abs(target - fitted) + value.rounding(target)
            errors[name].add(noise.sizes(off), time=time, value=value)
        past.add(value, x, source, slots)
    return dict(errors)


def _predictions(
    past: _Past, value: _Recorded, x: Floats, source: _Source, slots: Ints
) -> dict[str, tuple[Bools, Floats]]:
    """By name, the rows of a message that can be predicted, and the predictions of these."""
    turns = source.turns[slots]
    least = {"last": turns >= 1, "trend": turns >= 2, "mean": turns >= 4, "pairs": (turns >= 3) & (turns % 2 == 1)}
    back = {name: [source.earlier(slots[known], b) for b in range(3)] for name, known in least.items()}
    predicted = {
        "last": back["last"][0],
        "trend": 2 * back["trend"][0] - back["trend"][1],
        "mean": source.mean(slots[least["mean"]]),
        "pairs": back["pairs"][1] + back["pairs"][2] - back["pairs"][0],
    }
    predictions = {name: (known, predicted[name]) for name, known in least.items()}
    predictions["place"] = source.moved(slots, x.shape)
    predictions["size"] = (np.ones(len(x), dtype=np.bool_), np.zeros_like(x))
    return predictions | _from_others(past.others.get(value.name), value, source, slots)


def _from_others(
    other: _Other | None, value: _Recorded, source: _Source, slots: Ints
) -> dict[str, tuple[Bools, Floats]]:
    """Predict rows from those of the device before it in this round, and from their change since the round before."""
    if other is None or not len(other.ids) or other.rows.shape[1] != value.stored.shape[1]:
        return {}
    at = np.searchsorted(other.ids, value.ids).clip(max=len(other.ids) - 1)
    shared = other.ids[at] == value.ids
    changed = shared & (source.turns[slots] > 0) & other.had_before[at]
    change = source.earlier(slots[changed], 0) + other.rows[at[changed]] - other.before[at[changed]]
    return {"device": (shared, other.rows[at[shared]]), "change": (changed, change)}


def _target(x: Floats) -> tuple[slice, slice]:
    """The second half of the columns of the second half of the rows."""
    rows, columns = x.shape
    return np.s_[rows // 2 :, columns // 2 :]


def _fits(before: Floats | None, x: Floats) -> dict[str, Floats]:
    """The target predicted by least squares on the first half of the columns.

    Fitted to the other rows of the message, or to these and to the device's message before: nothing that it predicts is
    used for it.
    """
    rows, columns = x.shape
    if rows < 8 or columns < 2:
        return {}
    own = x[: rows // 2]
    fits = {"fit": _fitted(own, x)}
    if before is not None:
        fits["fit before"] = _fitted(np.concatenate((before, own)), x)
    return fits


def _fitted(known: Floats, x: Floats) -> Floats:
    top, left = (part.start for part in _target(x))
    centre = known.mean(0)
    known, new = known - centre, x[top:] - centre
    weights = np.linalg.lstsq(known[:, :left], known[:, left:], rcond=1e-6)[0]
    return np.asarray(new[:, :left] @ weights + centre[left:])


def _returns(noise: Law, recorded: Sequence[_Recorded]) -> float | None:
    """The smallest p-value of predictions by messages any number of turns before, by their values and by their changes.

    Only of devices whose messages have the same entries every time.
    """
    series: dict[tuple[int, str], list[_Recorded]] = defaultdict(list)
    for value in recorded:
        series[value.device, value.name].append(value)
    p_values: list[Floats] = []
    for values in series.values():
        first = values[0]
        alike = all(v.stored.shape == first.stored.shape and np.array_equal(v.ids, first.ids) for v in values)
        if len(values) >= 4 and alike:
            entries = host_generator(0, "search").permutation(first.stored.size)[:_ENTRIES]
            x = np.stack([v.x.ravel()[entries] for v in values])
            rounding = max(float(v.rounding(v.x).max()) for v in values)
            p_values += [_by_lag(noise, x, rounding), _by_lag(noise, np.diff(x, axis=0), rounding)]
    return smallest(np.concatenate(p_values)) if p_values else None


def _by_lag(noise: Law, series: Floats, rounding: float) -> Floats:
    """Of the differences of a series, (length, entries), at every lag.

    The sums of all of them at once are good to about 1e-16 of the signal's square; where that or rounding matters, and
    for noise that is not Gaussian, as many are computed one by one as time allows.
    """
    length = len(series)
    lags = np.arange(1, length)
    y = series - series.mean(0)
    inexact = max(1e-8 * float(np.abs(y).max(initial=0.0)), rounding)
    if not noise.gaussian or inexact > 1e-3 * noise.deviation or length <= _LAGS:
        if length > _LAGS:
            random = host_generator(0, "search").permutation(lags[_LAGS // 2 :])[: _LAGS // 2]
            lags = np.concatenate((lags[: _LAGS // 2], random))
        sizes = [float(noise.sizes(np.abs(series[k:] - series[:-k]) + rounding).sum()) for k in lags]
        return noise.lower_tail(np.array(sizes), series.shape[1] * (length - lags))
    squares = np.concatenate(([0.0], np.cumsum(np.square(y).sum(1))))
    spectrum = np.fft.rfft(y, n=2 * length, axis=0)
    products = np.fft.irfft((np.square(spectrum.real) + np.square(spectrum.imag)).sum(1), n=2 * length)[1:length]
    sums = (squares[-1] - squares[lags]) + squares[length - lags] - 2 * products
    return noise.lower_tail(np.maximum(sums, 0.0) / (2 * noise.deviation**2), series.shape[1] * (length - lags))
