"""Collects the noise of a whole training from its release points: sums over all of it, and samples for further tests.

Noise is taken on the scale of its law: as standard normals, if it has the law that is declared (`Law.scores`), so that
the same tests serve every law. Every round is run, and every entry of every message counts in the sums and in the
search for values that return. What tests of dependence and of the law need is sampled at random over all rounds and
entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from vflpriv.audits.statistics.noise_tests import Copies
from vflpriv.audits.twins.probes import Probe, Released, on_host
from vflpriv.common.machine import single_threaded
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import host_generator
from vflpriv.core.engine import Engine
from vflpriv.core.law import Law
from vflpriv.core.ledger import Ledger
from vflpriv.core.systems import System
from vflpriv.core.wire import Message

__all__ = ["TAILS", "CollectedNoise", "Collector", "NoiseRun", "Place", "collect", "laws_of_noise"]

_ENTRIES = 64
_SAMPLED = 1 << 20
"""Values of one kind that are kept for tests of dependence, and values whose lags along the entries are looked at."""
_WORDS = 1 << 21
"""Words of one kind that are kept in the search for values that return."""
TAILS = (2.5, 3.0, 3.5, 4.0)
"""Distances from zero, in standard deviations, beyond which values are counted."""
_FOR_LAW = 1 << 16
_HEAD = 64
_COMPARED = 48
_WORD = 8
_STREAM = 20
"""Tells its random numbers apart from those of other searches."""
_ALONG = 4
"""Replicas whose successive values are looked at."""
_COARSEST = 2.0**-4
"""Cells that would have to be wider, for the sake of rounding errors, say nothing."""
_OCTAVES = 12
_LARGEST = 1e15
"""In units of the declared std; larger values count as this, so that no sum of their products overflows."""
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Place:
    """Where a value left: its round, the device at the far end, and which of that device's values of the round it is.

    A value that no message carries has the device -1.
    """

    round: int
    device: int
    part: int


@dataclass(eq=False)
class _Groups:
    """Sums of squares, and numbers of values, by group."""

    totals: Floats
    counts: Ints

    @classmethod
    def of(cls, size: int) -> _Groups:
        return cls(np.zeros(size), np.zeros(size, dtype=np.int64))

    def add(self, groups: Ints, squares: Floats, numbers: int = 1) -> None:
        if int(groups.max(initial=-1)) >= len(self.totals):
            more = int(groups.max()) + 1 - len(self.totals)
            self.totals, self.counts = np.pad(self.totals, (0, more)), np.pad(self.counts, (0, more))
        size = len(self.totals)
        self.totals += np.bincount(groups, squares, size)
        self.counts += numbers * np.bincount(groups, minlength=size)


@dataclass(eq=False)
class CollectedNoise:
    """The noise of one kind in units of its declared std: sums over all of its values, and samples of them.

    `kept` holds, for each message, all replicas at `entries` of the message, (R, sampled entries); zeros stand for
    entries that a short message lacks. `heads` holds the first entries of some messages.
    """

    replicas: int
    width: int
    """Entries of the first message."""
    entries: Ints
    places: list[Place] = field(default_factory=list)
    kept: list[NDArray[np.float32]] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)
    shares: list[Floats] = field(default_factory=list)
    """Of each message, the share of each class in its batch."""
    by_entry: _Groups = field(default_factory=lambda: _Groups.of(0))
    by_replica: _Groups = field(default_factory=lambda: _Groups.of(0))
    by_record: _Groups = field(default_factory=lambda: _Groups.of(0))
    by_label: _Groups = field(default_factory=lambda: _Groups.of(0))
    by_signal: _Groups = field(default_factory=lambda: _Groups.of(4 * _OCTAVES))
    with_signal: Floats = field(default_factory=lambda: np.zeros(4))
    """Σ z·c, Σ c², Σ z·sign(c) and Σ sign(c)² for the value c before the noise."""
    power: Floats | None = None
    """Summed power spectrum along the entries of some messages, and in `power_pairs` the products at each lag."""
    power_pairs: Floats | None = None
    for_law: list[Floats] = field(default_factory=list)
    beyond: Ints = field(default_factory=lambda: np.zeros(len(TAILS), dtype=np.int64))
    """How many values are farther out than each of `TAILS`."""
    heads: dict[Place, Floats] = field(default_factory=dict)

    @property
    def values(self) -> int:
        return sum(self.counts)

    @property
    def total(self) -> float:
        """The sum of all squares."""
        return math.fsum(self.totals)

    @property
    def rounds(self) -> int:
        return len({place.round for place in self.places})

    @property
    def widest(self) -> int:
        """Entries of the widest message."""
        return len(self.by_entry.totals)


@dataclass(eq=False)
class NoiseRun:
    """The noise of a run by kind, the search for values that return, and the messages that carry no released value."""

    engine: Engine | None = None
    noise: dict[str, CollectedNoise] = field(default_factory=dict)
    across: dict[float, Copies] = field(default_factory=dict)
    """Words of the values of several replicas at one place, by the width of their cells."""
    along: dict[float, Copies] = field(default_factory=dict)
    """Words of successive values of one replica, by the width of their cells."""
    cells: dict[str, float] = field(default_factory=dict)
    """The width of the cells of each kind; kinds whose rounding errors are too large have none."""
    unsent: dict[str, int] = field(default_factory=dict)


def collect(
    system: System, declared: Mapping[str, Law], rounds: range, replicas: range, *, like: NoiseRun | None = None
) -> NoiseRun:
    """The noise of these rounds and replicas; a new engine runs them as if it had been resumed at the first round.

    It is sampled at the same entries as that of another run which it is to be compared with.
    """
    probe, counter = Probe(), _Counter(frozenset(declared))
    engine = system.train(replicas, probe=probe)
    collector = Collector(
        declared,
        rounds=len(rounds),
        seed=system.seed,
        labels=system.data.labels.cpu().numpy(),
        batch=system.schedule.batch,
        like=like,
    )
    with single_threaded():
        for round_ in rounds:
            values = probe.round(engine, round_, counter)
            counter.carried({id(message): message.kind for message in probe.carriers})
            collector.add(round_, values)
    run = collector.finish()
    run.engine = engine
    # Gaussian noise leaves through release points alone; that of other laws may be a defence's, which has none.
    through = [kind for kind, law in declared.items() if law.white or kind in run.noise]
    run.unsent = {kind: counter.bare.get(kind, 0) for kind in through}
    return run


def laws_of_noise(ledger: Ledger) -> dict[str, Law]:
    """By kind of message, the law of the noise on each of its numbers, where observations of such noise have a test."""
    random, numbers = np.random.default_rng(0), np.zeros((1, 2))
    laws = {}
    for release in ledger.releases:
        law = release.noise
        # Responses have no numbers, and noise that depends on earlier rounds is no independent draw on each of them.
        additive = law.noised and law.independent and law.norm in (1, 2)
        scores = law.scores(numbers, numbers, random) if additive else None
        if scores is not None and scores.shape == numbers.shape:
            laws[release.kind] = law
    return laws


class _Counter:
    """Counts the messages of noised kinds that carry no value released by a mechanism."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self._kinds = kinds
        self.bare: dict[str, int] = {}

    def record(self, message: Message) -> None:
        if message.kind in self._kinds:
            self.bare[message.kind] = self.bare.get(message.kind, 0) + 1

    def carried(self, messages: Mapping[int, str]) -> None:
        """Subtract the messages that do carry one, by their identity."""
        for kind in messages.values():
            self.bare[kind] = self.bare.get(kind, 0) - 1


class Collector:
    """Takes the values of one round after the other; `batch` gives the records of a round."""

    def __init__(
        self,
        declared: Mapping[str, Law],
        *,
        rounds: int,
        seed: int,
        labels: Ints,
        batch: Callable[[int], Ints],
        like: NoiseRun | None = None,
    ) -> None:
        self.declared, self.rounds, self.labels, self.batch, self.like = declared, rounds, labels, batch, like
        self.classes = int(labels.max(initial=0)) + 1
        self.kinds = {kind: number for number, kind in enumerate(declared)}
        self.random = host_generator(seed, "search", _STREAM)
        self.places_random = host_generator(seed, "search", _STREAM + 1)
        """Chooses a place within the probability of noise of a discrete law."""
        self.expected: dict[str, int] = {}
        self.run = NoiseRun()

    def add(self, round_: int, values: list[Released]) -> None:
        """The values that left in one round."""
        parts: dict[tuple[str, int], int] = {}
        noised = []
        for value in on_host(values)[0]:
            kind, device = _where(value)
            if kind in self.declared and value.released[0].numel():  # rows of an empty Poisson batch hold no noise
                part = parts[kind, device] = parts.get((kind, device), -1) + 1
                noised.append((kind, Place(round_, device, part), value))
        for kind in self.declared:
            first = [value for k, _, value in noised if k == kind]
            if first and kind not in self.run.noise:
                self._begin(kind, first)
        for kind, place, value in noised:
            self._take(kind, place, value)

    def _begin(self, kind: str, values: list[Released]) -> None:
        """Decide what is kept of a kind, from what its first round releases."""
        replicas, width = len(values[0].released), values[0].released[0].numel()
        messages, like = self.rounds * len(values), self.like
        self.expected[kind] = expected = messages * width * replicas
        count = int(min(width, _ENTRIES, max(1, _SAMPLED // (messages * replicas))))
        entries = np.sort(self.random.choice(width, size=count, replace=False))
        if like is not None and kind in like.noise:
            entries = like.noise[kind].entries
        self.run.noise[kind] = CollectedNoise(replicas, width, entries, by_replica=_Groups.of(replicas))
        signal = max(float(np.abs(_flat(v.noiseless, self.declared[kind].deviation)).max()) for v in values)
        rounding = 2.0**-24 * (signal + 4)
        cell = 2.0 ** max(-12, math.ceil(math.log2(32 * rounding))) if like is None else like.cells.get(kind, 1.0)
        if cell <= _COARSEST:
            self.run.cells[kind] = cell
            across = Copies(cell, min(replicas, _WORD), keep_every=_every(expected // replicas))
            self.run.across.setdefault(cell, across)
            self.run.along.setdefault(cell, Copies(cell, _WORD, keep_every=_every(expected * _ALONG // replicas)))

    def _take(self, kind: str, place: Place, value: Released) -> None:
        noise, law = self.run.noise[kind], self.declared[kind]
        signal, z = _flat(value.noiseless, law.deviation), self._scores(law, value)
        batch = self._records(place.round, value)
        squares = np.square(z)
        noise.places.append(place)
        noise.totals.append(float(squares.sum()))
        noise.counts.append(z.size)
        noise.sums.append(float(z.sum()))
        noise.beyond += [int(np.count_nonzero(np.abs(z) > limit)) for limit in TAILS]
        noise.shares.append(np.bincount(self.labels[batch], minlength=self.classes) / max(1, len(batch)))
        self._group(noise, squares, signal, batch if value.released.dim() == 3 else None)
        _with_signal(noise, z, signal)
        self._sample(noise, kind, place, z)
        self._words(kind, place.round, z)

    def _scores(self, law: Law, value: Released) -> Floats:
        """(R, entries) the noise as standard normals, if it has this law."""
        added, signal = _flat(value.released - value.noiseless, 1.0), _flat(value.noiseless, 1.0)
        scores = law.scores(added, signal, self.places_random)
        assert scores is not None
        return np.clip(scores, -_LARGEST, _LARGEST)

    def _records(self, round_: int, value: Released) -> Ints:
        """The records whose contributions are in a value."""
        records = None if value.message is None else value.message.records
        return self.batch(round_) if records is None else records.numpy()

    def _group(self, noise: CollectedNoise, squares: Floats, signal: Floats, batch: Ints | None) -> None:
        replicas, width = squares.shape
        noise.by_entry.add(np.arange(width), squares.sum(0), replicas)
        noise.by_replica.add(np.arange(replicas), squares.sum(1), width)
        octaves = np.clip(np.log2(np.abs(signal) + 1e-30) / 2 + _OCTAVES / 2, 0, _OCTAVES - 1).astype(np.int64)
        noise.by_signal.add((octaves + _OCTAVES * (signal > 0)).ravel(), squares.ravel())
        if batch is not None and len(batch) and width % len(batch) == 0:
            rows, size = squares.reshape(replicas, len(batch), -1).sum((0, 2)), replicas * (width // len(batch))
            noise.by_record.add(batch, rows, size)
            noise.by_label.add(self.labels[batch], rows, size)

    def _sample(self, noise: CollectedNoise, kind: str, place: Place, z: Floats) -> None:
        """Keep what tests of dependence and of the law need; which it is was drawn before the noise was seen."""
        inside = noise.entries[noise.entries < z.shape[1]]
        kept = np.zeros((len(z), len(noise.entries)), dtype=np.float32)
        kept[:, : len(inside)] = z[:, inside]
        noise.kept.append(kept)
        expected = self.expected[kind]
        chosen = self.random.integers(0, z.size, size=self.random.binomial(z.size, min(1.0, _FOR_LAW / expected)))
        noise.for_law.append(z.ravel()[np.unique(chosen)])
        if self.random.random() < _COMPARED * z.size / expected or len(noise.places) == 1:
            noise.heads[place] = z[:, :_HEAD]
        if z.shape[1] > 1 and self.random.random() < _SAMPLED / expected:
            _add_power(noise, z)

    def _words(self, kind: str, round_: int, z: Floats) -> None:
        cell, number = self.run.cells.get(kind), self.kinds[kind]
        if cell is None:
            return
        across, along = self.run.across[cell], self.run.along[cell]
        if len(z) >= across.length:
            across.add(z[: across.length].T, number if round_ >= self.rounds // 2 else -1 - number)
        if z.shape[1] >= along.length:
            along.add(z[:_ALONG], number)

    def finish(self) -> NoiseRun:
        """All that was collected. Where a message has few entries, the words of one replica run over its messages."""
        for kind, cell in self.run.cells.items():
            noise, along = self.run.noise[kind], self.run.along[cell]
            if noise.widest < along.length and len(noise.kept) * len(noise.entries) >= along.length:
                streams = np.stack(noise.kept).astype(np.float64).swapaxes(0, 1).reshape(noise.replicas, -1)
                along.add(streams, self.kinds[kind])
        return self.run


def _every(number: int) -> int:
    """One word in how many is kept, a power of two."""
    return int(2 ** max(0, math.ceil(math.log2(max(1, number) / _WORDS))))


def _where(value: Released) -> tuple[str, int]:
    """The kind of message that carried a value, and the device at its far end; an internal value has a kind alone."""
    if value.message is not None:
        return value.message.kind, value.message.device.index
    return value.kind if value.internal else "", -1


def _flat(values: torch.Tensor, std: float) -> Floats:
    """(R, entries) in double precision, in units of the declared std."""
    rows = values.detach().reshape(len(values), -1).to(torch.float64) / std
    return rows.nan_to_num(_LARGEST).clamp(-_LARGEST, _LARGEST).cpu().numpy()


def _with_signal(noise: CollectedNoise, z: Floats, signal: Floats) -> None:
    signs = np.sign(signal)
    noise.with_signal += [
        float((z * signal).sum()),
        float(np.square(signal).sum()),
        float((z * signs).sum()),
        float(np.abs(signs).sum()),
    ]


def _add_power(noise: CollectedNoise, z: Floats) -> None:
    """Add the spectrum along the entries of one message, of which only as many count as the first message had."""
    z = z[:, : noise.width]
    size = 2 * noise.width
    spectrum = np.fft.rfft(z, n=size, axis=1)
    power = (np.square(spectrum.real) + np.square(spectrum.imag)).sum(0)
    pairs = len(z) * np.maximum(z.shape[1] - np.arange(noise.width), 0.0)
    noise.power = power if noise.power is None else noise.power + power
    noise.power_pairs = pairs if noise.power_pairs is None else noise.power_pairs + pairs
