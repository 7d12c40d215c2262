"""The two-world audit: half the replicas train with a canary in one world, half in the other; can a view tell which?

How well it can, over many trainings, bounds μ or ε from below and tests every claim about the view.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from vflpriv.audits.statistics.confirmation import by_both, suspected, times_as_many
from vflpriv.audits.statistics.sequential import look_times
from vflpriv.audits.two_world.canaries import REACH
from vflpriv.audits.two_world.findings import TWO_WORLD, trial_finding, whole_view_finding
from vflpriv.audits.two_world.methods import choose, whole_view_refusal
from vflpriv.audits.two_world.plan import Plan, Question, Shard
from vflpriv.audits.two_world.replay import Replays
from vflpriv.audits.two_world.shards import ShardPart, shard_ranges, shard_tasks
from vflpriv.audits.two_world.trials import Trials
from vflpriv.audits.two_world.whole_view import WHOLE_VIEW, WholeViewTrials
from vflpriv.common.registry import register
from vflpriv.common.store import Entry, Store, TensorForm
from vflpriv.common.tasks import Advancing, Executor, InProcess, NoProgress, Progress
from vflpriv.core.audit import Audit, AuditContext, Finding, untested
from vflpriv.core.canaries import FULL_TRIALS, CanaryKind, TwoWorldSettings
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.systems import Offer, System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

__all__ = ["TwoWorldAudit"]

Stop = Callable[[Mapping[Adversary, Trials]], bool]
"""Whether the trials so far of these views are enough."""


@register("audit")
class TwoWorldAudit(Audit[System]):
    """Trains the system many times with one unit in either world, and scores each run through each view."""

    name = TWO_WORLD
    summary = "trains in two neighbouring worlds and measures how well a view tells them apart"
    order = 40
    needs = frozenset({Offer.WORLDS, Offer.RELEASE_POINTS})
    settings_type = TwoWorldSettings

    def __init__(self, *, store: Store | None = None, executor: Executor | None = None) -> None:
        self.store, self.executor = store or Store(), executor or InProcess()

    def work(self, system: System, context: AuditContext) -> int:
        return sum(_work(system, question) for question in _questions(system, context))

    def run(self, system: System, context: AuditContext) -> list[Finding]:
        """A test of every claim with every kind of canary that can test it; why, where none can."""
        questions = _questions(system, context)
        early = _settings(context).stop_early
        # If the other systems have as many tests, Holm's procedure rejects whatever is below this level.
        tests = sum(len(question.claims) + len(question.watched_claims) for question in questions)
        level = context.verdict_alpha / max(1, context.systems * tests)
        audit = TwoWorldAudit(store=Store(context.store), executor=context.executor)
        groups: list[tuple[Question, list[Finding]]] = []
        for question in questions:
            findings = [finding for _, group in groups for finding in group]
            kind, claims, watched = question.kind, question.claims, question.watched_claims
            if early and not claims:
                watched = _not_refuted(watched, findings, level)
                if not watched:
                    context.progress.advance(_work(system, question))
                    continue
            context.progress.stage(f"{system.key}: {kind} canary, {question.unit}, 2 × {question.trials} trials")
            # Claims that only the whole view tests would have no trials if the others stopped early.
            stop = _refuted(claims, context.min_trials, level) if early and set(watched) <= set(claims) else None
            asked = question.watching(watched, question.watched)
            groups.append((asked, audit.tested(system, asked, context, context.progress, stop)))
        suspected_claims = suspected([group for _, group in groups], context)
        findings = [
            f for asked, group in groups for f in audit.confirmed(system, asked, group, suspected_claims, context)
        ]
        return findings + self._untested(system, context, {finding.claim for finding in findings})

    def tested(
        self, system: System, question: Question, context: AuditContext, progress: Progress, stop: Stop | None = None
    ) -> list[Finding]:
        """A test of each claim of a question by the scores of its view, and by the whole view."""
        trials, whole = self.answered(system, question, progress, stop)
        own = [trial_finding(c, question.kind, trials[c.adversary], context) for c in question.claims]
        watched = [claim for claim in question.watched_claims if claim.adversary in whole]
        return own + [whole_view_finding(c, question.kind, whole[c.adversary], context) for c in watched]

    def confirmed(
        self,
        system: System,
        question: Question,
        findings: Sequence[Finding],
        claims: Collection[str],
        context: AuditContext,
    ) -> list[Finding]:
        """The findings of a question; those that alone refute one of these claims were tested again on fresh trials."""
        suspects = [f for f in findings if f.claim in claims and f.verdict is Verdict.VIOLATED]
        if not suspects:
            return list(findings)
        whole = any(f.subject == WHOLE_VIEW for f in suspects)
        made = question.trials if whole else max(f.trials or 0 for f in suspects)
        number = made * times_as_many(suspects, context)
        again = question.again({f.claim for f in suspects if f.claim is not None}, number)
        context.progress.stage(f"{system.key}: {question.kind} canary, {question.unit}, 2 × {number} fresh trials")
        fresh = {(f.claim, f.subject): f for f in self.tested(system, again, context, NoProgress())}
        return [
            by_both(f, fresh[f.claim, f.subject]) if f in suspects and (f.claim, f.subject) in fresh else f
            for f in findings
        ]

    def _untested(self, system: System, context: AuditContext, tested: Collection[str | None]) -> list[Finding]:
        """Why the other claims are not tested, by the first kind of canary that was to test them."""
        kinds = list(_settings(context).trials_by_kind())[:1]
        refusals = [
            (claim, self.view_refusal(system, claim.adversary, unit=claim.unit, kind=kind))
            for kind in kinds
            for claim in context.claims
            if claim.key not in tested
        ]
        return [untested(self.name, claim, reason) for claim, reason in refusals if reason]

    @staticmethod
    def view_refusal(
        system: System,
        adversary: Adversary,
        *,
        unit: Unit = Unit.RECORD,
        kind: CanaryKind = CanaryKind.WORST_CASE,
    ) -> str | None:
        """Why this system cannot be audited through this view for this unit, or None."""
        return choose(system, adversary, unit, kind).refusal

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
        question = Question(
            kind=kind,
            trials=trials,
            unit=unit,
            adversaries=tuple(adversaries),
            confidence=confidence,
            reach=reach,
            full=full,
        )
        return self.answered(system, question, Advancing(advance), stop)[0]

    def answered(
        self, system: System, question: Question, progress: Progress, stop: Stop | None
    ) -> tuple[dict[Adversary, Trials], dict[Adversary, WholeViewTrials]]:
        """The trials of all views, and of all whole views."""
        measured: dict[Adversary, Trials] = {}
        whole: dict[Adversary, WholeViewTrials] = {}
        for chosen in question.sets(system):
            trials, whole_trials = self._trained(Plan.of(system, question, chosen, self.store), progress, stop)
            measured, whole = measured | trials, whole | whole_trials
        return {a: measured[a] for a in question.adversaries}, whole

    def _trained(
        self, plan: Plan, progress: Progress, stop: Stop | None
    ) -> tuple[dict[Adversary, Trials], dict[Adversary, WholeViewTrials]]:
        """The trials of one set of trainings, as many as it takes."""
        trials, first, rounds = plan.trials, plan.first, plan.system.schedule.rounds

        def train(done: int, until: int) -> list[Shard]:
            # No shard is watched in part.
            parts = [(done, min(until, plan.watched)), (max(done, plan.watched), until)]
            ranges = [r for part in parts for r in shard_ranges(first, *part)]
            watching = [plan.watching if r.start < first + 2 * plan.watched else () for r in ranges]
            shards = [ShardPart(replicas=r, watchers=w) for r, w in zip(ranges, watching, strict=True)]
            return self._scored(plan, shards, progress)

        def replay(ranges: Sequence[range]) -> list[Shard]:
            return self._scored(plan, [ShardPart(replicas=r, replayed=True) for r in ranges], NoProgress())

        replays = Replays(first=first, full=plan.full, refusal=plan.replay_refusal, train=train, replay=replay)
        # A score is learned on trials of its own, with numbers beyond those that are tested.
        learned_on = train(trials, trials + plan.learning)
        result: dict[Adversary, Trials] = {}
        trained: list[Shard] = []
        shards: list[Shard] = []
        looks: tuple[int, ...] = ()
        times, done = (look_times(trials) if stop is not None else (trials,)), 0
        for place, until in enumerate(times):
            before = replays.replayed
            trained += train(done, min(until, plan.full))
            shards = trained + replays.until(until, trained)
            progress.advance(2 * max(0, replays.replayed - before) * rounds)
            looks, done = times[: place + 1] if stop is not None else (), until
            result = plan.tested(shards, learned_on, looks, replays)
            if stop is not None and stop(result):
                break
        if done < trials:
            progress.advance(2 * (trials - done) * rounds)
        return result, plan.whole_views(shards, looks)

    def _scored(self, plan: Plan, parts: Sequence[ShardPart], progress: Progress) -> list[Shard]:
        """The shards of these replicas, from the store where they are there, else computed; stored as each is done."""
        names, rounds = [str(view) for view in plan.observers], plan.system.schedule.rounds
        key = plan.system.result_key(self.store, plan.key)
        entries = [
            Entry(
                key=key and f"{key}/{part.key}/{part.replicas}",
                form=TensorForm(names=names, rows=len(part.replicas)),
                work=rounds * len(part.replicas),
            )
            for part in parts
        ]
        return self.store.results(
            entries,
            lambda missing: shard_tasks(plan, [parts[place] for place in missing]),
            executor=self.executor,
            progress=progress,
        )


# From claims to questions


def _questions(system: System, context: AuditContext) -> list[Question]:
    """What is asked of trainings: for each kind of canary and each unit, the views of the claims that it can test."""
    questions, units = [], list(dict.fromkeys(claim.unit for claim in context.claims))
    plans = {claim.key: _trials(claim, context) for claim in context.claims}
    for kind in CanaryKind:
        for unit in units:
            claims = tuple(
                claim
                for claim in context.claims
                if claim.unit is unit
                and kind in plans[claim.key]
                and choose(system, claim.adversary, unit, kind).refusal is None
            )
            trials = max((plans[claim.key][kind] for claim in claims), default=0)
            questions += [_question(context, kind, unit, trials, claims)] if claims else []
    for unit in units:
        questions = _watched(system, context, unit, questions)
    return questions


def _trials(claim: Claim, context: AuditContext) -> dict[CanaryKind, int]:
    """How many trials in each world a claim is tested by, with each kind of canary."""
    settings = _settings(context)
    return settings.trials_by_kind(reached=claim.key in context.reached, refuted=claim.key in context.refuted)


def _question(
    context: AuditContext, kind: CanaryKind, unit: Unit, trials: int, claims: tuple[Claim, ...] = ()
) -> Question:
    return Question(
        kind=kind,
        trials=trials,
        unit=unit,
        adversaries=tuple(dict.fromkeys(claim.adversary for claim in claims)),
        confidence=context.confidence,
        reach=_settings(context).reach,
        full=_settings(context).full_trials,
        claims=claims,
    )


def _watched(system: System, context: AuditContext, unit: Unit, questions: Sequence[Question]) -> list[Question]:
    """The questions, one of which also keeps the whole views of the claims about this unit.

    It is the one with most trainings whose canary is in the data; where there is none, a question of its own.
    """
    claims = [
        claim
        for claim in context.claims
        if claim.unit is unit
        and claim.key not in context.refuted
        and whole_view_refusal(system, claim.adversary, unit) is None
    ]
    settings, fewest = _settings(context), 2 * context.min_trials
    carriers = [q for q in questions if q.unit is unit and q.kind is not CanaryKind.WORST_CASE and q.trials >= fewest]
    others = max((number for claim in claims for number in _trials(claim, context).values()), default=0)
    trials = min(settings.whole_view, max((q.trials for q in carriers), default=others))
    if not claims or trials < fewest:
        return list(questions)
    if not carriers:
        return [*questions, _question(context, CanaryKind.NATURAL, unit, trials).watching(claims, trials)]
    carrier = max(carriers, key=lambda question: question.trials)
    return [q.watching(claims, trials) if q is carrier else q for q in questions]


def _work(system: System, question: Question) -> int:
    """The replica-rounds that a question takes."""
    return system.schedule.rounds * sum(chosen.trainings for chosen in question.sets(system))


def _settings(context: AuditContext) -> TwoWorldSettings:
    settings: TwoWorldSettings = context.settings or TwoWorldSettings()
    return settings


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
