"""The noise audit: is the noise of every release there, of the declared size and law, fresh, and secret?

Of systems that can be trained, the noise itself is taken from the releases and tested. Of recorded trainings only the
messages are known: they are tested for being large enough to hold the noise that their ledger declares.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammainc
from torch import Tensor

from vflpriv.audits.scoring.worlds import noise_stds
from vflpriv.audits.statistics.noise_tests import anderson_darling, correlation, distinct_pairs, like_pairs, scale
from vflpriv.audits.statistics.significance import holm_adjusted
from vflpriv.audits.worlds.probes import Probe, Released
from vflpriv.audits.worlds.store import one_thread
from vflpriv.common.numerics import Floats
from vflpriv.common.random import Stream
from vflpriv.common.registry import register
from vflpriv.core.audit import Audit, AuditContext, Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.ledger import Ledger
from vflpriv.core.releases import Gaussian, Laplace, Noise
from vflpriv.core.systems import System
from vflpriv.core.wire import Message
from vflpriv.training.mechanisms.base import NoiseSource

__all__ = [
    "PUBLIC",
    "NoiseAudit",
    "NoiseOfKind",
    "NoiseTest",
    "RecordedNoise",
    "Sample",
    "examine",
    "noise_p_value",
    "public",
    "recorded_noises",
]


ALPHA = 1e-3
"""The family-wise error at which the noise of a system fails its tests."""
PUBLIC = ("directions", "init")
"""Streams whose seeds devices hold."""
_OWN = "server-update"
_ENTRIES = 64
_VALUES = 4096
_TAIL = 64
_POSITIONS = 512
_COMPARED = 48


@dataclass(frozen=True, eq=False)
class Sample:
    """Noise of one kind in units of its declared std, (messages, R, entries), with each message's round and device."""

    z: NDArray[np.float64]
    rounds: NDArray[np.int64]
    devices: NDArray[np.int64]


def public(system: System, engine: Any, sample: Sample) -> float:
    """The p-value of "the noise is independent of all streams that devices can regenerate".

    There are two ways to draw from a public stream by mistake: the noise source is given that stream, or the noise is
    taken from what follows (or lies within) a party's direction.
    """
    compared = slice(None, None, -(-len(sample.z) // _COMPARED))
    sample = Sample(sample.z[compared], sample.rounds[compared], sample.devices[compared])
    p_values = []
    for name in PUBLIC:
        stream = Stream.of(system.seed, name, engine.replicas, system.torch_device)
        p_values += [_addressed(NoiseSource(stream, secure=False), sample), _behind(stream, engine, sample)]
    return min(1.0, len(p_values) * min(p_values))


def _addressed(source: NoiseSource, sample: Sample) -> float:
    """The p-value of independence from what the engine's noise source would draw from a stream."""
    width, draws = sample.z.shape[2], []
    for t, m in zip(sample.rounds.tolist(), sample.devices.tolist(), strict=True):
        scalar = source.scalar(t)[:, None].expand(-1, width)
        draws.append(torch.stack((scalar, source.tensor((width,), t, m))))
    public = torch.stack(draws, dim=1).to(torch.float64).cpu().numpy()
    return correlation(sample.z.ravel(), public.reshape(len(public), -1))


def _behind(stream: Stream, engine: Any, sample: Sample) -> float:
    """The p-value of independence from every position of a party's own sequence, and from those beyond its end."""
    sizes = _sizes(engine)
    draws: list[Tensor] = []
    for t, m in zip(sample.rounds, sample.devices, strict=True):
        size = sizes[int(m)]
        head = stream.normal(min(size, _POSITIONS), int(t), int(m) % len(sizes))
        tail = stream.normal(_TAIL, int(t), int(m) % len(sizes), first=size // 4)
        draws.append(torch.cat((tail, head), dim=1))
    length = min(d.shape[1] for d in draws)
    public = torch.stack([d[:, :length] for d in draws]).to(torch.float64).cpu().numpy()
    return correlation(sample.z[..., 0].ravel(), np.moveaxis(public, 2, 0).reshape(length, -1))


def _sizes(engine: Any) -> Sequence[int]:
    """The length of each party's sequence of parameters, every one rounded up to blocks of four; the server's last."""
    return [sum(4 * -(-int(np.prod(shape)) // 4) for shape in shapes) for shapes in engine.parameter_shapes()]


@dataclass(frozen=True, kw_only=True)
class NoiseTest:
    """One question about the noise: its p-value, and Holm's over all such questions about the system."""

    name: str
    question: str
    p_value: float
    p_adjusted: float


@dataclass(frozen=True, kw_only=True)
class NoiseOfKind:
    """The noise of one kind of release: its std relative to the declared one with an interval, and all tests."""

    kind: str
    declared: float
    values: int
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
        size = f"{self.ratio:.4g} times its declared std (interval {self.low:.4g} to {self.high:.4g})"
        if self.unsent:
            return f"{self.unsent} {self.kind} messages do not carry the value that their mechanism released"
        if self.rejected:
            worst = min(self.rejected, key=lambda t: t.p_adjusted)
            names = ", ".join(t.name for t in self.rejected)
            return f"the noise of {self.kind} fails: {names} (p = {worst.p_adjusted:.1e} after Holm); it has {size}"
        return f"the noise of {self.kind} has {size} and passes {len(self.tests)} tests over {self.values} values"


@register("audit")
class NoiseAudit(Audit):
    """Trains a few replicas, takes the noise from their releases, and tests it against what the ledger declares."""

    name = "noise"
    summary = "tests that the noise that left has the declared size and law, is fresh, and shares no public stream"
    order = 20

    def __init__(self, *, most_rounds: int = 128) -> None:
        self.most_rounds = most_rounds

    def run(self, system: System, context: AuditContext) -> list[Finding]:
        """One finding for each kind of noised release; every claim rests on the noise."""
        if not context.options.get("noise", True):
            return []
        context.progress.stage(f"{system.key}: noise")
        return [_finding(result) for result in self.measure(system, confidence=context.confidence)]

    def measure(self, system: System, *, confidence: float = 0.95) -> list[NoiseOfKind]:
        """The noise of each kind of noised release; the tests of all of them are corrected together.

        `confidence` is the interval's. A test fails at a family-wise error of 1 in 1000: wrong noise is never a close
        call, and a false alarm would void a whole report.
        """
        declared = noise_stds(system.ledger)
        if not declared:
            return []
        rounds = min(system.schedule.rounds, self.most_rounds)
        # Enough to tell a Laplace law by, even of one number a round.
        replicas = max(16, -(-_VALUES // rounds))
        engine, samples, unsent = _collect(system, declared, range(rounds), replicas)
        _, resumed, _ = _collect(system, declared, range(rounds // 2, rounds), replicas)
        p_values: dict[str, list[tuple[str, str, float]]] = {}
        for kind, sample in samples.items():
            before = sample.z[sample.rounds < rounds // 2]
            p_values[kind] = [
                *examine(sample.z, sample.rounds, sample.devices),
                ("resume", "is noise after a resume new", _reuse(before, resumed.get(kind))),
                ("public", "is it independent of streams that devices hold", public(system, engine, sample)),
            ]
        adjusted = iter(holm_adjusted([p for tests in p_values.values() for _, _, p in tests]))
        return [
            NoiseOfKind(
                kind=kind,
                declared=declared[kind],
                tests=tuple(
                    NoiseTest(name=name, question=question, p_value=p, p_adjusted=next(adjusted))
                    for name, question, p in p_values.get(kind, [])
                ),
                unsent=unsent[kind],
                **_size(samples.get(kind), confidence),
            )
            for kind in declared
            if kind in samples or unsent[kind]
        ]


def _finding(result: NoiseOfKind) -> Finding:
    return Finding(
        audit=NoiseAudit.name,
        subject=result.kind,
        verdict=Verdict.CONSISTENT if result.holds else Verdict.VIOLATED,
        sentence=result.sentence,
        figure=result.ratio,
        measure="std relative to the declared one",
        interval=(result.low, result.high),
        p_value=min((t.p_adjusted for t in result.tests), default=None),
        evidence=result,
    )


def _collect(
    system: System, declared: dict[str, float], rounds: range, replicas: int
) -> tuple[Any, dict[str, Sample], dict[str, int]]:
    """The noise of these rounds, which a new engine runs as if it had been resumed at the first of them."""
    probe, counter = Probe(), _Counter(frozenset(declared))
    engine = system.train(range(replicas), probe=probe)
    noise: dict[str, list[tuple[int, int, Tensor]]] = {}
    with one_thread():
        for round_ in rounds:
            values = probe.round(engine, round_, counter)
            counter.carried({id(v.message): v.message.kind for v in values if v.message is not None})
            for value in values:
                kind, device = _where(value)
                if value.released[0].numel():  # the rows of an empty Poisson batch hold no noise
                    noise.setdefault(kind, []).append((round_, device, value.released - value.noiseless))
    samples = {}
    for kind in declared:
        drawn = noise.get(kind, [])
        if drawn:
            width = min(_ENTRIES, *(int(n[0].numel()) for _, _, n in drawn))
            z = torch.stack([n.flatten(1)[:, :width] if n.dim() > 1 else n[:, None] for _, _, n in drawn])
            places = np.array([[t, m] for t, m, _ in drawn], dtype=np.int64)
            samples[kind] = Sample(z.to(torch.float64).cpu().numpy() / declared[kind], places[:, 0], places[:, 1])
    return engine, samples, {kind: counter.bare.get(kind, 0) for kind in declared}


def _size(sample: Sample | None, confidence: float) -> dict[str, Any]:
    """How many values there are, and their std in units of the declared one, with its interval."""
    if sample is None:
        return {"values": 0, "ratio": 0.0, "low": 0.0, "high": 0.0}
    _, (low, high) = scale(sample.z, confidence)
    return {"values": sample.z.size, "ratio": float(np.sqrt(np.square(sample.z).mean())), "low": low, "high": high}


def _where(value: Released) -> tuple[str, int]:
    """The kind of message that carried a value, and the device at its far end."""
    return (_OWN, -1) if value.message is None else (value.message.kind, value.message.device.index)


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


def examine(z: Floats, rounds: NDArray[np.int64], devices: NDArray[np.int64]) -> list[tuple[str, str, float]]:
    """(name, question, p-value) of the tests that need nothing but the noise, (messages, R, entries)."""
    messages, replicas, entries = z.shape
    by_device = [z[rounds == t].reshape(int((rounds == t).sum()), -1) for t in np.unique(rounds)]
    together = [rows for rows in by_device if len(rows) > 1]
    same = min(1.0, len(together) * min(map(distinct_pairs, together))) if together else 1.0
    tests = [
        ("scale", "is its std the declared one", scale(z, 0.95)[0]),
        ("law", "is it Gaussian", anderson_darling(z)),
        ("rounds", "is each round's independent of every other's", distinct_pairs(z.reshape(messages, -1))),
        ("replicas", "is each training's independent of every other's", distinct_pairs(_by(z, 1, replicas))),
    ]
    if together:
        tests.append(("devices", "is each device's independent of every other's", same))
    if entries > 1:
        tests.append(("entries", "is each entry's independent of every other's", distinct_pairs(_by(z, 2, entries))))
    return tests


def _by(z: Floats, axis: int, count: int) -> Floats:
    return np.moveaxis(z, axis, 0).reshape(count, -1)


def _reuse(before: Floats, resumed: Sample | None) -> float:
    if resumed is None or not len(before):
        return 1.0
    width = min(before.shape[2], resumed.z.shape[2])
    return like_pairs(before[..., :width].reshape(len(before), -1), resumed.z[..., :width].reshape(len(resumed.z), -1))


@dataclass(frozen=True, kw_only=True)
class RecordedNoise:
    """Whether recorded messages of one kind can hold their noise; `p_adjusted` is Holm's over all kinds."""

    kind: str
    noise: Noise
    entries: int
    p_adjusted: float
    holds: bool

    @property
    def sentence(self) -> str:
        size = "they are large enough to hold it" if self.holds else "they are too small to hold it"
        declared = f"{self.noise} is said to be on {self.kind}, {self.entries} recorded entries"
        return f"{declared}: {size} (p {'=' if self.p_adjusted >= 1e-300 else '<'} {max(self.p_adjusted, 1e-300):.2g})"

    @property
    def finding(self) -> Finding:
        """Every claim of the recorded system rests on its noise; without claims it counts by itself.

        Values that are large enough may be so without noise: that measures nothing.
        """
        return Finding(
            audit=NoiseAudit.name,
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
    """Tests of the declared noise of every kind that was recorded, at a family-wise error of 1 - confidence."""
    declared = {r.kind: r.noise for r in ledger.releases if not r.once}
    values = {kind: _values(messages, kind, kind in shared) for kind in declared}
    raw = {kind: noise_p_value(noise, values[kind]) for kind, noise in declared.items()}
    tested = {kind: p for kind, p in raw.items() if p is not None}
    return [
        RecordedNoise(
            kind=kind,
            noise=declared[kind],
            entries=sum(v.size for v in values[kind]),
            p_adjusted=p,
            holds=p > 1 - confidence,
        )
        for kind, p in zip(tested, holm_adjusted(list(tested.values())), strict=True)
    ]


def _values(messages: Sequence[Message], kind: str, shared: bool) -> list[Floats]:
    """The payloads of a kind; of a shared one, what the first device of a round was sent."""
    first: dict[int, int] = {}
    chosen: list[Floats] = []
    for m in messages:
        if m.kind == kind and (not shared or first.setdefault(m.round, m.device.index) == m.device.index):
            chosen += [t.double().numpy() for t in m.tensors.values()]
    return chosen


def noise_p_value(noise: Noise, values: Sequence[Floats]) -> float | None:
    """The p-value of "every entry carries independent noise of this size, or more"; None for other noises.

    Around any signal, known or not, |signal + noise| is stochastically at least |noise|, as the noise is symmetric and
    has one peak. Conditional on all earlier entries that stays so, whatever the signal learnt from them. So Σx²/σ² is
    at least chi-squared with n degrees of freedom (Gaussian), and Σ|x|/b at least Gamma(n) (Laplace).

    >>> noise_p_value(Gaussian(1.0), [np.zeros(10)])
    0.0
    """
    if isinstance(noise, Gaussian):
        total, shape = sum(float(np.square(v / noise.std).sum()) for v in values) / 2, 0.5
    elif isinstance(noise, Laplace):
        total, shape = sum(float(np.abs(v / noise.scale).sum()) for v in values), 1.0
    else:
        return None
    count = sum(v.size for v in values)
    return float(gammainc(shape * count, total)) if count else None
