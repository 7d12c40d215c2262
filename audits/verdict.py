"""The decision: from budgets and findings to Holm's correction, a verdict on every claim, and the exit code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vflpriv.audits.statistics.significance import holm_adjusted
from vflpriv.audits.success import JudgedSuccess, SuccessTest, beyond_p_value, judge_success, success_tests
from vflpriv.common.formatting import confidence as level
from vflpriv.common.formatting import delta, epsilon, exact, mu, p_value
from vflpriv.core.audit import AT_CLIP, EPSILON, GAUSSIAN_NOISE, MU, ROUNDING, ClaimTest, Finding, above
from vflpriv.core.budgets import Budget, CurveExcess
from vflpriv.core.claims import MIN_TRIALS, Claim, Judgement, Verdict

__all__ = [
    "ACCOUNTING",
    "Accounted",
    "CorrectedFinding",
    "Decision",
    "JudgedSuccess",
    "SuccessTest",
    "SystemDecision",
    "SystemEvidence",
    "beyond_p_value",
    "budget_as_claim",
    "decide",
    "exceeds",
    "exit_code",
    "judge",
    "success_tests",
]


# Accountants invert by root finding; a budget this close to the claim is the claim.
_TOLERANCE = 1e-6
_NEARLY = 0.9
"""The share of what is accounted below which a report says why an exact figure does not reach it."""


@dataclass(frozen=True, kw_only=True)
class Accounted:
    """What is accounted for one claim, at the claim's δ."""

    rigorous: Budget | None
    """The budget that decides; None where no accountant has one."""
    excess: CurveExcess | None = None
    """Where the accounted curve exceeds that of a claim of μ-GDP most, at any δ; None where it does not."""
    paper: Budget | None = None
    """The budget under the paper's own reading, which decides nothing; None where it is the same."""
    not_applicable: str | None = None
    """Why the question does not arise, if it does not."""
    assumed: tuple[str, ...] = ()
    """Assumptions about ciphertexts, state or missing rounds that the budget rests on; nothing measures them."""
    refuted: str = ""
    """What shows that the budget is not that of the program that ran; empty where nothing does."""


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
    ledger: str = "the ledger"
    """The ledger that budgets are accounted from, in words: written by the user or by the engine."""


@dataclass(frozen=True, kw_only=True)
class CorrectedFinding:
    """A finding with what Holm's procedure over all tests of the report makes of it."""

    finding: Finding
    claim: Claim | None = None
    """The claim that it is about; None for a premise."""
    p_adjusted: float | None = None
    """None where the finding is no statistical test of a claim."""
    refutes: bool = False
    """Whether this test, or this figure that needs none, alone makes its claim violated."""

    @property
    def verdict(self) -> Verdict:
        """What it supports after the correction."""
        if not self.finding.compares:
            return self.finding.verdict
        return Verdict.VIOLATED if self.refutes else Verdict.CONSISTENT

    def refutes_also(self, claim: Claim) -> bool:
        """Whether a claim falls with the one that this finding refutes.

        It does if it is about the same view, and promises as much about a unit that includes the one that was measured:
        whoever keeps it keeps the refuted claim. That is logic and no further test, so nothing more is corrected for.
        """
        if self.claim is None or self.claim == claim or self.verdict is not Verdict.VIOLATED:
            return False
        unit = self.finding.unit or self.claim.unit
        same_view = claim.adversary == self.claim.adversary
        return same_view and claim.unit.implies(unit) and claim.promises_as_much_as(self.claim)


@dataclass(frozen=True, kw_only=True)
class SystemDecision:
    """The verdicts on one system: findings and claims about attacks in the order they were given."""

    findings: tuple[CorrectedFinding, ...]
    judgements: Mapping[str, Judgement]
    """By the claim's key."""
    successes: tuple[JudgedSuccess, ...]

    @property
    def verdicts(self) -> list[Verdict]:
        """All that count for the exit code: those on claims, premises that are broken, and those that decide alone."""
        claims = [j.verdict for j in self.judgements.values()] + [s.judgement.verdict for s in self.successes]
        premises = [c for c in self.findings if c.finding.claim is None]
        return claims + [c.verdict for c in premises if c.verdict is Verdict.VIOLATED or c.finding.decides_alone]

    def tests_of(self, claim: Claim) -> list[CorrectedFinding]:
        """What compares one claim with figures, and what refutes it by refuting another one; proofs come first."""
        tests = [c for c in self.findings if c.finding.compares and (c.claim == claim or c.refutes_also(claim))]
        return sorted(tests, key=lambda c: c.finding.is_test)

    def deciding(self, claim: Claim, min_trials: int = MIN_TRIALS) -> CorrectedFinding | None:
        """The test whose figure the verdict on a claim quotes, and reports show."""
        return _deciding(self.tests_of(claim), min_trials)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The verdicts of a whole report."""

    systems: Mapping[str, SystemDecision]
    """By the system's key."""
    tests: int
    """How many tests were corrected together."""
    exit_code: int


def decide(
    systems: Sequence[SystemEvidence], *, alpha: float, confidence: float = 0.95, trust_ledger: bool = False
) -> Decision:
    """From budgets and findings to corrected p-values, a verdict on every claim, and the exit code.

    All tests of all systems, those of claims about attacks included, are corrected together, so that the probability of
    one wrong refutation or more in the report is at most `alpha`. `confidence` is that of the findings' bounds. With
    `trust_ledger`, a claim that nothing measured does not count for the exit code.
    """
    _check(systems, alpha)
    raw = {(s.key, "finding", i): f.p_value for s in systems for i, f in enumerate(s.findings) if f.is_test}
    raw |= {(s.key, "attack", i): t.p_value for s in systems for i, t in enumerate(s.successes)}
    adjusted = dict(zip(raw, holm_adjusted([p for p in raw.values() if p is not None]), strict=True))
    decided = {}
    checked = sum(_finite_budgets(s) for s in systems)
    for s in systems:
        by_key = {claim.key: claim for claim in s.claims}
        findings = [
            _corrected(f, by_key, adjusted.get((s.key, "finding", i)), alpha, s.min_trials, confidence)
            for i, f in enumerate(s.findings)
        ]
        refuted = _refuted_budgets(s, findings, alpha / max(1, checked), confidence)
        findings += [CorrectedFinding(finding=finding) for finding in refuted.values()]
        decided[s.key] = SystemDecision(
            findings=tuple(findings),
            judgements={
                c.key: judge(
                    c,
                    replace(s.accounted[c.key], refuted=refuted[c.key].sentence if c.key in refuted else ""),
                    findings,
                    alpha=alpha,
                    confidence=confidence,
                    min_trials=s.min_trials,
                    ledger=s.ledger,
                )
                for c in s.claims
            },
            successes=tuple(
                judge_success(t, p_adjusted=adjusted[s.key, "attack", i], alpha=alpha, confidence=confidence)
                for i, t in enumerate(s.successes)
            ),
        )
    code = exit_code((v for d in decided.values() for v in d.verdicts), trust_ledger=trust_ledger)
    return Decision(systems=decided, tests=len(raw), exit_code=code)


def exit_code(verdicts: Iterable[Verdict], *, trust_ledger: bool = False) -> int:
    """1 if something is violated; 3 if something is unsupported or unmeasured, and nothing violated; 0 otherwise.

    With `trust_ledger`, claims that nothing measured do not count.

    >>> exit_code([Verdict.CONSISTENT, Verdict.UNSUPPORTED]), exit_code([])
    (3, 0)
    >>> exit_code([Verdict.UNMEASURED]), exit_code([Verdict.UNMEASURED], trust_ledger=True)
    (3, 0)
    """
    given = set(verdicts) - ({Verdict.UNMEASURED} if trust_ledger else set())
    return 1 if Verdict.VIOLATED in given else 3 if given & {Verdict.UNSUPPORTED, Verdict.UNMEASURED} else 0


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
    finding: Finding,
    claims: Mapping[str, Claim],
    p_adjusted: float | None,
    alpha: float,
    min_trials: int,
    confidence: float,
) -> CorrectedFinding:
    if finding.claim is None or not finding.compares:
        return CorrectedFinding(finding=finding, claim=claims.get(finding.claim or ""))
    claim = claims[finding.claim]
    if p_adjusted is None:
        assert finding.measurement is not None
        return CorrectedFinding(finding=finding, claim=claim, refutes=above(finding.measurement, claim))
    refutes = p_adjusted <= alpha and _enough(finding, min_trials) and _above(finding, claim)
    measuring = finding.measuring(claim, confidence)
    return CorrectedFinding(finding=measuring, claim=claim, p_adjusted=p_adjusted, refutes=refutes)


def _deciding(tests: Sequence[CorrectedFinding], min_trials: int) -> CorrectedFinding | None:
    """The strongest test, chosen by its kind; where it does not refute the claim and others do, the clearest of these.

    The choice looks at no outcome unless a claim is refuted: the largest of several 95 % bounds would hold with less
    than 95 % confidence.
    """
    pool = [test for test in tests if _enough(test.finding, min_trials)] or tests
    best = max((test for test in pool if test.finding.measurement is not None), key=_strength, default=None)
    refuting = [test for test in tests if test.refutes]
    if best in refuting and (best.finding.is_proof or not any(test.finding.is_proof for test in refuting)):
        return best
    # A figure that needs no statistics is clearer than any that does.
    return min(refuting, key=lambda test: (test.finding.p_value or 0.0, -test.finding.figure), default=best)


def _strength(test: CorrectedFinding) -> tuple[bool, int]:
    measurement = test.finding.measurement
    assert measurement is not None
    return measurement.exact, measurement.strength


ACCOUNTING = "accounting"
"""The name of findings that a measurement exceeds what is accounted."""


def _finite_budgets(system: SystemEvidence) -> int:
    """How many tests of a system are compared with a budget."""
    return sum(f.is_test and budget_as_claim(f.claim or "", system) is not None for f in system.findings)


def budget_as_claim(key: str, system: SystemEvidence) -> Claim | None:
    """The accounted budget of a claim's unit and view, as if it were the claim; None where it bounds nothing."""
    claim = next((c for c in system.claims if c.key == key), None)
    accounted = system.accounted.get(key)
    budget = None if accounted is None or accounted.not_applicable is not None else accounted.rigorous
    if claim is None or budget is None or not math.isfinite(budget.upper):
        return None
    if budget.mu is not None:
        return replace(claim, epsilon=budget.upper, mu=budget.mu, stated="mu")
    return replace(claim, epsilon=budget.upper, stated="epsilon")


def _refuted_budgets(
    system: SystemEvidence, tests: Sequence[CorrectedFinding], level: float, confidence: float
) -> dict[str, Finding]:
    """By claim, that the accounted budget is not one of the program that ran: a measurement lies above it.

    Each comparison is made at `level`, Bonferroni over those of the report: findings of this kind have a family-wise
    error of their own, since whether the claim itself is refuted does not rest on them.
    """
    refuted: dict[str, Finding] = {}
    for test in tests:
        accounted = None if test.claim is None or not test.finding.compares else budget_as_claim(test.claim.key, system)
        if test.claim is None or accounted is None or not _enough(test.finding, system.min_trials):
            continue
        compared = _against_budget(test, test.claim, accounted)
        known = compared is not None and (compared.p_value is not None or test.finding.is_proof)
        if compared is not None and known and (compared.p_value or 0.0) <= level:
            refuted.setdefault(test.claim.key, _beyond_budget(test, accounted, compared, confidence))
    return refuted


def _against_budget(test: CorrectedFinding, claim: Claim, accounted: Claim) -> ClaimTest | None:
    """The test of the accounted budget by a measurement; None where it is not above it, or cannot test it."""
    measurement = test.finding.measurement
    if measurement is None:
        return None
    if measurement.against is not None:
        compared = measurement.against(accounted)
    else:
        # The p-value is the claim's. It is also one of the budget if a program that keeps the budget keeps the claim.
        within = accounted.promises_as_much_as(claim)
        compared = ClaimTest(measurement.decides, measurement.figure, measurement.p_value if within else None)
    assumed = GAUSSIAN_NOISE in compared.assumptions
    limit = accounted.mu if compared.measure == MU else accounted.epsilon
    rounding = ROUNDING if measurement.proves else _TOLERANCE
    return None if assumed or compared.figure <= limit * (1 + rounding) else compared


def _beyond_budget(test: CorrectedFinding, accounted: Claim, compared: ClaimTest, confidence: float) -> Finding:
    limit = accounted.mu if compared.measure == MU else accounted.epsilon
    figure, bound = _apart(_NUMBERS[compared.measure], compared.figure, limit)
    proof = test.finding.is_proof
    sure = "without trials" if proof else f"at {level(confidence)} confidence"
    p = "" if proof else f", p {_p(compared.p_value)}"
    sentence = (
        f"the bound does not hold for the program that ran: {compared.measure} {_relation(test.finding)} {figure} was "
        f"measured {sure} ({test.finding.sentence}), and {compared.measure} ≤ {bound} is accounted from the ledger{p}"
    )
    return Finding(
        audit=ACCOUNTING,
        subject=accounted.key,
        verdict=Verdict.VIOLATED,
        sentence=sentence,
        figure=compared.figure,
        measure=compared.measure,
        claim_units=frozenset(),
        unit=test.finding.unit,
        adversary=test.finding.adversary,
        p_value=compared.p_value,
        trials=test.finding.trials,
    )


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
    confidence: float = 0.95,
    min_trials: int = MIN_TRIALS,
    ledger: str = "the ledger",
) -> Judgement:
    """What can be said of a claim. Findings that do not bear on it are left aside.

    * not applicable: the question does not arise, for the reason given;
    * violated: a figure that takes no statistics is above it, a test refutes it (rejected by Holm over the report at
      `alpha`, its lower bound above the claim), or a premise that the guarantee rests on does not hold in the run. A
      test with fewer than `min_trials` in a world never refutes: its p-value is valid, but so few trials are no
      evidence to publish;
    * unsupported: neither, but what can be accounted for rigorously exceeds the claim, or nothing can, or what was
      measured exceeds what is accounted;
    * unmeasured: neither, and the accounted budget is within the claim, but no test with enough trials and no check of
      values that left bears on it: all rests on the word of `ledger`; or the view is sent something that a trace does
      not explain;
    * consistent: the same, and something was measured. Not refuted is never verified. A budget that rests on an
      assumption about a ciphertext is unmeasured at best, since no test reads a ciphertext.

    `confidence` is that of the findings' bounds.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"Expected 0 < alpha={alpha:g} < 1.")
    budget = accounted.rigorous
    if budget is not None and budget.delta != claim.delta:
        raise ValueError(f"Expected a budget at the claim's delta={claim.delta:g}, found delta={budget.delta:g}.")
    if accounted.not_applicable is not None:
        return Judgement(Verdict.NOT_APPLICABLE, accounted.not_applicable)
    bearing = [c for c in findings if c.finding.bears_on(claim)]
    tests = [c for c in bearing if c.finding.compares]
    passed = [c for c in findings if c.refutes_also(claim)]
    broken = [c for c in (*bearing, *passed) if not c.finding.compares and c.verdict is Verdict.VIOLATED]
    refuting = [c for c in (*tests, *passed) if c.refutes]
    refutation = _refutation(claim, refuting, _deciding((*tests, *passed), min_trials), alpha, confidence)
    reasons, remarks = [*refutation, *(c.finding.sentence for c in broken)], _remarks(bearing)
    if reasons:
        return Judgement(Verdict.VIOLATED, "; ".join((*reasons, *remarks)))
    tested = _tested(claim, tests, alpha, confidence, min_trials)
    if budget is None:
        return Judgement(Verdict.UNSUPPORTED, f"no accountant gives an upper bound, and {tested}")
    if accounted.refuted:
        return Judgement(Verdict.UNSUPPORTED, "; ".join((accounted.refuted, tested, *remarks)))
    if accounted.excess is not None or exceeds(budget, claim):
        joined = f"{_above_claim(accounted, budget, claim)}, {'but' if tests else 'and'} {tested}"
        return Judgement(Verdict.UNSUPPORTED, "; ".join((joined + _paper(accounted.paper), *remarks)))
    return _within_claim(claim, accounted, budget, bearing, tested, min_trials, ledger)


def _within_claim(
    claim: Claim,
    accounted: Accounted,
    budget: Budget,
    bearing: Sequence[CorrectedFinding],
    tested: str,
    min_trials: int,
    ledger: str,
) -> Judgement:
    """Of a claim that nothing refutes and whose budget is within it: consistent, or unmeasured."""
    tests, remarks = [c for c in bearing if c.finding.compares], _remarks(bearing)
    within, checks = _comparison(budget, claim, exceeds=False), _checks(bearing)
    few = (tested,) if tests else ()
    unexplained = [c.finding for c in bearing if c.finding.claim is not None and c.verdict is Verdict.UNMEASURED]
    if unexplained:
        told = "; ".join(dict.fromkeys(finding.sentence + finding.note for finding in unexplained))
        return Judgement(Verdict.UNMEASURED, "; ".join((f"{within}, but {told}", tested, *remarks)))
    if accounted.assumed:
        rests = f"{within}, but it rests on an assumption: {'; '.join(accounted.assumed)}"
        return Judgement(Verdict.UNMEASURED, "; ".join((rests, *few, *remarks)))
    if any(_enough(c.finding, min_trials) for c in tests):
        return Judgement(Verdict.CONSISTENT, "; ".join((f"{within}, and {tested}", *_short_of(budget, tests))))
    if checks:
        return Judgement(Verdict.CONSISTENT, f"{within}, and {checks}; {tested}")
    nothing = "nothing that was measured speaks for it" if remarks else "nothing was measured"
    return Judgement(
        Verdict.UNMEASURED, "; ".join((f"{within}, as accounted from {ledger}; {nothing}", *few, *remarks))
    )


def _short_of(budget: Budget, tests: Sequence[CorrectedFinding]) -> list[str]:
    """What is to blame where the largest exact figure is well below what is accounted: the pair, or the bound."""
    exact = [c.finding.measurement for c in tests if c.finding.measurement and c.finding.measurement.proves]
    best = max((m for m in exact if m.exact), key=lambda m: m.figure, default=None)
    if best is None:
        return []
    accounted = budget.mu if best.decides == MU else budget.upper
    if accounted is None or not math.isfinite(accounted) or best.figure >= _NEARLY * accounted:
        return []
    blame = (
        "the bound counts more than a contribution at the clip moves"
        if best.facts.get(AT_CLIP)
        else "no pair that was looked for shows more, and nothing is known of the worst one"
    )
    return [f"that is {best.figure / accounted:.0%} of what is accounted: {blame}"]


def _checks(bearing: Sequence[CorrectedFinding]) -> str:
    """Which checks of values that left found nothing; empty if there was none."""
    held = Counter(
        c.finding.audit
        for c in bearing
        if c.finding.measures and not c.finding.compares and c.verdict is Verdict.CONSISTENT
    )
    names = [f"{audit} ({number} check{'s' if number > 1 else ''})" for audit, number in held.items()]
    return f"what was checked of its premises holds: {', '.join(names)}" if names else ""


def _remarks(bearing: Sequence[CorrectedFinding]) -> list[str]:
    """Of each audit that leaves a premise unsupported, the sentence with the largest figure."""
    largest: dict[str, Finding] = {}
    for finding in (c.finding for c in bearing if not c.finding.compares and c.verdict is Verdict.UNSUPPORTED):
        known = largest.get(finding.audit)
        largest[finding.audit] = finding if known is None or finding.figure > known.figure else known
    return [finding.sentence for finding in largest.values()]


def _refutation(
    claim: Claim,
    refuting: Sequence[CorrectedFinding],
    deciding: CorrectedFinding | None,
    alpha: float,
    confidence: float,
) -> list[str]:
    """The test that decides, in words, and figures of other audits that refute the claim, too; none if none does."""
    if deciding is None or not deciding.refutes:
        return []
    test, other = deciding.finding, deciding.claim or claim
    rejected = f", p {_p(test.p_value)}, rejected at a family-wise error of {level(alpha)} (Holm)"
    limit = _claimed(test, other)
    if limit is None:
        sentence = f"the {test.audit} audit refutes it: {test.sentence}{rejected}"
    else:
        measured, claimed = _apart(_NUMBERS[test.measure], test.figure, limit)
        shown = f"{test.measure} {_relation(test)} {measured}{_at(test, confidence)}"
        how = f"one pair of worlds shows {shown} without statistics" if test.is_proof else f"one test measured {shown}"
        sentence = f"{how}, above the claimed {test.measure} = {claimed}: {test.sentence}"
        sentence += "" if test.is_proof else rejected
    if other != claim:
        kept = f"whoever keeps this claim keeps {other.key}, about {other.unit.description}"
        sentence = f"{kept}, which does not hold: {sentence}"
    others = {c.finding.audit: c.finding for c in reversed(refuting) if c.finding.measure in _NUMBERS}
    others.pop(test.audit, None)
    also = [f"{audit} refutes it, too: {_figure(f)}{_at(f, confidence)}" for audit, f in sorted(others.items())]
    return [sentence, *also]


def _figure(test: Finding) -> str:
    return f"{test.measure} {_relation(test)} {_NUMBERS[test.measure](test.figure)}"


def _relation(test: Finding) -> str:
    return "≥" if test.measurement is None else test.measurement.relation


def _at(test: Finding, confidence: float) -> str:
    """At which confidence a bound holds; nothing of a figure that is certain."""
    if test.measurement is None:
        return f" at {level(confidence)} confidence"
    certain = test.measurement.exact or test.measurement.proves
    return "" if certain else f" at {level(test.measurement.confidence)} confidence"


_NUMBERS: Mapping[str, Callable[[float], str]] = {MU: mu, EPSILON: epsilon}
"""How bounds are written, by their measure."""


def _p(value: float | None) -> str:
    """A p-value after the letter p.

    >>> _p(0.0312), _p(0.0)
    ('= 0.031', '< 1e-300')
    """
    written = p_value(value or 0.0)
    return written.replace("<", "< ") if written.startswith("<") else f"= {written}"


def _tested(claim: Claim, tests: Sequence[CorrectedFinding], alpha: float, confidence: float, min_trials: int) -> str:
    """What was tested without refuting the claim."""
    if not tests:
        return "no trials were run"
    enough = [test for test in tests if _enough(test.finding, min_trials)]
    if not enough:
        most = max(test.finding.trials or 0 for test in tests)
        return f"there were too few trials to judge: {most} in each world, at least {min_trials} are wanted"
    outcome = "its one test does not refute it" if len(enough) == 1 else f"its {len(enough)} tests do not refute it"
    almost = _almost(enough, alpha, confidence)
    best = _deciding(enough, min_trials)
    if best is None:
        return f"{outcome} ({'; '.join(test.finding.sentence for test in enough)}){almost}"
    shown = f"{_figure(best.finding)}{_at(best.finding, confidence)}: {best.finding.sentence}"
    strongest = shown if len(enough) == 1 else f"the strongest of them shows {shown}"
    beyond = any(
        test.finding.measure in _NUMBERS and _above(test.finding, claim) for test in enough if not test.finding.is_proof
    )
    corrected = " after Holm's correction" if beyond and not almost else ""
    return f"{outcome} ({strongest}){corrected}{almost}"


def _almost(tests: Sequence[CorrectedFinding], alpha: float, confidence: float) -> str:
    """What is said where a test would refute the claim at the level of the intervals, and not at that of verdicts."""
    p = min((test.p_adjusted for test in tests if test.p_adjusted is not None), default=1.0)
    if not alpha < p <= 1 - confidence:
        return ""
    needed = f"below {level(1 - confidence)}, not below the {level(alpha)} that a verdict needs"
    return f", p {_p(p)} after Holm: {needed}; more trials would decide"


def exceeds(budget: Budget, claim: Claim) -> bool:
    """Whether the accounted budget is above the claim at the claim's δ."""
    # Where the curve is Gaussian, mu is the whole of it; elsewhere, and against a claim of pure epsilon, which no
    # Gaussian curve keeps, epsilon can only be compared at the claim's delta.
    pure = budget.mu is None or claim.delta == 0
    upper, claimed = (budget.upper, claim.epsilon) if pure else (budget.mu or 0.0, claim.mu)
    return upper > claimed * (1 + _TOLERANCE)


def _above_claim(accounted: Accounted, budget: Budget, claim: Claim) -> str:
    """How the accounted budget exceeds the claim: at the claim's δ, or elsewhere on the claimed curve."""
    excess = accounted.excess
    if excess is None or exceeds(budget, claim):
        return _comparison(budget, claim, exceeds=True)
    upper, claimed = _apart(epsilon, excess.accounted, excess.claimed)
    here = f"at δ = {delta(claim.delta)}, where accounted ε ≤ {epsilon(budget.upper)}, it does not"
    return (
        f"accounted ε ≤ {upper} exceeds ε = {claimed} of the claimed curve μ = {mu(claim.mu)} "
        f"at δ = {delta(excess.delta)} ({here})"
    )


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
