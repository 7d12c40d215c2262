"""Noise audit: is the noise that left really there, of the right size and law, fresh, and nobody's to subtract?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits._holm import holm_adjusted
from vflpriv.audits._noise_tests import anderson_darling, distinct_pairs, like_pairs, scale
from vflpriv.audits._public import Sample, public
from vflpriv.audits._ratios import noise_stds
from vflpriv.audits._taps import Leaving, Tap
from vflpriv.audits._trials import one_thread
from vflpriv.registry import register
from vflpriv.systems import System
from vflpriv.wire import Message

__all__ = ["NoiseAudit", "NoiseFinding", "NoiseTest", "examine"]

Floats = NDArray[np.float64]
ALPHA = 1e-3
_OWN = "server-update"
_ENTRIES = 64
_VALUES = 4096


@dataclass(frozen=True, kw_only=True)
class NoiseTest:
    """One question about the noise: its p-value, and Holm's over all questions of the report's system."""

    name: str
    question: str
    p_value: float
    p_adjusted: float


@dataclass(frozen=True, kw_only=True)
class NoiseFinding:
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
            return f"{self.unsent} {self.kind} messages do not carry what their mechanism let out"
        if self.rejected:
            worst = min(self.rejected, key=lambda t: t.p_adjusted)
            names = ", ".join(t.name for t in self.rejected)
            return f"the noise of {self.kind} fails: {names} (p = {worst.p_adjusted:.1e} after Holm); it has {size}"
        return f"the noise of {self.kind} has {size} and passes {len(self.tests)} tests over {self.values} values"


@register("audit")
class NoiseAudit:
    """Trains a few replicas, takes the noise from what left, and tests it against what the ledger declares."""

    name = "noise"
    summary = "tests that the noise that left has the declared size and law, is fresh, and shares no public stream"

    def __init__(self, *, most_rounds: int = 128) -> None:
        self.most_rounds = most_rounds

    def run(self, system: System, *, confidence: float = 0.95) -> list[NoiseFinding]:
        """One finding for each kind of noised release; the tests of all of them are corrected together.

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
        found: dict[str, list[tuple[str, str, float]]] = {}
        for kind, sample in samples.items():
            before = sample.z[sample.rounds < rounds // 2]
            found[kind] = [
                *examine(sample.z, sample.rounds, sample.devices),
                ("resume", "is noise after a resume new", _reuse(before, resumed.get(kind))),
                ("public", "is it independent of streams that devices hold", public(system, engine, sample)),
            ]
        adjusted = iter(holm_adjusted([p for tests in found.values() for _, _, p in tests]))
        return [
            NoiseFinding(
                kind=kind,
                declared=declared[kind],
                tests=tuple(
                    NoiseTest(name=name, question=question, p_value=p, p_adjusted=next(adjusted))
                    for name, question, p in found.get(kind, [])
                ),
                unsent=unsent[kind],
                **_size(samples.get(kind), confidence),
            )
            for kind in declared
            if kind in samples or unsent[kind]
        ]


def _collect(
    system: System, declared: dict[str, float], rounds: range, replicas: int
) -> tuple[Any, dict[str, Sample], dict[str, int]]:
    """The noise of these rounds, which a new engine runs as if it had been resumed at the first of them."""
    engine = system.train(range(replicas))
    tap, counter = Tap(engine), _Counter(frozenset(declared))
    left: dict[str, list[tuple[int, int, Tensor]]] = {}
    with one_thread():
        for round_ in rounds:
            leaving = tap.round(round_, counter)
            counter.carried({id(one.message): one.message.kind for one in leaving if one.message is not None})
            for one in leaving:
                kind, device = _where(one)
                left.setdefault(kind, []).append((round_, device, one.released - one.noiseless))
    samples = {}
    for kind in declared:
        carried = left.get(kind, [])
        if carried:
            width = min(_ENTRIES, *(int(r[0].numel()) for _, _, r in carried))
            z = torch.stack([r.flatten(1)[:, :width] if r.dim() > 1 else r[:, None] for _, _, r in carried])
            places = np.array([[t, m] for t, m, _ in carried], dtype=np.int64)
            samples[kind] = Sample(z.to(torch.float64).cpu().numpy() / declared[kind], places[:, 0], places[:, 1])
    return engine, samples, {kind: counter.bare.get(kind, 0) for kind in declared}


def _size(sample: Sample | None, confidence: float) -> dict[str, Any]:
    """How many values there are, and their std in units of the declared one, with its interval."""
    if sample is None:
        return {"values": 0, "ratio": 0.0, "low": 0.0, "high": 0.0}
    _, (low, high) = scale(sample.z, confidence)
    return {"values": sample.z.size, "ratio": float(np.sqrt(np.square(sample.z).mean())), "low": low, "high": high}


def _where(one: Leaving) -> tuple[str, int]:
    return (_OWN, -1) if one.message is None else (one.message.kind, one.message.device.index)


class _Counter:
    """Counts the messages of noised kinds that carry nothing a mechanism let out."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self._kinds = kinds
        self.bare: dict[str, int] = {}

    def record(self, message: Message) -> None:
        if message.kind in self._kinds:
            self.bare[message.kind] = self.bare.get(message.kind, 0) + 1

    def carried(self, messages: Mapping[int, str]) -> None:
        """Take off those that do, by their identity."""
        for kind in messages.values():
            self.bare[kind] = self.bare.get(kind, 0) - 1


def examine(z: Floats, rounds: NDArray[np.int64], devices: NDArray[np.int64]) -> list[tuple[str, str, float]]:
    """(name, question, p-value) of the tests that need nothing but the noise, (messages, R, entries)."""
    messages, replicas, entries = z.shape
    by_device = [z[rounds == t].reshape(int((rounds == t).sum()), -1) for t in np.unique(rounds)]
    together = [rows for rows in by_device if len(rows) > 1]
    same = min(1.0, len(together) * min(map(distinct_pairs, together))) if together else 1.0
    found = [
        ("scale", "is its std the declared one", scale(z, 0.95)[0]),
        ("law", "is it Gaussian", anderson_darling(z)),
        ("rounds", "is each round's independent of every other's", distinct_pairs(z.reshape(messages, -1))),
        ("replicas", "is each training's independent of every other's", distinct_pairs(_by(z, 1, replicas))),
    ]
    if together:
        found.append(("devices", "is each device's independent of every other's", same))
    if entries > 1:
        found.append(("entries", "is each entry's independent of every other's", distinct_pairs(_by(z, 2, entries))))
    return found


def _by(z: Floats, axis: int, count: int) -> Floats:
    return np.moveaxis(z, axis, 0).reshape(count, -1)


def _reuse(before: Floats, resumed: Sample | None) -> float:
    if resumed is None or not len(before):
        return 1.0
    width = min(before.shape[2], resumed.z.shape[2])
    return like_pairs(before[..., :width].reshape(len(before), -1), resumed.z[..., :width].reshape(len(resumed.z), -1))
