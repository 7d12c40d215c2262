"""The two-world audit: half the replicas train with a canary in one world, half in the other; can a view tell which?

How well it can, over many trainings, bounds μ or ε from below and tests every claim about the view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.scoring.worlds import SCORERS, Request, discriminant, strength_key
from vflpriv.audits.statistics.bounds import Errors, secret_threshold
from vflpriv.audits.statistics.sequential import look_times
from vflpriv.audits.worlds.canaries import REACH, most_exposed, plan
from vflpriv.audits.worlds.store import TrialStore, side_by_side
from vflpriv.audits.worlds.trials import Trials
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.audit import EPSILON, MU, Audit, AuditContext, Finding, untested
from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.ledger import Ledger, Reading
from vflpriv.core.releases import Gaussian
from vflpriv.core.schedules import Batching
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import VflprivError

__all__ = ["Method", "TwoWorldAudit", "canary_unit", "describe_trials", "method_of", "threshold_of"]

_MEMORY = 1 << 30
_MOST_REPLICAS = 256
_LEARNING = 256
Shard = Mapping[str, Tensor]
Stop = Callable[[Mapping[Adversary, Trials]], bool]
"""Whether the trials so far of these views are enough."""


@dataclass(frozen=True)
class Method:
    """How a trial is scored: by the scorer of this name in `SCORERS`, or not at all for the reason given."""

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
        return _without_batches(system, adversary, exposure.unprotected, worst, gaussian)
    if worst and not gaussian:
        return Method(refusal=f"two-world needs a noised release in the view of {adversary}, and there is none")
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


def _without_batches(
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


@dataclass(frozen=True, eq=False, kw_only=True)
class _TrainingPlan:
    """Trainings with one canary that one method scores; `eyes` maps each adversary of a claim to the view it has.

    They differ where a claim is about any device: then the view is that of the most exposed one.
    """

    system: System
    canary: Canary
    method: str
    reach: float
    eyes: Mapping[Adversary, Adversary]
    threshold: float

    @property
    def key(self) -> str:
        """The name under which its scores are stored, among those of the system."""
        canary, views = self.canary, "+".join(map(str, self.eyes.values()))
        changed = f"{canary.kind}/{canary.unit}/{canary.record}/{canary.devices}/{canary.rate}"
        return f"{self.method}/{self.reach:g}/{changed}/{views}/strength"

    def trials(self, shards: Sequence[Shard], learned_on: Sequence[Shard], looks: tuple[int, ...]) -> dict[str, Trials]:
        """The trials of these shards by view, scored by what was learned on others."""
        by_view = {}
        for actual in dict.fromkeys(self.eyes.values()):
            scores, key = _joined(shards, str(actual)), strength_key(str(actual))
            if learned_on:
                features = _joined(learned_on, str(actual))
                weights, offset = discriminant(features[0::2], features[1::2])
                scores = np.asarray(scores @ weights + offset, dtype=np.float64)
            by_view[str(actual)] = Trials(
                adversary=actual,
                canary=self.canary,
                scores=(scores[0::2], scores[1::2]),
                strengths=_joined(shards, key) if key in shards[0] else np.zeros(0),
                looks=looks,
                method=self.method,
                threshold=self.threshold,
            )
        return by_view


def _joined(shards: Sequence[Shard], key: str) -> Floats:
    joined: Floats = torch.cat([shard[key] for shard in shards]).to(torch.float64).numpy()
    return joined


@dataclass(frozen=True, kw_only=True)
class _ClaimGroup:
    """The claims about one unit that a canary of one kind can test, all of their views in the same trainings."""

    kind: CanaryKind
    trials: int
    unit: Unit
    claims: tuple[Claim, ...]

    @property
    def adversaries(self) -> list[Adversary]:
        return list(dict.fromkeys(claim.adversary for claim in self.claims))


@register("audit")
class TwoWorldAudit(Audit):
    """Trains the system many times with one unit in either world, and scores each run through each view."""

    name = "two-world"
    summary = "trains in two neighbouring worlds and measures how well a view tells them apart"
    order = 40

    def __init__(self, *, store: TrialStore | None = None) -> None:
        self.store = store or TrialStore()

    def work(self, system: System, context: AuditContext) -> int:
        trainings = sum(
            self.trainings(system, group.adversaries, group.kind, trials=group.trials, unit=group.unit)
            for group in self._groups(system, context)
        )
        return system.schedule.rounds * trainings

    def run(self, system: System, context: AuditContext) -> list[Finding]:
        """A test of every claim with every kind of canary that can test it; why, where none can."""
        groups = self._groups(system, context)
        # If the other systems have as many tests, Holm's procedure rejects whatever is below this level.
        level = context.alpha / max(1, context.systems * sum(len(group.claims) for group in groups))
        findings = []
        for group in groups:
            context.progress.stage(f"{system.key}: {group.kind} canary, {group.unit}, 2 × {group.trials} trials")
            trials = TwoWorldAudit(store=TrialStore(context.store)).measure(
                system,
                group.adversaries,
                group.kind,
                trials=group.trials,
                unit=group.unit,
                confidence=context.confidence,
                reach=context.options.get("reach", REACH),
                advance=context.progress.advance,
                stop=_refuted(group.claims, context.min_trials, level) if context.options.get("stop_early") else None,
            )
            findings += [_finding(claim, group.kind, trials[claim.adversary], context) for claim in group.claims]
        return findings + self._untested(system, context, {finding.claim for finding in findings})

    def _untested(self, system: System, context: AuditContext, tested: Collection[str | None]) -> list[Finding]:
        """Why the other claims are not tested, by the first kind of canary that was to test them."""
        kinds = list(_trials_by_kind(context))[:1]
        refusals = [
            (claim, self.view_refusal(system, claim.adversary, unit=claim.unit, kind=kind))
            for kind in kinds
            for claim in context.claims
            if claim.key not in tested
        ]
        return [untested(self.name, claim, reason) for claim, reason in refusals if reason]

    def _groups(self, system: System, context: AuditContext) -> list[_ClaimGroup]:
        groups = []
        for kind, trials in _trials_by_kind(context).items():
            for unit in dict.fromkeys(claim.unit for claim in context.claims):
                claims = tuple(
                    claim
                    for claim in context.claims
                    if claim.unit is unit and self.view_refusal(system, claim.adversary, unit=unit, kind=kind) is None
                )
                groups += [_ClaimGroup(kind=kind, trials=trials, unit=unit, claims=claims)] if claims else []
        return groups

    @staticmethod
    def view_refusal(
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
        """How many replicas `measure` trains in all, both worlds and those that a score is learned on."""
        names = dict.fromkeys(method_of(system, a, unit, kind).name for a in adversaries)
        return sum(2 * (trials + _learning(name, trials)) for name in names)

    def measure(
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

        Views that are scored by the same method share their trainings. `advance` receives the replica-rounds done.
        `stop` is asked at each look whether the trials so far of these views are enough; with it, bounds and p-values
        are those of a test that may be stopped at any look.
        """
        methods = {a: method_of(system, a, unit, kind) for a in adversaries}
        for adversary, method in methods.items():
            if method.refusal is not None:
                raise VflprivError(f"{adversary}: {method.refusal}")
        measured: dict[Adversary, Trials] = {}
        for name in dict.fromkeys(m.name for m in methods.values()):
            same = [a for a in adversaries if methods[a].name == name]
            planned = self._plan(system, same, kind, unit, name, trials, confidence, reach)
            measured |= self._together(planned, trials, advance, stop)
        return {a: measured[a] for a in adversaries}

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
    ) -> _TrainingPlan:
        ledger = system.ledger
        seen = [ledger.exposure(a, unit, reading=Reading.PAPER) for a in adversaries]
        changed = canary_unit(ledger, unit, kind)
        record = most_exposed(seen, system.schedule) if changed.per_record else 0
        rate = system.schedule.rate if method == "secret batches" else None
        canary = plan(system, kind, record, self.store, unit=changed, rate=rate, reach=reach)
        eyes = {adversary: exposure.adversary for adversary, exposure in zip(adversaries, seen, strict=True)}
        threshold = threshold_of(system, canary, method, trials=trials, confidence=confidence)
        return _TrainingPlan(system=system, canary=canary, method=method, reach=reach, eyes=eyes, threshold=threshold)

    def _together(
        self, planned: _TrainingPlan, trials: int, advance: Callable[[int], None] | None, stop: Stop | None
    ) -> dict[Adversary, Trials]:
        def train(done: int, until: int) -> list[Shard]:
            ranges = _shards(planned.system, done, until)
            return list(side_by_side(lambda r: self._shard(planned, r, advance), ranges, planned.system.torch_device))

        # A score is learned on trials of its own, with numbers beyond those that are tested.
        learned_on = train(trials, trials + _learning(planned.method, trials))
        result: dict[Adversary, Trials] = {}
        shards: list[Shard] = []
        times, done = (look_times(trials) if stop is not None else (trials,)), 0
        for place, until in enumerate(times):
            shards += train(done, until)
            looks, done = times[: place + 1] if stop is not None else (), until
            by_view = planned.trials(shards, learned_on, looks)
            result = {adversary: by_view[str(actual)] for adversary, actual in planned.eyes.items()}
            if stop is not None and stop(result):
                break
        if advance is not None and done < trials:
            advance(2 * (trials - done) * planned.system.schedule.rounds)
        return result

    def _shard(self, planned: _TrainingPlan, replicas: range, advance: Callable[[int], None] | None) -> Shard:
        system, eyes = planned.system, list(dict.fromkeys(planned.eyes.values()))
        key = self.store.key(system, planned.key, replicas)
        stored = self.store.load(key, names=[str(actual) for actual in eyes], rows=len(replicas))
        if stored is not None:
            if advance is not None:
                advance(system.schedule.rounds * len(replicas))
            return stored
        step = None if advance is None else lambda done: advance(done * len(replicas))
        request = Request(
            system=system,
            ledger=system.ledger,
            canary=planned.canary,
            adversaries=eyes,
            replicas=replicas,
            step=step,
        )
        shard = {name: score.to(torch.float32).cpu() for name, score in SCORERS[planned.method](request).items()}
        self.store.save(key, shard)
        return shard


def _trials_by_kind(context: AuditContext) -> dict[CanaryKind, int]:
    """Trainings in each world by kind of canary, of the kinds that have any."""
    trials: Mapping[CanaryKind, int] = context.options.get("trials", {})
    return {kind: trials[kind] for kind in CanaryKind if trials.get(kind, 0)}


def _refuted(claims: Sequence[Claim], min_trials: int, level: float) -> Stop:
    def refuted(trials: Mapping[Adversary, Trials]) -> bool:
        """Whether these trials refute every claim that they test, whatever the report's other tests show."""
        tested = [(claim, trials[claim.adversary]) for claim in claims if claim.adversary in trials]
        enough = all(len(t.scores[0]) >= min_trials for _, t in tested)
        return bool(tested) and enough and all(t.p_value(claim) <= level for claim, t in tested)

    return refuted


def _finding(claim: Claim, kind: CanaryKind, trials: Trials, context: AuditContext) -> Finding:
    """The test of one claim: in μ, or in ε where the score was learned because the curve is not Gaussian."""
    lower, p = trials.mu_lower(context.confidence), trials.p_value(claim)
    measure, claimed = MU, claim.mu
    if trials.learned:
        lower, measure, claimed = trials.epsilon_of_errors(claim.delta, context.confidence), EPSILON, claim.epsilon
    errors = trials.errors
    fewest = min(errors.positives, errors.negatives)
    refutes = p <= context.alpha and lower > claimed and fewest >= context.min_trials
    return Finding(
        audit=TwoWorldAudit.name,
        subject=kind.value,
        verdict=Verdict.VIOLATED if refutes else Verdict.CONSISTENT,
        sentence=describe_trials(kind, trials.adversary, errors),
        figure=lower,
        measure=measure,
        interval=(lower, math.inf),
        claim=claim.key,
        unit=trials.unit,
        adversary=trials.adversary,
        p_value=p,
        trials=fewest,
        evidence=trials,
    )


def describe_trials(kind: CanaryKind, adversary: Adversary, errors: Errors) -> str:
    """The setting of a test, and how often it told the worlds apart."""
    trials = f"2 × {errors.positives} trials" if errors.balanced else f"{errors.positives} + {errors.negatives} trials"
    wrong = f"{errors.total} error{'' if errors.total == 1 else 's'}"
    return f"{kind} canary, view {adversary}, {wrong} in {trials}"


def _learning(method: str, trials: int) -> int:
    """Trials in each world that a score is learned on."""
    return min(trials, _LEARNING) if method == "learned" else 0


def _shards(system: System, done: int, until: int) -> list[range]:
    """Replica numbers of the trials from `done` to `until` in each world; even ones live in world 0, odd in world 1."""
    room = _MEMORY // max(1, system.engine.state_bytes(system.settings, system.data))
    size = max(2, min(_MOST_REPLICAS, room) // 2 * 2)
    return [range(start, min(start + size, 2 * until)) for start in range(2 * done, 2 * until, size)]
