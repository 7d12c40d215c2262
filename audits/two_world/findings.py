"""Findings of trials in two worlds: the measurement by the scores of one view, and the test of a claim by it."""

from __future__ import annotations

from vflpriv.audits.statistics.bounds import mu_estimate, mu_rectangle
from vflpriv.audits.two_world.trials import Trials
from vflpriv.audits.two_world.whole_view import WHOLE_VIEW, WholeViewTrials
from vflpriv.common.formatting import count
from vflpriv.core.audit import EPSILON, KNOWN_NOISE, MU, AuditContext, Bound, Errors, Finding, Measurement, measured
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.claims import Claim
from vflpriv.core.views import Adversary

__all__ = ["TWO_WORLD", "describe_trials", "trial_finding", "whole_view_finding"]

TWO_WORLD = "two-world"
"""The name of the audit."""
_STRENGTHS = {kind.value: place for place, kind in enumerate(CanaryKind)} | {WHOLE_VIEW: -1}


def trial_finding(claim: Claim, kind: CanaryKind, trials: Trials, context: AuditContext) -> Finding:
    """The test of one claim: in μ where it is tested as a trade-off curve, in ε where as (ε, δ)."""
    outcome = describe_trials(kind, trials.adversary, trials.errors)
    measurement = _measurement(claim, kind.value, trials, context, outcome)
    return measured(TWO_WORLD, kind.value, claim, measurement, context, sentence=_assuming(measurement))


def whole_view_finding(claim: Claim, kind: CanaryKind, whole: WholeViewTrials, context: AuditContext) -> Finding:
    """The test of one claim by a score that was learned from all that the adversary sees."""
    trials = whole.trials
    measurement = _measurement(
        claim, WHOLE_VIEW, trials, context, describe_trials(kind, trials.adversary, trials.errors)
    )
    learned = f"by {whole.features} features of all it sees, learned on 2 × {whole.learned_on} other trials"
    return measured(TWO_WORLD, WHOLE_VIEW, claim, measurement, context, sentence=f"{_assuming(measurement)}, {learned}")


def _assuming(measurement: Measurement) -> str:
    return f"{measurement.outcome}, assuming Gaussian noise" if measurement.assumes_gaussian else measurement.outcome


def _measurement(claim: Claim, subject: str, trials: Trials, context: AuditContext, outcome: str) -> Measurement:
    """What the trials show at the claim's δ. Bounds that have no part in the test of the claim stand apart."""
    confidence, errors = context.confidence, trials.errors
    test, steps = trials.against(claim, confidence), trials.steps(claim)
    guesses = trials.epsilon_lower(trials.asked(claim).delta, confidence, seed=context.seed) / steps
    in_epsilon = test.measure == EPSILON
    return Measurement(
        unit=trials.unit,
        view=trials.adversary,
        method=trials.method,
        outcome=outcome,
        decides=test.measure,
        mu=trials.mu_lower(confidence) / steps,
        epsilon=test.figure if in_epsilon else guesses,
        delta=claim.delta,
        confidence=confidence,
        assumptions=test.assumptions,
        p_value=test.p_value,
        trials=min(errors.positives, errors.negatives),
        against=lambda other: trials.against(other, confidence),
        power=lambda level: trials.power(claim, level),
        strength=_STRENGTHS[subject],
        tool="trials in two worlds",
        description=trials.canary.kind.description,
        effort=_effort(subject, trials),
        errors=errors,
        curve=tuple(trials.curve()),
        bounds=_bounds(trials, confidence, guesses if in_epsilon else None, steps),
        facts={
            "record": trials.canary.record,
            "threshold": trials.threshold,
            "replayed_per_world": trials.replayed,
            "stopped_early": bool(trials.looks),
        },
        notes=_replays(subject, trials),
    )


def _bounds(trials: Trials, confidence: float, guesses: float | None, steps: int) -> tuple[Bound, ...]:
    errors, known = trials.errors, trials.mu_known_sigma(confidence)
    others = [
        Bound(MU, mu_estimate(errors) / steps, "an estimate, no bound"),
        Bound(MU, mu_rectangle(errors, confidence) / steps, "two separate error rates"),
    ]
    others += [] if guesses is None else [Bound(EPSILON, guesses, "guesses about the surest trials")]
    return (*others, *([] if known is None else [Bound(MU, known / steps, KNOWN_NOISE)]))


def _effort(subject: str, trials: Trials) -> str:
    made = len(trials.scores[0])
    replays = f" and {count(trials.replayed)} replays of their releases" if trials.replayed else ""
    trained = f"{count(made - trials.replayed)} trainings{replays} in each of two worlds"
    return f"{subject} canary, {trials.method}: {trained}"


def _replays(subject: str, trials: Trials) -> tuple[str, ...]:
    """How many trials were trained and how many replayed, where that was a choice."""
    made, name = len(trials.scores[0]), f"{subject[:1].upper()}{subject[1:]} canary"
    if trials.replayed:
        trained = f"2 × {made - trials.replayed}"
        return (
            f"{name}: of 2 × {made} trials, {trained} were trained in full, the others replay the release path; the "
            f"{trained} have the same scores both ways",
        )
    if trials.replay_refusal is not None:
        return (f"{name}: all 2 × {made} trials were trained in full, since {trials.replay_refusal}",)
    return ()


def describe_trials(kind: CanaryKind, adversary: Adversary, errors: Errors) -> str:
    """The setting of a test, and how often it told the worlds apart."""
    trials = f"2 × {errors.positives} trials" if errors.balanced else f"{errors.positives} + {errors.negatives} trials"
    wrong = f"{errors.total} error{'' if errors.total == 1 else 's'}"
    return f"{kind} canary, view {adversary}, {wrong} in {trials}"
