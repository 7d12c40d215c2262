"""Findings of trials in two worlds: the test of a claim by the scores of one view."""

from __future__ import annotations

import math
from dataclasses import replace

from vflpriv.audits.statistics.bounds import Errors
from vflpriv.audits.two_world.trials import Trials
from vflpriv.audits.two_world.whole_view import WHOLE_VIEW, WholeViewTrials
from vflpriv.core.audit import EPSILON, MU, AuditContext, Finding
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.views import Adversary

__all__ = ["TWO_WORLD", "describe_trials", "trial_finding", "whole_view_finding"]

TWO_WORLD = "two-world"
"""The name of the audit."""


def trial_finding(claim: Claim, kind: CanaryKind, trials: Trials, context: AuditContext) -> Finding:
    """The test of one claim: in μ where it is tested as a trade-off curve, in ε where as (ε, δ)."""
    lower, p = trials.mu_lower(context.confidence), trials.p_value(claim)
    measure, claimed = MU, claim.mu
    if not trials.tests_curve(claim):
        lower, measure, claimed = trials.epsilon_of_errors(claim.delta, context.confidence), EPSILON, claim.epsilon
    errors = trials.errors
    fewest = min(errors.positives, errors.negatives)
    assumed = ", assuming Gaussian noise" if trials.assumes_gaussian_noise(claim) else ""
    refutes = p <= context.verdict_alpha and lower > claimed and fewest >= context.min_trials
    return Finding(
        audit=TWO_WORLD,
        subject=kind.value,
        verdict=Verdict.VIOLATED if refutes else Verdict.CONSISTENT,
        sentence=describe_trials(kind, trials.adversary, errors) + assumed,
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


def whole_view_finding(claim: Claim, kind: CanaryKind, whole: WholeViewTrials, context: AuditContext) -> Finding:
    """The test of one claim by a score that was learned from all that the adversary sees."""
    finding = trial_finding(claim, kind, whole.trials, context)
    learned = f"by {whole.features} features of all it sees, learned on 2 × {whole.learned_on} other trials"
    return replace(finding, subject=WHOLE_VIEW, sentence=f"{finding.sentence}, {learned}")


def describe_trials(kind: CanaryKind, adversary: Adversary, errors: Errors) -> str:
    """The setting of a test, and how often it told the worlds apart."""
    trials = f"2 × {errors.positives} trials" if errors.balanced else f"{errors.positives} + {errors.negatives} trials"
    wrong = f"{errors.total} error{'' if errors.total == 1 else 's'}"
    return f"{kind} canary, view {adversary}, {wrong} in {trials}"
