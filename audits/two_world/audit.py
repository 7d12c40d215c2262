"""The two-world audit: half the replicas train with a canary in one world, half in the other; can a view tell which?

How well it can, over many trainings, bounds μ or ε from below and tests every claim about the view.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.learned.discriminants import discriminant
from vflpriv.audits.statistics.bounds import secret_threshold
from vflpriv.audits.statistics.sequential import look_times
from vflpriv.audits.two_world.canaries import REACH, plan
from vflpriv.audits.two_world.findings import TWO_WORLD, trial_finding, whole_view_finding
from vflpriv.audits.two_world.replays import Replays, replay_refusal
from vflpriv.audits.two_world.scores import strength_key
from vflpriv.audits.two_world.shards import ShardPart, ShardTask, filled, shard_ranges, shard_tasks
from vflpriv.audits.two_world.trials import Trials
from vflpriv.audits.two_world.whole_view import feature_key
from vflpriv.audits.two_world.whole_views import WHOLE_VIEW, WholeViewScores, WholeViewTrials
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.common.seeds import derive
from vflpriv.common.store import Entry, Store, TensorForm
from vflpriv.common.tasks import Advancing, Executor, InProcess, NoProgress, Progress, Tasks
from vflpriv.core.audit import Audit, AuditContext, Finding, untested
from vflpriv.core.canaries import FULL_TRIALS, Canary, CanaryKind, most_exposed
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.ledger import Ledger, Reading
from vflpriv.core.releases import Gaussian
from vflpriv.core.schedules import Batching
from vflpriv.core.source import Offer
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import VflprivError

__all__ = [
    "Method",
    "TwoWorldAudit",
    "canary_unit",
    "first_replica",
    "method_of",
    "threshold_of",
    "whole_view_refusal",
]

_LEARNING = 256
Shard = dict[str, Tensor]
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
        sampled = any(e.sampling is not None and e.sampling.scheme == "poisson" for e in exposure.events)
        return _without_batches(system, adversary, exposure.unprotected, worst, gaussian and sampled)
    if worst and not gaussian:
        return Method(refusal=f"two-world needs a noised release in the view of {adversary}, and there is none")
    if unit.per_record and exposure.events and (exposure.counts is None or not exposure.counts.any()):
        return Method(refusal="two-world needs a record that takes part")
    if unit is Unit.ADD_REMOVE:
        return Method(refusal="two-world has no canary that is present in one world and absent in the other")
    met = {event.kind for event in exposure.events}
    inside = next((r for r in ledger.releases if r.sent_as is not None and r.kind in met), None)
    if worst and inside is not None:
        return Method(refusal=f"no message carries {inside.kind} with their noise, only {inside.sent_as} made of them")
    if worst:
        return Method("likelihood ratio")
    if exposure.unprotected or inside is not None or any(not isinstance(e.noise, Gaussian) for e in exposure.events):
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


def whole_view_refusal(system: System, adversary: Adversary, unit: Unit) -> str | None:
    """Why no score can be learned from all that this adversary sees, or None.

    The ledger is asked what the adversary holds anyway, never whether anything that it sees depends on the unit.
    """
    exposure = system.ledger.exposure(adversary, unit, reading=Reading.PAPER)
    if exposure.not_applicable is not None:
        return f"two-world has nothing to tell: {exposure.not_applicable}"
    if unit is Unit.ADD_REMOVE:
        return "two-world has no canary that is present in one world and absent in the other"
    changed = canary_unit(system.ledger, unit, CanaryKind.NATURAL)
    if changed is Unit.LABEL and adversary.kind in system.ledger.label_holders:
        return f"{adversary} holds the labels"
    if not adversary.knows_batches and any(event.sampling is not None for event in exposure.events):
        return f"all trials have the same batches, which are a secret to {adversary}"
    return None


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
    methods: Mapping[str, str]
    """The method by which each view is scored: that of the trainings, or one that reads their models."""
    threshold: float
    watchers: Mapping[Adversary, tuple[Adversary, ...]] = field(default_factory=dict)
    """The views whose features are kept, by the adversary of a claim that has one of them."""
    watched: int = 0
    """Trials in each world, the first ones, whose features are kept."""
    full: int
    """Trials in each world, the first ones, that are trained; the others replay releases."""
    replay_refusal: str | None = None
    """Why no trial is replayed, where some would be."""

    @property
    def watching(self) -> tuple[Adversary, ...]:
        return tuple(dict.fromkeys(one for several in self.watchers.values() for one in several))

    @property
    def key(self) -> str:
        """The name under which its scores are stored, among those of the system."""
        canary, views = self.canary, "+".join(map(str, self.eyes.values()))
        changed = f"{canary.kind}/{canary.unit}/{canary.record}/{canary.devices}/{canary.rate}"
        return f"{self.method}/{self.reach:g}/{changed}/{views}/strength"

    def trials(
        self, shards: Sequence[Shard], learned_on: Sequence[Shard], looks: tuple[int, ...], replays: Replays
    ) -> dict[str, Trials]:
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
                method=self.methods[str(actual)],
                threshold=self.threshold,
                replayed=replays.replayed,
                replay_refusal=replays.reason,
            )
        return by_view

    def whole_views(self, shards: Sequence[Shard], looks: tuple[int, ...]) -> dict[Adversary, WholeViewTrials]:
        """Scores of the whole view, learned on the first half of the watched trials, of those after it."""
        features = {a: _features(shards, str(a)) for a in self.watching}
        scores = WholeViewScores(features, canary=self.canary, trials=self.watched)
        tested = {adversary: scores.tested(views, looks) for adversary, views in self.watchers.items()}
        return {adversary: trials for adversary, trials in tested.items() if trials is not None}


def _features(shards: Sequence[Shard], name: str) -> Floats:
    """(2n, F) features of the watched trials; shards with fewer of them are filled up with zeros."""
    parts = [shard[feature_key(name)].to(torch.float64) for shard in shards if feature_key(name) in shard]
    rows: Floats = filled(parts).numpy() if parts else np.zeros((0, 0))
    return rows


def _joined(shards: Sequence[Shard], key: str) -> Floats:
    joined: Floats = torch.cat([shard[key] for shard in shards]).to(torch.float64).numpy()
    return joined


@dataclass(frozen=True, kw_only=True)
class _ClaimGroup:
    """The claims about one unit that a canary of one kind can test, all of their views in the same trainings.

    `watched` are the claims that are also tested by all that their adversary sees, in so many trials of each world.
    """

    kind: CanaryKind
    trials: int
    unit: Unit
    claims: tuple[Claim, ...]
    watched: tuple[Claim, ...] = ()
    watched_trials: int = 0

    @property
    def adversaries(self) -> list[Adversary]:
        return list(dict.fromkeys(claim.adversary for claim in self.claims))

    def question(self, context: AuditContext) -> _Question:
        """What is asked of the trainings."""
        return _Question(
            kind=self.kind,
            trials=self.trials,
            unit=self.unit,
            adversaries=tuple(self.adversaries),
            confidence=context.confidence,
            reach=context.options.get("reach", REACH),
            watchers=tuple(dict.fromkeys(claim.adversary for claim in self.watched)),
            watched=self.watched_trials,
            full=context.options.get("full_trials", FULL_TRIALS),
        )


@dataclass(frozen=True, kw_only=True)
class _Question:
    """Trials in each world with a canary, the adversaries whose views score them, and those whose whole view does."""

    kind: CanaryKind
    trials: int
    unit: Unit
    adversaries: tuple[Adversary, ...]
    confidence: float
    reach: float
    watchers: tuple[Adversary, ...] = ()
    watched: int = 0
    full: int = FULL_TRIALS


@register("audit")
class TwoWorldAudit(Audit[System]):
    """Trains the system many times with one unit in either world, and scores each run through each view."""

    name = TWO_WORLD
    summary = "trains in two neighbouring worlds and measures how well a view tells them apart"
    order = 40
    needs = frozenset({Offer.WORLDS, Offer.RELEASE_POINTS})

    def __init__(self, *, store: Store | None = None, executor: Executor | None = None) -> None:
        self.store, self.executor = store or Store(), executor or InProcess()

    def work(self, system: System, context: AuditContext) -> int:
        trainings = sum(
            self.trainings(system, group.adversaries, group.kind, trials=group.trials, unit=group.unit)
            if group.claims
            else 2 * group.trials
            for group in self._groups(system, context)
        )
        return system.schedule.rounds * trainings

    def run(self, system: System, context: AuditContext) -> list[Finding]:
        """A test of every claim with every kind of canary that can test it; why, where none can."""
        groups = self._groups(system, context)
        # If the other systems have as many tests, Holm's procedure rejects whatever is below this level.
        tests = sum(len(group.claims) + len(group.watched) for group in groups)
        level = context.verdict_alpha / max(1, context.systems * tests)
        findings: list[Finding] = []
        for group in groups:
            if context.options.get("stop_early") and not group.claims:
                group = replace(group, watched=_not_refuted(group.watched, findings, level))
                if not group.watched:
                    context.progress.advance(2 * group.trials * system.schedule.rounds)
                    continue
            context.progress.stage(f"{system.key}: {group.kind} canary, {group.unit}, 2 × {group.trials} trials")
            # Claims that only the whole view tests would have no trials if the others stopped early.
            may_stop = context.options.get("stop_early") and set(group.watched) <= set(group.claims)
            trials, whole = TwoWorldAudit(store=Store(context.store), executor=context.executor)._measured(
                system,
                group.question(context),
                context.progress,
                _refuted(group.claims, context.min_trials, level) if may_stop else None,
            )
            findings += [trial_finding(claim, group.kind, trials[claim.adversary], context) for claim in group.claims]
            findings += [
                whole_view_finding(claim, group.kind, whole[claim.adversary], context)
                for claim in group.watched
                if claim.adversary in whole
            ]
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
        for unit in dict.fromkeys(claim.unit for claim in context.claims):
            groups = self._watched(system, context, unit, groups)
        return groups

    @staticmethod
    def _watched(system: System, context: AuditContext, unit: Unit, groups: Sequence[_ClaimGroup]) -> list[_ClaimGroup]:
        """The groups, one of which also keeps the whole views of the claims about this unit.

        It is the one with most trainings whose canary is in the data; where there is none, a group of its own.
        """
        claims = tuple(
            claim
            for claim in context.claims
            if claim.unit is unit and whole_view_refusal(system, claim.adversary, unit) is None
        )
        most, fewest = context.options.get("whole_view", 0), 2 * context.min_trials
        carriers = [
            group
            for group in groups
            if group.unit is unit and group.kind is not CanaryKind.WORST_CASE and group.trials >= fewest
        ]
        trials = min(most, max((g.trials for g in carriers), default=max(_trials_by_kind(context).values(), default=0)))
        if not claims or trials < fewest:
            return list(groups)
        if not carriers:
            own = _ClaimGroup(
                kind=CanaryKind.NATURAL, trials=trials, unit=unit, claims=(), watched=claims, watched_trials=trials
            )
            return [*groups, own]
        carrier = max(carriers, key=lambda group: group.trials)
        watched = replace(carrier, watched=claims, watched_trials=trials)
        return [watched if group is carrier else group for group in groups]

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
        hosts = _hosts([method_of(system, a, unit, kind).name for a in adversaries])
        names = dict.fromkeys(hosts.values())
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
        full: int = FULL_TRIALS,
        advance: Callable[[int], None] | None = None,
        stop: Stop | None = None,
    ) -> Mapping[Adversary, Trials]:
        """`trials` trainings in each world with a canary of this unit, scored through several views at once.

        Views that are scored by the same method share their trainings. Worst-case trials beyond the first `full` of
        each world replay releases instead, where that gives the same scores. `advance` receives the replica-rounds
        done. `stop` is asked at each look whether the trials so far of these views are enough; with it, bounds and
        p-values are those of a test that may be stopped at any look.
        """
        question = _Question(
            kind=kind,
            trials=trials,
            unit=unit,
            adversaries=tuple(adversaries),
            confidence=confidence,
            reach=reach,
            full=full,
        )
        return self._measured(system, question, Advancing(advance), stop)[0]

    def _measured(
        self, system: System, question: _Question, progress: Progress, stop: Stop | None
    ) -> tuple[dict[Adversary, Trials], dict[Adversary, WholeViewTrials]]:
        """The trials of all views, and of all whole views; the latter are kept in the trainings of the first method."""
        methods = {a: method_of(system, a, question.unit, question.kind) for a in question.adversaries}
        for adversary, method in methods.items():
            if method.refusal is not None:
                raise VflprivError(f"{adversary}: {method.refusal}")
        measured: dict[Adversary, Trials] = {}
        whole: dict[Adversary, WholeViewTrials] = {}
        hosts = _hosts([m.name for m in methods.values()])
        names = list(dict.fromkeys(hosts.values())) or [WHOLE_VIEW]
        for name in names:
            same = {a: m.name for a, m in methods.items() if hosts[m.name] == name}
            planned = self._plan(system, question, same, name, watched=name == names[0])
            trials, whole_trials = self._together(planned, question.trials, progress, stop)
            measured, whole = measured | trials, whole | whole_trials
        return {a: measured[a] for a in question.adversaries}, whole

    def _plan(
        self, system: System, question: _Question, scored: Mapping[Adversary, str], method: str, *, watched: bool
    ) -> _TrainingPlan:
        """The trainings of one method; `scored` are the adversaries that they serve, and by which method each."""
        ledger, unit, kind = system.ledger, question.unit, question.kind
        seen = [ledger.exposure(a, unit, reading=Reading.PAPER) for a in scored]
        changed = canary_unit(ledger, unit, kind)
        record = most_exposed(seen, system.schedule) if changed.per_record else 0
        rate = system.schedule.rate if method == "secret batches" else None
        canary = plan(system, kind, record, self.store, unit=changed, rate=rate, reach=question.reach)
        return _TrainingPlan(
            system=system,
            canary=canary,
            method=method,
            reach=question.reach,
            eyes={adversary: exposure.adversary for adversary, exposure in zip(scored, seen, strict=True)},
            methods={str(e.adversary): name for e, name in zip(seen, scored.values(), strict=True)},
            threshold=threshold_of(system, canary, method, trials=question.trials, confidence=question.confidence),
            watchers={a: _strangers(a, canary, system.data.devices) for a in question.watchers} if watched else {},
            watched=question.watched if watched else 0,
            full=min(question.full, question.trials) if canary.at_clip else question.trials,
            replay_refusal=replay_refusal(system, method) if canary.at_clip else None,
        )

    def _together(
        self, planned: _TrainingPlan, trials: int, progress: Progress, stop: Stop | None
    ) -> tuple[dict[Adversary, Trials], dict[Adversary, WholeViewTrials]]:
        learning = _learning(planned.method, trials)
        first = first_replica(trials, learning, planned.watched)

        def train(done: int, until: int) -> list[Shard]:
            # No shard is watched in part.
            parts = [(done, min(until, planned.watched)), (max(done, planned.watched), until)]
            ranges = [r for part in parts for r in shard_ranges(first, *part)]
            watching = [planned.watching if r.start < first + 2 * planned.watched else () for r in ranges]
            shards = [ShardPart(replicas=r, watchers=w) for r, w in zip(ranges, watching, strict=True)]
            return self._scored(planned, shards, progress)

        def replay(ranges: Sequence[range]) -> list[Shard]:
            return self._scored(planned, [ShardPart(replicas=r, replayed=True) for r in ranges], NoProgress())

        replays = Replays(first=first, full=planned.full, refusal=planned.replay_refusal, train=train, replay=replay)
        # A score is learned on trials of its own, with numbers beyond those that are tested.
        learned_on = train(trials, trials + learning)
        result: dict[Adversary, Trials] = {}
        trained: list[Shard] = []
        shards: list[Shard] = []
        looks: tuple[int, ...] = ()
        times, done = (look_times(trials) if stop is not None else (trials,)), 0
        for place, until in enumerate(times):
            before = replays.replayed
            trained += train(done, min(until, planned.full))
            shards = trained + replays.until(until, trained)
            progress.advance(2 * max(0, replays.replayed - before) * planned.system.schedule.rounds)
            looks, done = times[: place + 1] if stop is not None else (), until
            by_view = planned.trials(shards, learned_on, looks, replays)
            result = {adversary: by_view[str(actual)] for adversary, actual in planned.eyes.items()}
            if stop is not None and stop(result):
                break
        if done < trials:
            progress.advance(2 * (trials - done) * planned.system.schedule.rounds)
        return result, planned.whole_views(shards, looks)

    def _scored(self, planned: _TrainingPlan, parts: Sequence[ShardPart], progress: Progress) -> list[Shard]:
        """The shards of these replicas, from the store where they are there, else computed; stored as each is done."""
        system, eyes = planned.system, tuple(dict.fromkeys(planned.eyes.values()))
        key = system.result_key(self.store, planned.key)
        entries = [
            Entry(
                key=key and f"{key}/{part.key}/{part.replicas}",
                form=TensorForm(names=[str(actual) for actual in eyes], rows=len(part.replicas)),
                work=system.schedule.rounds * len(part.replicas),
            )
            for part in parts
        ]

        def tasks(missing: Sequence[int]) -> Tasks[System, ShardTask, Shard]:
            chosen = [parts[place] for place in missing]
            return shard_tasks(system, chosen, canary=planned.canary, method=planned.method, adversaries=eyes)

        return self.store.results(entries, tasks, executor=self.executor, progress=progress)


def _trials_by_kind(context: AuditContext) -> dict[CanaryKind, int]:
    """Trainings in each world by kind of canary, of the kinds that have any."""
    trials: Mapping[CanaryKind, int] = context.options.get("trials", {})
    return {kind: trials[kind] for kind in CanaryKind if trials.get(kind, 0)}


def _not_refuted(claims: Sequence[Claim], findings: Sequence[Finding], level: float) -> tuple[Claim, ...]:
    """Those of the claims that no finding refutes so clearly that the report's other tests cannot change it."""
    clear = [f for f in findings if f.verdict is Verdict.VIOLATED and f.p_value is not None and f.p_value <= level]
    refuted = {finding.claim for finding in clear}
    return tuple(claim for claim in claims if claim.key not in refuted)


def _refuted(claims: Sequence[Claim], min_trials: int, level: float) -> Stop:
    def refuted(trials: Mapping[Adversary, Trials]) -> bool:
        """Whether these trials refute every claim that they test, whatever the report's other tests show."""
        tested = [(claim, trials[claim.adversary]) for claim in claims if claim.adversary in trials]
        enough = all(len(t.scores[0]) >= min_trials for _, t in tested)
        return bool(tested) and enough and all(t.p_value(claim) <= level for claim, t in tested)

    return refuted


def _hosts(methods: Sequence[str]) -> dict[str, str]:
    """The method whose trainings each method uses: shadow models are compared with models that another one trains."""
    host = next((name for name in ("twins", "likelihood ratio") if name in methods), "shadow models")
    return {name: host if name == "shadow models" else name for name in methods}


def _learning(method: str, trials: int) -> int:
    """Trials in each world that a score is learned on."""
    return min(trials, _LEARNING) if method == "learned" else 0


def first_replica(trials: int, learning: int, watched: int) -> int:
    """The number of the first replica of a plan of so many trials.

    Another plan has other replicas, so that no trial is tested again because of what it showed: a number of trials
    that was chosen after a look at fewer of them is tested on fresh ones. The same plan has the same ones, and a
    killed audit goes on.
    """
    return 2 * (derive(0, "canary", trials, learning, watched) % (1 << 59))


def _strangers(adversary: Adversary, canary: Canary, devices: int) -> tuple[Adversary, ...]:
    """The views meant by an adversary, without those of whoever holds the data that the canary changes."""
    owners = set(canary.devices) if canary.unit is not Unit.LABEL else set()
    return tuple(one for one in adversary.each(devices) if not owners & set(one.members(devices)))
