"""Two worlds: half the replicas train with the canary in one world, half in the other; can the view tell which?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.scoring.worlds import SCORERS, Request, discriminant, strength_key
from vflpriv.audits.statistics.bounds import secret_threshold
from vflpriv.audits.statistics.sequential import look_times
from vflpriv.audits.worlds.canaries import REACH, most_exposed, plan
from vflpriv.audits.worlds.store import TrialStore, side_by_side
from vflpriv.audits.worlds.trials import Trials
from vflpriv.common.arrays import Floats
from vflpriv.common.registry import register
from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.ledger import Ledger, Reading
from vflpriv.core.releases import Gaussian
from vflpriv.core.schedules import Batching
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import VflprivError

__all__ = ["Method", "TwoWorldAudit", "canary_unit", "method_of", "threshold_of"]


@dataclass(frozen=True)
class Method:
    """How a trial is scored: by a name of `SCORERS`, or not at all for the reason given."""

    name: str = ""
    refusal: str | None = None


def canary_unit(ledger: Ledger, unit: Unit, kind: CanaryKind) -> Unit:
    """What a canary of this kind changes to test a claim about `unit`.

    A record's contribution sits at the clip as a whole. A record of the data set has its label replaced where noised
    releases speak of labels, its features where they do not.
    """
    if unit is not Unit.RECORD or kind is CanaryKind.WORST_CASE:
        return unit
    noised = [r for r in ledger.releases if isinstance(r.noise, Gaussian)]
    return Unit.LABEL if any(Unit.LABEL in r.sensitivity for r in noised) else Unit.FEATURES


def method_of(system: System, adversary: Adversary, unit: Unit, kind: CanaryKind) -> Method:
    """The likelihood ratio where the ledger allows it, a learned score elsewhere."""
    ledger = system.ledger
    exposure = ledger.exposure(adversary, unit, reading=Reading.PAPER)
    gaussian = any(isinstance(e.noise, Gaussian) for e in exposure.events)
    worst = kind is CanaryKind.WORST_CASE
    if exposure.not_applicable is not None:
        return Method(refusal=f"two-world has nothing to tell: {exposure.not_applicable}")
    if not exposure.events and not exposure.unprotected:
        return Method(refusal=f"nothing that {adversary} sees depends on the {unit} unit")
    if not adversary.knows_batches:
        return _in_secret(system, adversary, exposure.unprotected, worst, gaussian)
    if worst and not gaussian:
        return Method(refusal=f"two-world needs a noised release before {adversary}'s eyes, and there is none")
    if unit.per_record and exposure.events and (exposure.counts is None or not exposure.counts.any()):
        return Method(refusal="two-world needs a record that takes part")
    if unit is Unit.ADD_REMOVE:
        return Method(refusal="two-world has no canary that is present in one world and absent in the other")
    if worst:
        return Method("likelihood ratio")
    if exposure.unprotected or any(not isinstance(e.noise, Gaussian) for e in exposure.events):
        return Method("learned")
    leaks = any(r.leak is not None and unit in r.leak.sensitivity for r in ledger.releases)
    label = canary_unit(ledger, unit, kind) is Unit.LABEL
    return Method("likelihood ratio" if label and not leaks else "twins")


def _in_secret(
    system: System, adversary: Adversary, unprotected: tuple[str, ...], worst: bool, gaussian: bool
) -> Method:
    """Views that do not know the batches: the trained model, or releases of Poisson batches."""
    if adversary.kind == "model" and unprotected and not worst and system.engine.capabilities.server_model:
        return Method("shadow models")
    mechanisms = system.engine.mechanisms(system.settings, system.schedule).values()
    hidden = system.schedule.batching is Batching.POISSON and any(m.additive and m.scalar for m in mechanisms)
    if adversary.kind == "outsider" and worst and gaussian and hidden:
        return Method("secret batches")
    return Method(refusal=f"two-world needs a view that knows the batches, and {adversary} does not")


def threshold_of(system: System, canary: Canary, method: str, *, trials: int, confidence: float) -> float:
    """Where world 0 begins: at zero, or far out where batches are secret."""
    if method != "secret batches":
        return 0.0
    (release,) = (r for r in system.ledger.releases if isinstance(r.noise, Gaussian) and r.additive)
    assert isinstance(release.noise, Gaussian)
    assert canary.rate is not None
    return secret_threshold(
        ratio=release.sensitivity[Unit.RECORD] / release.noise.std,
        rate=canary.rate,
        rounds=int(release.rounds.sum()),
        trials=trials,
        confidence=confidence,
        seed=system.seed,
    )


# Two worlds: half the replicas train with the canary in one world, half in the other; can the view tell which?

_MEMORY = 1 << 30
_MOST_REPLICAS = 256
_LEARNING = 256
Shard = Mapping[str, Tensor]
Stop = Callable[[Mapping[Adversary, Trials]], bool]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Plan:
    """Trainings with one canary that one method scores: `eyes` are the views as they were asked for, and in full."""

    system: System
    canary: Canary
    method: str
    reach: float
    eyes: Mapping[Adversary, Adversary]
    threshold: float

    @property
    def key(self) -> str:
        """What its scores are kept under."""
        canary, views = self.canary, "+".join(map(str, self.eyes.values()))
        what = f"{canary.kind}/{canary.unit}/{canary.record}/{canary.devices}/{canary.rate}"
        return f"{self.system.fingerprint()}/{self.method}/{self.reach:g}/{what}/{views}/strength"

    def trials(self, shards: Sequence[Shard], learned_on: Sequence[Shard], looks: tuple[int, ...]) -> dict[str, Trials]:
        """The trials of these shards by view, scored by what was learned on others."""
        found = {}
        for actual in dict.fromkeys(self.eyes.values()):
            scores, key = _joined(shards, str(actual)), strength_key(str(actual))
            if learned_on:
                features = _joined(learned_on, str(actual))
                weights, offset = discriminant(features[0::2], features[1::2])
                scores = np.asarray(scores @ weights + offset, dtype=np.float64)
            found[str(actual)] = Trials(
                adversary=actual,
                canary=self.canary,
                scores=(scores[0::2], scores[1::2]),
                strengths=_joined(shards, key) if key in shards[0] else np.zeros(0),
                looks=looks,
                method=self.method,
                threshold=self.threshold,
            )
        return found


def _joined(shards: Sequence[Shard], key: str) -> Floats:
    joined: Floats = torch.cat([shard[key] for shard in shards]).to(torch.float64).numpy()
    return joined


@register("audit")
class TwoWorldAudit:
    """Trains the system many times with one unit in either world, and scores each run through each view."""

    name = "two-world"
    summary = "trains in two neighbouring worlds and measures how well a view tells them apart"

    def __init__(self, *, store: TrialStore | None = None) -> None:
        self.store = store or TrialStore()

    @staticmethod
    def refusal(
        system: System,
        adversary: Adversary,
        *,
        unit: Unit = Unit.RECORD,
        kind: CanaryKind = CanaryKind.WORST_CASE,
    ) -> str | None:
        """Why this system cannot be audited through this view for this unit, or None."""
        return method_of(system, adversary, unit, kind).refusal

    @staticmethod
    def trainings(
        system: System, adversaries: Sequence[Adversary], kind: CanaryKind, *, trials: int, unit: Unit
    ) -> int:
        """How many replicas `run` trains in all, both worlds and those that a score is learned on."""
        names = dict.fromkeys(method_of(system, a, unit, kind).name for a in adversaries)
        return sum(2 * (trials + _learning(name, trials)) for name in names)

    def run(
        self,
        system: System,
        adversaries: Sequence[Adversary],
        kind: CanaryKind,
        *,
        trials: int,
        unit: Unit = Unit.RECORD,
        confidence: float = 0.95,
        reach: float = REACH,
        advance: Callable[[int], None] | None = None,
        stop: Stop | None = None,
    ) -> Mapping[Adversary, Trials]:
        """`trials` trainings in each world with a canary of this unit, scored through several views at once.

        Views that are scored by the same method share their trainings. `advance` is told the replica-rounds done.
        `stop` is asked at each look whether the trials so far of these views are enough; with it, bounds and p-values
        are those of a test that may be stopped at any look.
        """
        methods = {a: method_of(system, a, unit, kind) for a in adversaries}
        for adversary, method in methods.items():
            if method.refusal is not None:
                raise VflprivError(f"{adversary}: {method.refusal}")
        found: dict[Adversary, Trials] = {}
        for name in dict.fromkeys(m.name for m in methods.values()):
            same = [a for a in adversaries if methods[a].name == name]
            one = self._plan(system, same, kind, unit, name, trials, confidence, reach)
            found |= self._together(one, trials, advance, stop)
        return {a: found[a] for a in adversaries}

    def _plan(
        self,
        system: System,
        adversaries: Sequence[Adversary],
        kind: CanaryKind,
        unit: Unit,
        method: str,
        trials: int,
        confidence: float,
        reach: float,
    ) -> _Plan:
        ledger = system.ledger
        seen = [ledger.exposure(a, unit, reading=Reading.PAPER) for a in adversaries]
        what = canary_unit(ledger, unit, kind)
        record = most_exposed(seen, system.schedule) if what.per_record else 0
        rate = system.schedule.rate if method == "secret batches" else None
        canary = plan(system, kind, record, self.store, unit=what, rate=rate, reach=reach)
        eyes = {asked: exposure.adversary for asked, exposure in zip(adversaries, seen, strict=True)}
        threshold = threshold_of(system, canary, method, trials=trials, confidence=confidence)
        return _Plan(system=system, canary=canary, method=method, reach=reach, eyes=eyes, threshold=threshold)

    def _together(
        self, one: _Plan, trials: int, advance: Callable[[int], None] | None, stop: Stop | None
    ) -> dict[Adversary, Trials]:
        def train(done: int, until: int) -> list[Shard]:
            ranges = _shards(one.system, done, until)
            return list(side_by_side(lambda r: self._shard(one, r, advance), ranges, one.system.torch_device))

        # A score is learned on trials of its own, with numbers beyond those that are tested.
        learned_on = train(trials, trials + _learning(one.method, trials))
        result: dict[Adversary, Trials] = {}
        shards: list[Shard] = []
        times, done = (look_times(trials) if stop is not None else (trials,)), 0
        for place, until in enumerate(times):
            shards += train(done, until)
            looks, done = times[: place + 1] if stop is not None else (), until
            found = one.trials(shards, learned_on, looks)
            result = {asked: found[str(actual)] for asked, actual in one.eyes.items()}
            if stop is not None and stop(result):
                break
        if advance is not None and done < trials:
            advance(2 * (trials - done) * one.system.schedule.rounds)
        return result

    def _shard(self, one: _Plan, replicas: range, advance: Callable[[int], None] | None) -> Shard:
        key, system = f"{one.key}/{replicas}", one.system
        stored = self.store.load(key)
        if stored is not None:
            if advance is not None:
                advance(system.schedule.rounds * len(replicas))
            return stored
        step = None if advance is None else lambda done: advance(done * len(replicas))
        eyes = list(dict.fromkeys(one.eyes.values()))
        request = Request(
            system=system, ledger=system.ledger, canary=one.canary, adversaries=eyes, replicas=replicas, step=step
        )
        shard = {name: score.to(torch.float32).cpu() for name, score in SCORERS[one.method](request).items()}
        self.store.save(key, shard)
        return shard


def _learning(method: str, trials: int) -> int:
    """Trials in each world that a score is learned on."""
    return min(trials, _LEARNING) if method == "learned" else 0


def _shards(system: System, done: int, until: int) -> list[range]:
    """Replica numbers of the trials from `done` to `until` in each world; even ones live in world 0, odd in world 1."""
    room = _MEMORY // max(1, system.engine.state_bytes(system.settings, system.data))
    size = max(2, min(_MOST_REPLICAS, room) // 2 * 2)
    return [range(start, min(start + size, 2 * until)) for start in range(2 * done, 2 * until, size)]
