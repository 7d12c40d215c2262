"""The decision: from budgets and findings to Holm's correction, a verdict on every claim, and the exit code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scipy.special import betainc

from vflpriv.audits.scoring.labels import Success
from vflpriv.audits.statistics.significance import holm_adjusted
from vflpriv.common.formatting import confidence, delta, epsilon, exact, interval, mu, p_value, percent
from vflpriv.core.audit import EPSILON, MU, Finding
from vflpriv.core.budgets import Budget
from vflpriv.core.claims import MIN_TRIALS, Claim, Judgement, SuccessClaim, Verdict
from vflpriv.core.views import Adversary

__all__ = [
    "Accounted",
    "AttackOutcome",
    "CorrectedFinding",
    "Decision",
    "JudgedSuccess",
    "SuccessTest",
    "SystemDecision",
    "SystemEvidence",
    "allowed_rate",
    "beyond_p_value",
    "decide",
    "exit_code",
    "judge",
    "judge_success",
    "success_p_value",
    "success_tests",
]


# Accountants invert by root finding; a budget this close to the claim is the claim.
_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Accounted:
    """What is accounted for one claim, at the claim's δ."""

    rigorous: Budget | None
    """The budget that decides; None where no accountant has one."""
    paper: Budget | None = None
    """The budget under the paper's own reading, which decides nothing; None where it is the same."""
    not_applicable: str | None = None
    """Why the question does not arise, if it does not."""


@dataclass(frozen=True, kw_only=True)
class SystemEvidence:
    """Everything that the verdicts on one system's claims rest on."""

    key: str
    claims: Sequence[Claim] = ()
    accounted: Mapping[str, Accounted] = field(default_factory=dict)
    """By the claim's key."""
    findings: Sequence[Finding] = ()
    successes: Sequence[SuccessTest] = ()
    min_trials: int = MIN_TRIALS


@dataclass(frozen=True, kw_only=True)
class CorrectedFinding:
    """A finding with what Holm's procedure over all tests of the report makes of it."""

    finding: Finding
    p_adjusted: float | None = None
    """None where the finding is no test of a claim."""
    refutes: bool = False
    """Whether this test alone makes its claim violated."""

    @property
    def verdict(self) -> Verdict:
        """What it supports after the correction."""
        if not self.finding.is_test:
            return self.finding.verdict
        return Verdict.VIOLATED if self.refutes else Verdict.CONSISTENT


@dataclass(frozen=True, kw_only=True)
class JudgedSuccess:
    """The verdict on a claim about an attack, with its corrected p-value."""

    test: SuccessTest
    p_adjusted: float
    judgement: Judgement


@dataclass(frozen=True, kw_only=True)
class SystemDecision:
    """The verdicts on one system: findings and claims about attacks in the order they were given."""

    findings: tuple[CorrectedFinding, ...]
    judgements: Mapping[str, Judgement]
    """By the claim's key."""
    successes: tuple[JudgedSuccess, ...]

    @property
    def verdicts(self) -> list[Verdict]:
        """All that count for the exit code: those on claims, and on premises that decide alone."""
        claims = [j.verdict for j in self.judgements.values()] + [s.judgement.verdict for s in self.successes]
        return claims + [c.verdict for c in self.findings if c.finding.decides_alone]

    def tests_of(self, claim: Claim) -> list[CorrectedFinding]:
        """The tests of one claim."""
        return [c for c in self.findings if c.finding.is_test and c.finding.claim == claim.key]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The verdicts of a whole report."""

    systems: Mapping[str, SystemDecision]
    """By the system's key."""
    exit_code: int


def decide(systems: Sequence[SystemEvidence], *, alpha: float) -> Decision:
    """From budgets and findings to corrected p-values, a verdict on every claim, and the exit code.

    All tests of all systems, those of claims about attacks included, are corrected together, so that the probability of
    one wrong refutation or more in the report is at most `alpha`.
    """
    _check(systems, alpha)
    raw = {(s.key, "finding", i): f.p_value for s in systems for i, f in enumerate(s.findings) if f.is_test}
    raw |= {(s.key, "attack", i): t.p_value for s in systems for i, t in enumerate(s.successes)}
    adjusted = dict(zip(raw, holm_adjusted([p for p in raw.values() if p is not None]), strict=True))
    decided = {}
    for s in systems:
        by_key = {claim.key: claim for claim in s.claims}
        findings = tuple(
            _corrected(f, by_key, adjusted.get((s.key, "finding", i)), alpha, s.min_trials)
            for i, f in enumerate(s.findings)
        )
        decided[s.key] = SystemDecision(
            findings=findings,
            judgements={
                c.key: judge(c, s.accounted[c.key], findings, alpha=alpha, min_trials=s.min_trials) for c in s.claims
            },
            successes=tuple(_judged_success(t, adjusted[s.key, "attack", i], alpha) for i, t in enumerate(s.successes)),
        )
    return Decision(systems=decided, exit_code=exit_code(v for d in decided.values() for v in d.verdicts))


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """1 if something is violated, 3 if something is unsupported and nothing violated, 0 otherwise.

    >>> exit_code([Verdict.CONSISTENT, Verdict.UNSUPPORTED]), exit_code([])
    (3, 0)
    """
    given = set(verdicts)
    return 1 if Verdict.VIOLATED in given else 3 if Verdict.UNSUPPORTED in given else 0


def _check(systems: Sequence[SystemEvidence], alpha: float) -> None:
    """Results are joined by name: every name must be there once."""
    if not 0 < alpha < 1:
        raise ValueError(f"Expected 0 < alpha={alpha:g} < 1.")
    keys = [s.key for s in systems]
    if len(set(keys)) < len(keys):
        raise ValueError(f"Expected systems with distinct keys, found {keys}.")
    for s in systems:
        claims = [c.key for c in s.claims]
        if len(set(claims)) < len(claims):
            raise ValueError(f"Expected claims of {s.key} with distinct keys, found {claims}.")
        for f in s.findings:
            if f.claim is not None and f.claim not in claims:
                raise ValueError(
                    f"Expected {f.audit} to test one of the claims {claims} of {s.key}, found {f.claim!r}."
                )


def _corrected(
    finding: Finding, claims: Mapping[str, Claim], p_adjusted: float | None, alpha: float, min_trials: int
) -> CorrectedFinding:
    if finding.claim is None or p_adjusted is None:
        return CorrectedFinding(finding=finding)
    refutes = p_adjusted <= alpha and _enough(finding, min_trials) and _above(finding, claims[finding.claim])
    return CorrectedFinding(finding=finding, p_adjusted=p_adjusted, refutes=refutes)


def _enough(finding: Finding, min_trials: int) -> bool:
    return finding.trials is None or finding.trials >= min_trials


def _claimed(finding: Finding, claim: Claim) -> float | None:
    """What the finding's figure is compared with; None where it is no bound on the claim's own numbers."""
    return {MU: claim.mu, EPSILON: claim.epsilon}.get(finding.measure)


def _above(finding: Finding, claim: Claim) -> bool:
    claimed = _claimed(finding, claim)
    return claimed is None or finding.figure > claimed


def judge(
    claim: Claim,
    accounted: Accounted,
    findings: Sequence[CorrectedFinding],
    *,
    alpha: float,
    min_trials: int = MIN_TRIALS,
) -> Judgement:
    """What can be said of a claim. Findings that do not bear on it are left aside.

    * not applicable: the question does not arise, for the reason given;
    * violated: a test refutes it (rejected by Holm over the report at `alpha`, its lower bound above the claim), or a
      premise that the guarantee rests on does not hold in the run. A test with fewer than `min_trials` in a world never
      refutes: its p-value is valid, but so few trials are no evidence to publish;
    * unsupported: neither, but what can be accounted for rigorously exceeds the claim, or nothing can;
    * consistent: neither, and the accounted budget is within the claim. Not refuted is never verified.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"Expected 0 < alpha={alpha:g} < 1.")
    budget = accounted.rigorous
    if budget is not None and budget.delta != claim.delta:
        raise ValueError(f"Expected a budget at the claim's delta={claim.delta:g}, found delta={budget.delta:g}.")
    if accounted.not_applicable is not None:
        return Judgement(Verdict.NOT_APPLICABLE, accounted.not_applicable)
    bearing = [c for c in findings if c.finding.bears_on(claim)]
    tests = [c for c in bearing if c.finding.is_test]
    broken = [c.finding.sentence for c in bearing if not c.finding.is_test and c.verdict is Verdict.VIOLATED]
    reasons, remarks = [*_refutation(claim, tests, alpha), *broken], _remarks(bearing)
    if reasons:
        return Judgement(Verdict.VIOLATED, "; ".join((*reasons, *remarks)))
    tested = _tested(claim, [c.finding for c in tests], alpha, min_trials)
    if budget is None:
        return Judgement(Verdict.UNSUPPORTED, f"no accountant gives an upper bound, and {tested}")
    if _exceeds(budget, claim):
        joined = f"{_comparison(budget, claim, exceeds=True)}, {'but' if tests else 'and'} {tested}"
        return Judgement(Verdict.UNSUPPORTED, "; ".join((joined + _paper(accounted.paper), *remarks)))
    return Judgement(Verdict.CONSISTENT, f"{_comparison(budget, claim, exceeds=False)}, and {tested}")


def _remarks(bearing: Sequence[CorrectedFinding]) -> list[str]:
    """Of each audit that leaves a premise unsupported, the sentence with the largest figure."""
    largest: dict[str, Finding] = {}
    for finding in (c.finding for c in bearing if not c.finding.is_test and c.verdict is Verdict.UNSUPPORTED):
        known = largest.get(finding.audit)
        largest[finding.audit] = finding if known is None or finding.figure > known.figure else known
    return [finding.sentence for finding in largest.values()]


def _refutation(claim: Claim, tests: Sequence[CorrectedFinding], alpha: float) -> list[str]:
    """The strongest test that refutes the claim, in words; none if no test does."""
    refuting = [c.finding for c in tests if c.refutes]
    if not refuting:
        return []
    test = min(refuting, key=lambda t: (t.p_value or 0.0, -t.figure))
    p = p_value(test.p_value or 0.0)
    p = p.replace("<", "< ") if p.startswith("<") else f"= {p}"
    rejected = f"p {p}, rejected at a family-wise error of {confidence(alpha)} (Holm)"
    limit = _claimed(test, claim)
    if limit is None:
        return [f"the {test.audit} audit refutes it: {test.sentence}, {rejected}"]
    measured, claimed = _apart(_NUMBERS[test.measure], test.figure, limit)
    return [
        f"one test measured {test.measure} ≥ {measured} at {confidence(1 - alpha)} confidence, above the claimed "
        f"{test.measure} = {claimed}: {test.sentence}, {rejected}"
    ]


_NUMBERS: Mapping[str, Callable[[float], str]] = {MU: mu, EPSILON: epsilon}
"""How bounds are written, by their measure."""


def _tested(claim: Claim, tests: Sequence[Finding], alpha: float, min_trials: int) -> str:
    """What was tested without refuting the claim."""
    if not tests:
        return "no trials were run"
    enough = [test for test in tests if _enough(test, min_trials)]
    if not enough:
        most = max(test.trials or 0 for test in tests)
        return f"there were too few trials to judge: {most} in each world, at least {min_trials} are wanted"
    outcome = "its one test does not refute it" if len(enough) == 1 else f"its {len(enough)} tests do not refute it"
    bounds = [test for test in enough if test.measure in _NUMBERS]
    if not bounds:
        return f"{outcome} ({'; '.join(test.sentence for test in enough)})"
    best = max(bounds, key=lambda test: test.figure)
    level, bound = f"{confidence(1 - alpha)} confidence", f"{best.measure} ≥ {_NUMBERS[best.measure](best.figure)}"
    largest = f"{bound} at {level}" if len(enough) == 1 else f"the largest bound, each at {level}, is {bound}"
    corrected = " after Holm's correction" if _above(best, claim) else ""
    return f"{outcome} ({largest}: {best.sentence}){corrected}"


def _exceeds(budget: Budget, claim: Claim) -> bool:
    # Where the curve is Gaussian, mu is the whole of it; elsewhere, and against a claim of pure epsilon, which no
    # Gaussian curve keeps, epsilon can only be compared at the claim's delta.
    pure = budget.mu is None or claim.delta == 0
    upper, claimed = (budget.upper, claim.epsilon) if pure else (budget.mu or 0.0, claim.mu)
    return upper > claimed * (1 + _TOLERANCE)


def _comparison(budget: Budget, claim: Claim, *, exceeds: bool) -> str:
    at = f"at δ = {delta(claim.delta)}"
    if exceeds and math.isinf(budget.upper):
        return f"no finite ε can be accounted for {at}, against the claimed ε = {epsilon(claim.epsilon)}"
    pair = _apart if exceeds else _plain
    upper, claimed = pair(epsilon, budget.upper, claim.epsilon)
    if budget.mu is not None:
        mu_upper, mu_claimed = pair(mu, budget.mu, claim.mu)
        upper, claimed = f"{upper} (μ = {mu_upper})", f"{claimed} (μ = {mu_claimed})"
    return f"accounted ε ≤ {upper} {'exceeds' if exceeds else 'is within'} the claimed ε = {claimed} {at}"


def _paper(budget: Budget | None) -> str:
    return "" if budget is None else f"; the paper's own reading gives ε ≤ {epsilon(budget.upper)}"


def _plain(write: Callable[[float], str], value: float, other: float) -> tuple[str, str]:
    return write(value), write(other)


def _apart(write: Callable[[float], str], value: float, other: float) -> tuple[str, str]:
    """Both numbers with as many digits as it takes to see that they differ."""
    pairs = [_plain(w, value, other) for w in (write, exact, "{:.12g}".format)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


class AttackOutcome(Protocol):
    """One attack through one view, as far as a claim about attacks is concerned with it."""

    @property
    def attack(self) -> str: ...
    @property
    def adversary(self) -> Adversary: ...
    @property
    def success(self) -> Success | None: ...
    @property
    def refusal(self) -> str | None: ...


@dataclass(frozen=True, kw_only=True)
class SuccessTest:
    """A claim about an attack, with the attack's success on data of so many classes, or why there is none."""

    claim: SuccessClaim
    success: Success | None
    refusal: str | None
    classes: int

    @property
    def p_value(self) -> float:
        """The claim's, before correction; 1 where nothing tests it."""
        if self.success is None or self.classes != self.claim.classes:
            return 1.0
        return success_p_value(self.claim, self.success)


def success_tests(
    claims: Sequence[SuccessClaim], outcomes: Sequence[AttackOutcome], *, devices: int, classes: int
) -> list[SuccessTest]:
    """One test for each claim: its attack through the first view of its adversary, chosen before outcomes are seen."""
    tests = []
    for claim in claims:
        views = claim.adversary.each(devices)
        outcome = next((o for o in outcomes if o.attack == claim.attack and o.adversary in views), None)
        success, refusal = (None, None) if outcome is None else (outcome.success, outcome.refusal)
        tests.append(SuccessTest(claim=claim, success=success, refusal=refusal, classes=classes))
    return tests


def _judged_success(test: SuccessTest, p_adjusted: float, alpha: float) -> JudgedSuccess:
    judgement = judge_success(
        test.claim,
        success=test.success,
        refusal=test.refusal,
        classes=test.classes,
        p_adjusted=p_adjusted,
        alpha=alpha,
    )
    return JudgedSuccess(test=test, p_adjusted=p_adjusted, judgement=judgement)


def allowed_rate(claim: SuccessClaim, success: Success) -> float:
    """The rate that the claim allows on this data: what it says, but never less than blind guessing.

    Where one label is commoner than the others, whoever always names it is right more often than one in `classes`.
    """
    return max(claim.rate, success.chance)


def success_p_value(claim: SuccessClaim, success: Success) -> float:
    """P[Bin(n, rate) >= right guesses]: how likely so many are, or more, if the claim is true; records count as trials.

    Below alpha/2 exactly when the low end of the Clopper-Pearson interval at confidence 1 - alpha exceeds the rate.
    """
    return beyond_p_value(success, allowed_rate(claim, success))


def beyond_p_value(success: Success, rate: float) -> float:
    """P[Bin(n, rate) >= right guesses]."""
    right = round(success.rate * success.guesses)
    return float(betainc(right, success.guesses - right + 1, rate)) if right else 1.0


def judge_success(
    claim: SuccessClaim,
    *,
    success: Success | None,
    refusal: str | None,
    classes: int,
    p_adjusted: float,
    alpha: float,
) -> Judgement:
    """What can be said of a claim about an attack.

    * not applicable: the figure is of data with other classes, or the attack cannot be tried (`refusal`);
    * unsupported: the attack was not run, so that nothing speaks for the claim;
    * violated: the low end of the interval exceeds the rate, and Holm over the report rejects the claim at `alpha`;
    * consistent: the attack was run, and did not. Other attacks may succeed: not refuted is never verified.
    """
    if classes != claim.classes:
        reason = f"the published rate is of data with {claim.classes} classes, and here are {classes}"
        return Judgement(Verdict.NOT_APPLICABLE, reason)
    if refusal is not None:
        return Judgement(Verdict.NOT_APPLICABLE, f"{claim.attack} cannot be tried: {refusal}")
    if success is None:
        return Judgement(Verdict.UNSUPPORTED, f"{claim.attack} was not run, and without it nothing supports the claim")
    rate = allowed_rate(claim, success)
    blind = f" and the {percent(rate)} of blind guesses" if rate > claim.rate else ""
    limit = f"claimed {percent(claim.rate)}{blind}"
    measured = f"{claim.attack} was right in {percent(success.rate)} of {success.guesses} guesses"
    bounds = f"{interval(success.low, success.high)} at {confidence(1 - alpha)} confidence"
    if success.low > rate and p_adjusted <= alpha:
        held = f"above the {limit}, p {p_value(p_adjusted)} after Holm's correction"
        return Judgement(Verdict.VIOLATED, f"{measured} ({bounds}), {held}")
    held = "after Holm's correction not" if success.low > rate else "not"
    return Judgement(Verdict.CONSISTENT, f"{measured} ({bounds}), {held} beyond the {limit}")
