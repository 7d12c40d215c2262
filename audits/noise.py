"""The noise audit: is the noise of every release there, of the declared size and law, fresh, and secret?

Of systems that can be trained, a few replicas are trained over all rounds, the noise itself is taken from every value
that they release, and tested. Of recorded trainings only the messages are known (`recorded_noise`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits.label_noise import LabelNoise, label_noise
from vflpriv.audits.recorded_noise import RecordedNoise, noise_p_value, recorded_noises
from vflpriv.audits.statistics.noise_tests import (
    ALPHA,
    NoiseTest,
    anderson_darling,
    confirmed,
    correlation,
    distinct_pairs,
    lags,
    like_pairs,
    product_sums,
    scale,
    scale_in_groups,
    smallest,
    tails,
)
from vflpriv.audits.twins.noise import TAILS, CollectedNoise, NoiseRun, collect, laws_of_noise
from vflpriv.common.numerics import Floats
from vflpriv.common.random import Stream
from vflpriv.common.registry import register
from vflpriv.common.seeds import host_generator
from vflpriv.core.audit import Audit, AuditContext, Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.engine import Engine
from vflpriv.core.law import Law
from vflpriv.core.systems import Offer, System
from vflpriv.training.mechanisms.base import NoiseSource

__all__ = [
    "ALPHA",
    "PUBLIC",
    "LabelNoise",
    "NoiseAudit",
    "NoiseOfKind",
    "NoiseTest",
    "RecordedNoise",
    "Sample",
    "copied",
    "examine",
    "noise_p_value",
    "public",
    "recorded_noises",
]


PUBLIC = ("directions", "init")
"""Streams whose seeds devices hold."""
_VALUES = 8192
"""At least so many values: enough to tell noise that is cut off at three standard deviations."""
_MESSAGES = 2048
"""At least so many messages of all replicas together."""
_TAIL = 64
_POSITIONS = 512
_REPLICA_ROUNDS = 8192
_REPLICAS = (4, 16)
_RESUMED = 16
_PRODUCTS = 1 << 30
_PAIRED = 2048
"""Messages of which every two are compared."""
_BLOCKS = 16
Ints = NDArray[np.int64]
Tests = list[tuple[str, str, float]]


@dataclass(frozen=True, eq=False)
class Sample:
    """Noise of one kind on the scale of its law, (messages, R, entries), with each message's round and device."""

    z: NDArray[np.float64]
    rounds: NDArray[np.int64]
    devices: NDArray[np.int64]


def public(system: System, engine: Engine, sample: Sample) -> float:
    """The p-value of "the noise is independent of all streams that devices can regenerate".

    There are two ways to draw from a public stream by mistake: the noise source is given that stream, or the noise is
    taken from what follows (or lies within) a party's direction.
    """
    p_values = []
    for name in PUBLIC:
        stream = Stream.of(system.seed, name, engine.replicas, system.torch_device)
        p_values += [_addressed(NoiseSource(stream), sample), _behind(stream, engine, sample)]
    return smallest(p_values)


def _addressed(source: NoiseSource, sample: Sample) -> float:
    """The p-value of independence from what the engine's noise source would draw from a stream."""
    width, draws = sample.z.shape[2], []
    for t, m in zip(sample.rounds.tolist(), sample.devices.tolist(), strict=True):
        scalar = source.scalar(t)[:, None].expand(-1, width)
        draws.append(torch.stack((scalar, source.tensor((width,), t, m))))
    public = torch.stack(draws, dim=1).cpu().to(torch.float64).numpy()
    return correlation(sample.z.ravel(), public.reshape(len(public), -1))


def _behind(stream: Stream, engine: Engine, sample: Sample) -> float:
    """The p-value of independence from every position of a party's own sequence, and from those beyond its end."""
    sizes = _sizes(engine)
    draws: list[Tensor] = []
    for t, m in zip(sample.rounds, sample.devices, strict=True):
        size = sizes[int(m)]
        head = stream.normal(min(size, _POSITIONS), int(t), int(m) % len(sizes))
        tail = stream.normal(_TAIL, int(t), int(m) % len(sizes), first=size // 4)
        draws.append(torch.cat((tail, head), dim=1))
    length = min(d.shape[1] for d in draws)
    public = torch.stack([d[:, :length] for d in draws]).cpu().to(torch.float64).numpy()
    return correlation(sample.z[..., 0].ravel(), np.moveaxis(public, 2, 0).reshape(length, -1))


def _sizes(engine: Engine) -> Sequence[int]:
    """The length of each party's sequence of parameters, every one rounded up to blocks of four; the server's last."""
    return [sum(4 * -(-int(np.prod(shape)) // 4) for shape in shapes) for shapes in engine.parameter_shapes()]


@dataclass(frozen=True, kw_only=True)
class NoiseOfKind:
    """The noise of one kind of release: its size relative to the declared one with an interval, and all tests.

    The size is that of the standard normals which noise of the declared law becomes: of Gaussian noise its std.
    `values` were taken from all entries, `entries` in the widest message, of this many `rounds`.
    """

    kind: str
    declared: Law
    values: int
    rounds: int
    entries: int
    ratio: float
    low: float
    high: float
    tests: tuple[NoiseTest, ...]
    unsent: int

    @property
    def rejected(self) -> tuple[NoiseTest, ...]:
        return tuple(t for t in self.tests if t.p_adjusted <= ALPHA)

    @property
    def holds(self) -> bool:
        return not self.rejected and not self.unsent

    @property
    def sentence(self) -> str:
        size = f"{self.ratio:.4g} times its declared {self._measure} (interval {self.low:.4g} to {self.high:.4g})"
        if self.unsent:
            return f"{self.unsent} {self.kind} messages do not carry the value that their mechanism released"
        if self.rejected:
            worst = min(self.rejected, key=lambda t: t.p_adjusted)
            names = ", ".join(t.name for t in self.rejected)
            return f"the noise of {self.kind} fails: {names} (p = {worst.p_adjusted:.1e} after Holm); it has {size}"
        return f"the noise of {self.kind} has {size} and passes {len(self.tests)} tests over {self.extent}"

    @property
    def _measure(self) -> str:
        return "std" if self.declared.gaussian else f"size, on the scale of its {self.declared.name} law"

    @property
    def extent(self) -> str:
        """What the tests looked at."""
        entries = "the one entry" if self.entries == 1 else f"all {self.entries} entries"
        rounds = "1 round" if self.rounds == 1 else f"all {self.rounds} rounds"
        return f"{self.values} values, {entries} of each message in {rounds}"


@register("audit")
class NoiseAudit(Audit[System]):
    """Trains a few replicas over all rounds, takes the noise from their releases, and tests it against the ledger.

    Every entry of every message of every round counts:

    - its std is the declared one: of all values, of every message, part of the run, entry, device, record and label,
      and whatever the value that the noise is added to;
    - its law is the declared one, of the whole run and of each quarter;
    - it is uncorrelated with the value it is added to, between rounds at every lag up to the length of the run, between
      entries at every lag, and between trainings and devices;
    - no value returns, nor its opposite: in no other round, entry, device, training or kind of message;
    - a resumed run draws new noise, and none comes from a stream that devices can regenerate.

    Tests that fail, but not beyond any doubt, are repeated in other replicas: what fails there as well is no accident.
    Correlations and the law are tested on a random sample of rounds and entries where there are more than a million
    values. Labels that are noised once have tests of their own: the rates at which they change keep to the declared ε
    (and to the declared law), alike for all records, independently between records and trainings, and they are drawn
    once.

    Of a recorded training only the messages are known. They are compared with what can be predicted of them from the
    messages before, from other devices and from other entries: the error of any prediction is at least as large as the
    noise, so that smaller errors refute it. A signal that nothing predicts hides what its noise is.
    """

    name = "noise"
    summary = "tests that the noise that left has the declared size and law, is fresh, and shares no public stream"
    order = 20
    needs = frozenset({Offer.RELEASE_POINTS})

    def run(self, system: System, context: AuditContext) -> list[Finding]:
        """One finding for each kind of noised release, and one for noised labels; claims rest on the noise."""
        context.progress.stage(f"{system.key}: noise")
        labels = label_noise(system)
        kinds = [_finding(result) for result in self.measure(system, confidence=context.confidence)]
        return kinds if labels is None else [*kinds, labels.finding]

    def measure(self, system: System, *, confidence: float = 0.95) -> list[NoiseOfKind]:
        """The noise of each kind of noised release; the tests of all of them are corrected together.

        `confidence` is the interval's. A test fails at a family-wise error of 1 in 1000, twice with fresh noise, or of
        1 in 10⁹ at once: wrong noise is never a close call, and a false alarm would void a whole report.
        """
        declared, rounds = laws_of_noise(system.ledger), system.schedule.rounds
        if not declared:
            return []
        least, most = _REPLICAS
        replicas = max(least, min(most, _REPLICA_ROUNDS // rounds), -(-_messages(system) // rounds))
        run, tests = _tested(system, declared, range(replicas))

        def again() -> dict[tuple[str, str], float]:
            return _by_name(_tested(system, declared, range(replicas, 2 * replicas))[1])

        adjusted = confirmed(_by_name(tests), again)
        return [
            NoiseOfKind(
                kind=kind,
                declared=declared[kind],
                tests=tuple(
                    NoiseTest(name=name, question=question, p_value=p, p_adjusted=adjusted[kind, name])
                    for name, question, p in tests.get(kind, [])
                ),
                unsent=run.unsent.get(kind, 0),
                **_size(run.noise.get(kind), confidence),
            )
            for kind in declared
            if kind in run.noise or run.unsent.get(kind, 0)
        ]


def _messages(system: System) -> int:
    """How many messages there must be, so that there are values enough: a message may hold a single one."""
    mechanisms = system.engine.mechanisms(system.settings, system.schedule).values()
    return _VALUES if any(mechanism.scalar for mechanism in mechanisms) else _MESSAGES


def _tested(system: System, declared: Mapping[str, Law], replicas: range) -> tuple[NoiseRun, dict[str, Tests]]:
    """The noise of these replicas, and all tests of each kind."""
    rounds = system.schedule.rounds
    run = collect(system, declared, range(rounds), replicas)
    after_resume = range(rounds // 2, min(rounds, rounds // 2 + _RESUMED))
    resumed = collect(system, declared, after_resume, replicas, like=run)
    assert run.engine is not None
    copies = copied(run, list(declared))
    tests: dict[str, Tests] = {}
    for number, kind in enumerate(declared):
        if kind not in run.noise:
            continue
        noise = run.noise[kind]
        tests[kind] = [
            *examine(noise),
            ("copies", "does no value return", copies[kind]),
            ("resume", "is noise after a resume new", _reuse(run, resumed, kind, number)),
            ("public", "is it independent of streams that devices hold", public(system, run.engine, _heads(noise))),
        ]
    return run, tests


def _by_name(tests: Mapping[str, Tests]) -> dict[tuple[str, str], float]:
    """The p-values by kind and name of the test."""
    return {(kind, name): p for kind, of_kind in tests.items() for name, _, p in of_kind}


def _finding(result: NoiseOfKind) -> Finding:
    return Finding(
        audit=NoiseAudit.name,
        subject=result.kind,
        verdict=Verdict.CONSISTENT if result.holds else Verdict.VIOLATED,
        sentence=result.sentence,
        figure=result.ratio,
        measure="size relative to the declared one",
        interval=(result.low, result.high),
        p_value=min((t.p_adjusted for t in result.tests), default=None),
        evidence=result,
    )


def _size(noise: CollectedNoise | None, confidence: float) -> dict[str, Any]:
    """How many values there are, and their std in units of the declared one, with its interval."""
    if noise is None:
        return {"values": 0, "rounds": 0, "entries": 0, "ratio": 0.0, "low": 0.0, "high": 0.0}
    _, (low, high) = scale(noise.values, noise.total, confidence)
    ratio = float(np.sqrt(noise.total / noise.values))
    extent = {"values": noise.values, "rounds": noise.rounds, "entries": noise.widest}
    return {**extent, "ratio": ratio, "low": low, "high": high}


def _heads(noise: CollectedNoise) -> Sample:
    """The first entries of messages that were drawn at random over the whole run."""
    width = min(z.shape[1] for z in noise.heads.values())
    z = np.stack([z[:, :width] for z in noise.heads.values()])
    places = np.array([(place.round, place.device) for place in noise.heads], dtype=np.int64)
    return Sample(z, places[:, 0], places[:, 1])


def copied(run: NoiseRun, kinds: Sequence[str]) -> dict[str, float]:
    """For each kind, the p-value of "none of its values returns, nor its opposite".

    It is searched for in every other round, entry, device, replica and kind.
    """
    smallest = dict.fromkeys(kinds, 1.0)
    for search in (*run.across.values(), *run.along.values()):
        for owner, p in search.p_values().items():
            kind = kinds[owner if owner >= 0 else -1 - owner]
            smallest[kind] = min(smallest[kind], 2 * p)
    return {kind: min(1.0, p) for kind, p in smallest.items()}


def _reuse(run: NoiseRun, resumed: NoiseRun, kind: str, number: int) -> float:
    """The p-value of "nothing that was drawn before the middle is drawn again by a run that is resumed there"."""
    if kind not in resumed.noise:
        return 1.0
    noise, middle = run.noise[kind], resumed.noise[kind].places[0].round
    before = [k.ravel() for k, place in zip(noise.kept, noise.places, strict=True) if place.round < middle]
    again = [k.ravel() for k in resumed.noise[kind].kept]
    p_values = [like_pairs(np.stack(before).astype(np.float64), np.stack(again).astype(np.float64))] if before else []
    cell = run.cells.get(kind)
    if cell is not None and cell in resumed.across:
        p_values.append(run.across[cell].between([-1 - number], resumed.across[cell]))
    return smallest(p_values)


def examine(noise: CollectedNoise) -> Tests:
    """(name, question, p-value) of the tests that need nothing but the noise of one kind and what it was added to."""
    kept = np.stack(noise.kept).astype(np.float64)
    totals, counts = np.array(noise.totals), np.array(noise.counts)
    tests = [
        ("scale", "is its std the declared one", scale(noise.values, noise.total, 0.95)[0]),
        ("scale by round", "in every part of the run", _by_round(noise, totals, counts)),
        ("scale by signal", "whatever it is added to", _by_signal(noise, totals, counts)),
        ("law", "is its law the declared one", _law(noise)),
        ("tails", "does it reach as far out as it should", tails(noise.values, noise.beyond, TAILS)),
        ("signal", "is it independent of what it is added to", _signal(noise)),
        ("rounds", "is each round's independent of every other's", _rounds(noise, kept)),
        ("replicas", "is each training's independent of every other's", _pairs(kept, 1)),
    ]
    sources = sorted({(place.device, place.part) for place in noise.places})
    if len(sources) > 1:
        numbers = np.array([sources.index((place.device, place.part)) for place in noise.places])
        tests.append(("scale by device", "for every device", _grouped(numbers, totals, counts)))
        if noise.rounds < len(noise.places):
            p_value = _devices(noise, kept, numbers)
            tests.append(("devices", "is each device's independent of every other's", p_value))
    if noise.widest > 1:
        tests += [
            ("scale by entry", "in every entry", _by_entry(noise)),
            ("entries", "is each entry's independent of every other's", _entries(noise, kept)),
        ]
    if noise.by_record.counts.any():
        groups = (noise.by_record, noise.by_label)
        p_value = smallest([scale_in_groups(g.totals, g.counts) for g in groups])
        tests.append(("scale by record", "for every record and label", p_value))
    return tests


def _grouped(groups: Ints, totals: Floats, counts: Ints) -> float:
    """The p-value of "std 1 in every group of messages"."""
    return scale_in_groups(np.bincount(groups, totals).astype(np.float64), np.bincount(groups, counts).astype(np.int64))


def _by_round(noise: CollectedNoise, totals: Floats, counts: Ints) -> float:
    """Of every message by itself, of blocks of successive messages, and of every training."""
    messages = np.arange(len(totals))
    p_values = [
        scale_in_groups(totals, counts),
        _grouped(messages * _BLOCKS // len(messages), totals, counts),
        scale_in_groups(noise.by_replica.totals, noise.by_replica.counts),
    ]
    return smallest(p_values)


def _by_entry(noise: CollectedNoise) -> float:
    """Of every entry by itself, and of blocks of them."""
    totals, counts = noise.by_entry.totals, noise.by_entry.counts
    blocks = np.arange(len(totals)) * _BLOCKS // len(totals)
    return smallest([scale_in_groups(totals, counts), _grouped(blocks, totals, counts)])


def _by_signal(noise: CollectedNoise, totals: Floats, counts: Ints) -> float:
    """By sign and size of the value before the noise, and by the share of each class in the batch.

    Exact for values that are given; those of later rounds depend on earlier noise, which changes little.
    """
    p_values = [scale_in_groups(noise.by_signal.totals, noise.by_signal.counts)]
    signs = noise.by_signal.totals.reshape(2, -1), noise.by_signal.counts.reshape(2, -1)
    p_values.append(scale_in_groups(signs[0].sum(1), signs[1].sum(1)))
    shares = np.stack(noise.shares)
    above = shares > np.median(shares, axis=0)
    p_values += [_grouped(side.astype(np.int64), totals, counts) for side in above.T if side.any()]
    return smallest(p_values)


def _signal(noise: CollectedNoise) -> float:
    """Of the correlation with the value before the noise, with its sign, and with the batch's classes."""
    by_value, squares, by_sign, number = noise.with_signal
    sums = np.array(noise.sums) / np.sqrt(noise.counts)
    shares = np.stack(noise.shares).T
    p_values = [
        correlation(np.array([by_value / max(squares, 1e-300) ** 0.5]), np.ones((1, 1))),
        correlation(np.array([by_sign / max(number, 1.0) ** 0.5]), np.ones((1, 1))),
        correlation(sums, shares - shares.mean(1, keepdims=True)),
    ]
    return smallest(p_values)


def _law(noise: CollectedNoise) -> float:
    """Of the law of all values, and of those in each quarter of the run."""
    quarters = np.array_split(np.arange(len(noise.for_law)), 4)
    samples = [np.concatenate([noise.for_law[i] for i in part]) for part in quarters if len(part)]
    p_values = [anderson_darling(part) for part in (np.concatenate(samples), *samples) if len(part) >= 64]
    return smallest(p_values)


def _rounds(noise: CollectedNoise, kept: Floats) -> float:
    """Of all lags between messages, and of pairs of messages that were drawn at random over the whole run."""
    messages, size = len(kept), kept[0].size
    most = min(messages, _PAIRED, max(2, int((_PRODUCTS / size) ** 0.5)))
    some = np.sort(host_generator(0, "search").choice(messages, size=most, replace=False))
    positions = _positions(noise)
    series = np.zeros((int(positions.max()) + 1, *kept.shape[1:]))
    series[positions] = kept
    present = np.zeros(len(series), dtype=np.bool_)
    present[positions] = True
    return smallest([distinct_pairs(kept[some].reshape(len(some), -1)), lags(series, present)])


def _positions(noise: CollectedNoise) -> Ints:
    """A place in one long series for every message: its round, or in rounds with several messages their own number."""
    sources = sorted({(place.device, place.part) for place in noise.places})
    rounds = np.array([place.round for place in noise.places])
    rounds = rounds - rounds.min()
    if len(np.unique(rounds)) == len(rounds):
        return np.asarray(rounds)
    own = np.array([sources.index((place.device, place.part)) for place in noise.places])
    return np.asarray(rounds * len(sources) + own)


def _devices(noise: CollectedNoise, kept: Floats, sources: Ints) -> float:
    """Of every two devices, over all rounds that both took part in."""
    rounds = np.array([place.round for place in noise.places])
    _, rows = np.unique(rounds, return_inverse=True)
    grid = np.zeros((int(sources.max()) + 1, int(rows.max()) + 1, kept[0].size))
    grid[sources, rows] = kept.reshape(len(kept), -1)
    return distinct_pairs(grid.reshape(len(grid), -1))


def _entries(noise: CollectedNoise, kept: Floats) -> float:
    """Of every two of the sampled entries, and of all lags between entries of a message."""
    pairs = _pairs(kept, 2)
    if noise.power is None or noise.power_pairs is None:
        return pairs
    sums = np.fft.irfft(noise.power, n=2 * noise.width)[1 : noise.width]
    return smallest([pairs, smallest(product_sums(sums, noise.power_pairs[1:]))])


def _pairs(kept: Floats, axis: int) -> float:
    rows = np.moveaxis(kept, axis, 0)
    return distinct_pairs(rows.reshape(len(rows), -1))
