"""Tests of the declared noise of a recorded training, of which only the messages are known.

A recorded value is signal + noise, and the signal may be anything. But if the noise of an entry is independent of all
that was sent before, so is it of every prediction that is made from that: the error of the prediction is (signal -
prediction) + noise, which is at least as large as the noise alone. So errors that are too small refute the declared
noise, whatever the signal; and where the signal can be predicted, no noise, too little of it and noise that returns
all show, however large the signal is beside it.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv

from vflpriv.audits.statistics.noise_tests import ALPHA, NoiseTest, smallest
from vflpriv.audits.statistics.significance import holm_adjusted
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import host_generator
from vflpriv.core.audit import Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.ledger import Ledger
from vflpriv.core.releases import Gaussian, Laplace, Noise
from vflpriv.core.wire import Message

__all__ = [
    "QUESTIONS",
    "Errors",
    "NoiseLimit",
    "RecordedNoise",
    "noise_limit",
    "noise_p_value",
    "prediction_errors",
    "recorded_noises",
]

_BLOCKS = 8
_MEAN = 8
_ENTRIES = 64
_LAGS = 256
_DISTINCT = 16
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
Rows = dict[int, Floats]


@dataclass(frozen=True, kw_only=True)
class RecordedNoise:
    """Whether recorded messages of one kind can hold their noise; each test's `p_adjusted` is Holm's over all kinds."""

    kind: str
    noise: Noise
    entries: int
    messages: int
    tests: tuple[NoiseTest, ...]
    alpha: float = ALPHA

    @property
    def p_adjusted(self) -> float:
        return min(t.p_adjusted for t in self.tests)

    @property
    def rejected(self) -> tuple[NoiseTest, ...]:
        return tuple(t for t in self.tests if t.p_adjusted <= self.alpha)

    @property
    def holds(self) -> bool:
        return not self.rejected

    @property
    def sentence(self) -> str:
        p = f"p {'=' if self.p_adjusted >= 1e-300 else '<'} {max(self.p_adjusted, 1e-300):.2g}"
        declared = f"{self.noise} is said to be on {self.kind}, {self.entries} entries of {self.messages} messages"
        if self.holds:
            count = len(self.tests)
            return f"{declared}: large enough to hold it in {count} {'test' if count == 1 else 'tests'} ({p})"
        return f"{declared}: too small to hold it {'; '.join(t.question for t in self.rejected)} ({p})"

    @property
    def finding(self) -> Finding:
        """Every claim of the recorded system rests on its noise; without claims it counts by itself.

        Values that are large enough may be so without noise: that measures nothing.
        """
        return Finding(
            audit="noise",
            subject=self.kind,
            verdict=Verdict.CONSISTENT if self.holds else Verdict.VIOLATED,
            sentence=self.sentence,
            figure=self.p_adjusted,
            measure="p-value of the declared noise",
            p_value=self.p_adjusted,
            decides_alone=True,
            measures=not self.holds,
            evidence=self,
        )


def recorded_noises(
    ledger: Ledger, messages: Sequence[Message], *, shared: Collection[str], confidence: float
) -> list[RecordedNoise]:
    """Tests of the declared noise of every kind that was recorded.

    The family-wise error is 1 in 1000, or 1 - confidence where that is less.
    """
    declared = {r.kind: r.noise for r in ledger.releases if not r.once and isinstance(r.noise, Gaussian | Laplace)}
    recorded = {kind: _recorded(messages, kind, kind in shared) for kind in declared}
    raw = {kind: _p_values(noise, recorded[kind]) for kind, noise in declared.items() if recorded[kind]}
    adjusted = iter(holm_adjusted([p for p_values in raw.values() for p in p_values.values()]))
    return [
        RecordedNoise(
            kind=kind,
            noise=declared[kind],
            entries=sum(r.x.size for r in recorded[kind]),
            messages=len({(r.round, r.device) for r in recorded[kind]}),
            alpha=min(ALPHA, 1 - confidence),
            tests=tuple(
                NoiseTest(name=name, question=QUESTIONS[name], p_value=p, p_adjusted=next(adjusted))
                for name, p in p_values.items()
            ),
        )
        for kind, p_values in raw.items()
    ]


def noise_p_value(noise: Noise, values: Sequence[Floats]) -> float | None:
    """The p-value of "every entry carries independent noise of this size, or more"; None for other noises.

    Around any signal, known or not, |signal + noise| is stochastically at least |noise|, as the noise is symmetric and
    has one peak. Conditional on all earlier entries that stays so, whatever the signal learnt from them. So Σx²/σ² is
    at least chi-squared with n degrees of freedom (Gaussian), and Σ|x|/b at least Gamma(n) (Laplace).

    >>> noise_p_value(Gaussian(1.0), [np.zeros(10)])
    0.0
    """
    count = sum(v.size for v in values)
    if not count or not isinstance(noise, Gaussian | Laplace):
        return None
    return float(_lower_tail(noise, sum(float(_sizes(noise, v).sum()) for v in values), count))


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


def _sizes(noise: Gaussian | Laplace, values: Floats) -> Floats:
    """Of each value, what is Gamma distributed if it is noise: half its square, or its size, on the noise's scale."""
    return np.square(values / noise.std) / 2 if isinstance(noise, Gaussian) else np.abs(values / noise.scale)


def _lower_tail(noise: Gaussian | Laplace, totals: Floats | float, counts: Floats | float) -> Floats:
    """P[the summed sizes of so many noises are at most this]."""
    return np.asarray(gammainc((0.5 if isinstance(noise, Gaussian) else 1.0) * np.asarray(counts), totals))


@dataclass(frozen=True, eq=False)
class _Recorded:
    """One tensor of one message: its rows, (B, width), the record of each, and how far rounding may have moved them."""

    round: int
    device: int
    name: str
    x: Floats
    ids: tuple[int, ...]
    rounding: Floats | float


def _recorded(messages: Sequence[Message], kind: str, shared: bool) -> list[_Recorded]:
    """The tensors of a kind; of a shared one, what the first device of a round was sent.

    What is sent to several devices of a round bit for bit is one release, too.
    """
    first: dict[int, int] = {}
    found: list[_Recorded] = []
    total = sum(t.numel() for m in messages if m.kind == kind for t in m.tensors.values())
    share = min(1.0, _MOST / max(1, total))
    seen: set[tuple[int, str, bytes]] = set()
    for m in messages:
        if m.kind != kind or (shared and first.setdefault(m.round, m.device.index) != m.device.index):
            continue
        for name, tensor in m.tensors.items():
            value = _tensor(m, name, tensor, share)
            key = (m.round, name, value.x.tobytes())
            if value.x.size and key not in seen:
                seen = {k for k in seen if k[0] == m.round} | {key}
                found.append(value)
    return _on_a_grid(found)


def _tensor(message: Message, name: str, tensor: torch.Tensor, share: float) -> _Recorded:
    """A tensor by its rows; of a long recording only a share of the entries of each row, the same in every message."""
    x = tensor.detach().cpu()
    ids = [] if message.records is None else message.records.tolist()
    by_rows = len(ids) > 0 and x.dim() >= 2 and x.shape[0] == 1 and x.shape[1] == len(ids)
    rows = x.reshape(len(ids) if by_rows else 1, -1)
    if share < 1:
        width = rows.shape[1]
        some = host_generator(0, "search").permutation(width)[: max(_LEAST, math.ceil(width * share))]
        rows = rows[:, torch.from_numpy(np.sort(some))]
    values = rows.double().numpy()
    rounding: Floats | float = _precision(x) / 2 * np.abs(values) if x.is_floating_point() else 0.5
    return _Recorded(message.round, message.device.index, name, values, tuple(ids) if by_rows else (_WHOLE,), rounding)


def _precision(x: torch.Tensor) -> float:
    """The relative step between values: of the type itself, or of a shorter one that holds all of them."""
    types = [d for d in (torch.bfloat16, torch.float16) if torch.equal(x.to(d).to(x.dtype), x)]
    return max(torch.finfo(d).eps for d in (x.dtype, *types))


def _on_a_grid(recorded: list[_Recorded]) -> list[_Recorded]:
    """Where all values are multiples of one step, they were rounded to it after the noise, by half a step at most."""
    if not recorded:
        return recorded
    values = np.unique(np.concatenate([r.x.ravel()[:4096] for r in recorded[:256]]))
    if len(values) < _DISTINCT:
        return recorded
    step = float(np.diff(values).min())
    multiples = values / step
    if np.abs(multiples).max() > 2.0**20 or np.abs(multiples - np.rint(multiples)).max() > 1e-3:
        return recorded
    return [_Recorded(r.round, r.device, r.name, r.x, r.ids, np.maximum(r.rounding, step / 2)) for r in recorded]


@dataclass(eq=False)
class Errors:
    """Sums of the sizes of the errors of one prediction: of all, by time, by device and by entry."""

    totals: dict[tuple[str, int], float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))

    def add(self, sizes: Floats, *, time: int, device: int) -> None:
        """Add the sizes, (rows, width), of one message's errors."""
        width = sizes.shape[-1]
        by_entry = np.bincount(np.arange(width) * _BLOCKS // max(_BLOCKS, width), sizes.reshape(-1, width).sum(0))
        entries = np.bincount(np.arange(width) * _BLOCKS // max(_BLOCKS, width)) * (sizes.size // width)
        parts = [(("all", 0), float(sizes.sum()), sizes.size), (("time", time), float(sizes.sum()), sizes.size)]
        parts.append((("device", device), float(sizes.sum()), sizes.size))
        parts += [(("entry", e), float(t), int(n)) for e, (t, n) in enumerate(zip(by_entry, entries, strict=True))]
        for group, total, number in parts:
            self.totals[group] += total
            self.counts[group] += number

    def p_value(self, noise: Gaussian | Laplace) -> float:
        """Bonferroni's over all groups."""
        groups = [group for group, number in self.counts.items() if number]
        totals, counts = (np.array([of[group] for group in groups]) for of in (self.totals, self.counts))
        return smallest(_lower_tail(noise, totals, counts))


def _p_values(noise: Noise, recorded: Sequence[_Recorded]) -> dict[str, float]:
    assert isinstance(noise, Gaussian | Laplace)
    errors = prediction_errors(noise, recorded)
    p_values = {name: errors[name].p_value(noise) for name in QUESTIONS if name in errors}
    returns = _returns(noise, recorded)
    return p_values if returns is None else p_values | {"returns": returns}


class _Past:
    """What was sent before: the last rows of each record and device, and the rows of this round."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, str, int], deque[Floats]] = defaultdict(lambda: deque(maxlen=_MEAN))
        self.turns: dict[tuple[int, str, int], int] = defaultdict(int)
        self.messages: dict[tuple[int, str], Floats] = {}
        self.places: dict[tuple[int, str, int], int] = {}
        self.offsets: dict[tuple[int, str], Floats] = {}
        self.round = -1
        self.others: dict[str, list[tuple[Rows, Rows]]] = defaultdict(list)

    def begin(self, round_: int) -> None:
        """Forget the other devices' rows when a new round begins."""
        if round_ != self.round:
            self.round, self.others = round_, defaultdict(list)

    def of(self, value: _Recorded, place: int) -> list[Floats]:
        """The earlier rows of the record at a place, the last one first, as long as they are as wide as this one."""
        past = self.rows[value.device, value.name, value.ids[place]]
        return [row for row in reversed(past) if row.shape == value.x[place].shape]

    def moved(self, value: _Recorded, place: int, earlier: list[Floats]) -> Floats | None:
        """The record's last row, with the offset of the place where it stood replaced by that of this place."""
        offsets, last = self.offsets.get((value.device, value.name)), self.places.get(_key(value, place))
        if offsets is None or last is None or not earlier or offsets.shape != value.x.shape or last >= len(offsets):
            return None
        return np.asarray(earlier[0] + offsets[place] - offsets[last])

    def _learn_offsets(self, value: _Recorded) -> None:
        """Kaczmarz's steps towards offsets of the places in a batch that explain how rows changed.

        Noise that is drawn alike for every batch is such an offset.
        """
        source = (value.device, value.name)
        if source not in self.offsets or self.offsets[source].shape != value.x.shape:
            self.offsets[source] = np.zeros_like(value.x)
        for place in range(len(value.ids)):
            predicted, last = self.moved(value, place, self.of(value, place)), self.places.get(_key(value, place))
            if predicted is not None and last is not None and last != place:
                half = (value.x[place] - predicted) / 2
                self.offsets[source][place] += half
                self.offsets[source][last] -= half

    def add(self, value: _Recorded) -> None:
        self._learn_offsets(value)
        before = {i: past[0] for place, i in enumerate(value.ids) if (past := self.of(value, place))}
        self.others[value.name].append((dict(zip(value.ids, value.x, strict=True)), before))
        for place, (i, row) in enumerate(zip(value.ids, value.x, strict=True)):
            self.places[_key(value, place)] = place
            self.rows[value.device, value.name, i].append(row)
            self.turns[value.device, value.name, i] += 1
        self.messages[value.device, value.name] = value.x


def _key(value: _Recorded, place: int) -> tuple[int, str, int]:
    return value.device, value.name, value.ids[place]


def prediction_errors(noise: Gaussian | Laplace, recorded: Sequence[_Recorded]) -> dict[str, Errors]:
    """The errors of all predictions of every message from what was sent before it.

    A rounding error of half a step is added to each error: the error before rounding is not larger than that.
    """
    past = _Past()
    errors: defaultdict[str, Errors] = defaultdict(Errors)
    for place, value in enumerate(recorded):
        past.begin(value.round)
        time = place * _BLOCKS // len(recorded)
        for name, predicted in _predictions(past, value).items():
            known = ~np.isnan(predicted).all(1)
            if known.any():
                off = np.abs(value.x - predicted) + value.rounding
                errors[name].add(_sizes(noise, off[known]), time=time, device=value.device)
        for name, fitted in _fits(past, value).items():
            off = (np.abs(value.x - fitted) + value.rounding)[_target(value)]
            errors[name].add(_sizes(noise, off), time=time, device=value.device)
        past.add(value)
    return dict(errors)


def _predictions(past: _Past, value: _Recorded) -> dict[str, Floats]:
    """Each prediction of a message's rows; NaN in rows for which there is none."""
    nothing = np.full_like(value.x, np.nan)
    predicted = {name: nothing.copy() for name in ("last", "trend", "mean", "pairs", "place", "device", "change")}
    predicted["size"] = np.zeros_like(value.x)
    for place, record in enumerate(value.ids):
        earlier = past.of(value, place)
        if earlier:
            predicted["last"][place] = earlier[0]
        if len(earlier) >= 2:
            predicted["trend"][place] = 2 * earlier[0] - earlier[1]
        if len(earlier) >= 4:
            predicted["mean"][place] = np.mean(earlier, axis=0)
        if len(earlier) >= 3 and past.turns[value.device, value.name, record] % 2:
            predicted["pairs"][place] = earlier[1] + earlier[2] - earlier[0]
        moved = past.moved(value, place, earlier)
        if moved is not None and past.places[_key(value, place)] != place:
            predicted["place"][place] = moved
        _from_others(past, value, place, earlier, predicted)
    return predicted


def _from_others(
    past: _Past, value: _Recorded, place: int, earlier: list[Floats], predicted: Mapping[str, Floats]
) -> None:
    """Predict a row from that of the device before it in this round, and from its change since the round before."""
    record = value.ids[place]
    for now, before in past.others[value.name][-1:]:
        row = now.get(record)
        if row is None or row.shape != value.x[place].shape:
            continue
        predicted["device"][place] = row
        if earlier and record in before:
            predicted["change"][place] = earlier[0] + row - before[record]


def _target(value: _Recorded) -> tuple[slice, slice]:
    """The second half of the columns of the second half of the rows."""
    rows, columns = value.x.shape
    return np.s_[rows // 2 :, columns // 2 :]


def _fits(past: _Past, value: _Recorded) -> dict[str, Floats]:
    """The target predicted by least squares on the first half of the columns.

    Fitted to the other rows of the message, or to these and to the device's message before: nothing that it predicts is
    used for it.
    """
    rows, columns = value.x.shape
    if rows < 8 or columns < 2:
        return {}
    own, before = value.x[: rows // 2], past.messages.get((value.device, value.name))
    fits = {"fit": _fitted(own, value)}
    if before is not None and before.shape[1] == columns:
        fits["fit before"] = _fitted(np.concatenate((before, own)), value)
    return fits


def _fitted(known: Floats, value: _Recorded) -> Floats:
    top, left = (part.start for part in _target(value))
    centre = known.mean(0)
    known, new = known - centre, value.x[top:] - centre
    weights = np.linalg.lstsq(known[:, :left], known[:, left:], rcond=1e-6)[0]
    fitted = np.array(value.x)
    fitted[top:, left:] = new[:, :left] @ weights + centre[left:]
    return fitted


def _returns(noise: Gaussian | Laplace, recorded: Sequence[_Recorded]) -> float | None:
    """The smallest p-value of predictions by messages any number of turns before, by their values and by their changes.

    Only of devices whose messages have the same entries every time.
    """
    series: dict[tuple[int, str], list[_Recorded]] = defaultdict(list)
    for value in recorded:
        series[value.device, value.name].append(value)
    p_values: list[Floats] = []
    for values in series.values():
        alike = all(v.x.shape == values[0].x.shape and v.ids == values[0].ids for v in values)
        if len(values) >= 4 and alike:
            entries = host_generator(0, "search").permutation(values[0].x.size)[:_ENTRIES]
            x = np.stack([v.x.ravel()[entries] for v in values])
            rounding = max(float(np.max(v.rounding)) for v in values)
            p_values += [_by_lag(noise, x, rounding), _by_lag(noise, np.diff(x, axis=0), rounding)]
    return smallest(np.concatenate(p_values)) if p_values else None


def _by_lag(noise: Gaussian | Laplace, series: Floats, rounding: float) -> Floats:
    """Of the differences of a series, (length, entries), at every lag.

    The sums of all of them at once are good to about 1e-16 of the signal's square; where that or rounding matters, and
    for Laplace noise, as many are computed one by one as time allows.
    """
    length = len(series)
    lags = np.arange(1, length)
    y = series - series.mean(0)
    inexact = max(1e-8 * float(np.abs(y).max(initial=0.0)), rounding)
    if isinstance(noise, Laplace) or inexact > 1e-3 * noise.std or length <= _LAGS:
        if length > _LAGS:
            random = host_generator(0, "search").permutation(lags[_LAGS // 2 :])[: _LAGS // 2]
            lags = np.concatenate((lags[: _LAGS // 2], random))
        sizes = [float(_sizes(noise, np.abs(series[k:] - series[:-k]) + rounding).sum()) for k in lags]
        return _lower_tail(noise, np.array(sizes), series.shape[1] * (length - lags))
    squares = np.concatenate(([0.0], np.cumsum(np.square(y).sum(1))))
    spectrum = np.fft.rfft(y, n=2 * length, axis=0)
    products = np.fft.irfft((np.square(spectrum.real) + np.square(spectrum.imag)).sum(1), n=2 * length)[1:length]
    sums = (squares[-1] - squares[lags]) + squares[length - lags] - 2 * products
    return _lower_tail(noise, np.maximum(sums, 0.0) / (2 * noise.std**2), series.shape[1] * (length - lags))
