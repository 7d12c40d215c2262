"""The decision at its margins: which test is quoted, what budgets are compared with, and numbers that just decide."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.audits.test_verdict import CLAIM, DELTA, about, bounded, claimed, evidence, gaussian, premise
from vflpriv.audits.verdict import (
    ACCOUNTING,
    Accounted,
    CorrectedFinding,
    Decision,
    SystemEvidence,
    decide,
    exceeds,
    exit_code,
    judge,
)
from vflpriv.core.audit import EPSILON, MU, ClaimTest, Finding, Measurement
from vflpriv.core.budgets import CurveExcess
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

LOOSE = about("loose", Unit.RECORD, 10.0)


def meter(
    claim: Claim,
    *,
    figure: float,
    p: float | None,
    measure: str = EPSILON,
    against: Callable[[Claim], ClaimTest] | None = None,
    audit: str = "meter",
    strength: int = 0,
    trials: int | None = None,
    verdict: Verdict = Verdict.CONSISTENT,
) -> Finding:
    """A test of a claim by a bound that some instrument read."""
    measurement = Measurement(
        unit=claim.unit,
        view=Adversary.parse("device"),
        method=audit,
        outcome="the meter read",
        decides=measure,
        mu=figure if measure == MU else None,
        epsilon=figure if measure == EPSILON else None,
        delta=claim.delta,
        p_value=p,
        against=against,
        strength=strength,
    )
    return Finding(
        audit=audit,
        subject=f"{audit} {figure}",
        verdict=verdict,
        sentence=f"the {audit} read {figure}",
        figure=figure,
        measure=measure,
        claim=claim.key,
        p_value=p,
        trials=trials,
        measurement=measurement,
    )


def decided(
    *findings: Finding, upper: float = 20.0, claims: tuple[Claim, ...] = (LOOSE,), alpha: float = 0.01
) -> Decision:
    accounted = {claim.key: Accounted(rigorous=bounded(upper)) for claim in claims}
    return decide([SystemEvidence(key="s", claims=claims, accounted=accounted, findings=findings)], alpha=alpha)


def refuted_budgets(decision: Decision) -> list[str]:
    return [c.finding.subject for c in decision.systems["s"].findings if c.finding.audit == ACCOUNTING]


def above(p: float, figure: float = 3.0, measure: str = EPSILON) -> Callable[[Claim], ClaimTest]:
    """Of any claim the same figure and p-value."""
    return lambda claim: ClaimTest(measure, figure, p)


def test_the_levels_are_open_intervals() -> None:
    for alpha in (0.0, 1.0):
        with pytest.raises(ValueError, match="< 1"):
            decide([], alpha=alpha)
        with pytest.raises(ValueError, match="< 1"):
            judge(CLAIM, Accounted(rigorous=None), (), alpha=alpha)


def test_what_nothing_measured_counts_unless_told_otherwise() -> None:
    assert exit_code([Verdict.UNMEASURED]) == 3


@pytest.mark.parametrize(("p", "figure", "refuted"), [(0.01, 10.5, True), (0.0101, 10.5, False), (0.01, 10.0, False)])
def test_a_test_refutes_at_its_level_if_its_figure_is_above_the_claim(p: float, figure: float, refuted: bool) -> None:
    decision = decided(meter(LOOSE, figure=figure, p=p), alpha=0.01).systems["s"]
    assert decision.findings[0].refutes == refuted
    assert (decision.judgements["loose"].verdict is Verdict.VIOLATED) == refuted


@pytest.mark.parametrize(("p", "number", "refuted"), [(0.01, 1, True), (0.006, 2, False), (0.005, 2, True)])
def test_budgets_are_compared_at_the_level_that_their_number_leaves(p: float, number: int, refuted: bool) -> None:
    """Bonferroni over the comparisons, of which findings that are no tests of a finite budget are none."""
    tests = [meter(LOOSE, figure=3.0, p=1.0, against=above(p)) for _ in range(number)]
    others = [premise("holds", verdict=Verdict.CONSISTENT), meter(LOOSE, figure=0.5, p=None)]
    unbounded = about("unbounded", Unit.LABEL, 5.0)
    nothing = meter(unbounded, figure=3.0, p=1.0)
    accounted = {"loose": Accounted(rigorous=bounded(1.0)), "unbounded": Accounted(rigorous=bounded(math.inf))}
    given = SystemEvidence(key="s", claims=(LOOSE, unbounded), accounted=accounted, findings=[*tests, *others, nothing])
    assert refuted_budgets(decide([given], alpha=0.01)) == (["loose"] if refuted else [])


def test_a_budget_of_what_does_not_apply_is_compared_with_nothing() -> None:
    test = meter(LOOSE, figure=3.0, p=1.0, against=above(1e-9))
    accounted = {"loose": Accounted(rigorous=bounded(1.0), not_applicable="nothing to protect")}
    given = SystemEvidence(key="s", claims=(LOOSE,), accounted=accounted, findings=(test,))
    assert refuted_budgets(decide([given], alpha=0.01)) == []


@pytest.mark.parametrize(("figure", "refuted"), [(0.5, False), (1.0 + 5e-5, False), (1.001, True)])
def test_a_figure_that_is_certain_refutes_a_budget_below_it_without_a_level(figure: float, refuted: bool) -> None:
    proof = meter(LOOSE, figure=figure, p=None)
    assert refuted_budgets(decided(proof, upper=1.0)) == (["loose"] if refuted else [])


@pytest.mark.parametrize(("figure", "refuted"), [(1.0, False), (1.0 + 5e-7, False), (1.0 + 2e-6, True), (1.5, True)])
def test_a_budget_is_exceeded_beyond_the_tolerance_of_root_finding(figure: float, refuted: bool) -> None:
    test = meter(LOOSE, figure=figure, p=1.0, against=above(1e-9, figure))
    assert bool(refuted_budgets(decided(test, upper=1.0))) == refuted


def test_a_measured_mu_is_compared_with_the_accounted_mu() -> None:
    """ε = 1 of a Gaussian curve at δ = 1e-3 has μ = 0.388: a measured μ of 0.5 is above it, and 0.3 below."""
    for figure, refuted in ((0.3, False), (0.5, True)):
        test = meter(LOOSE, figure=figure, p=1.0, against=above(1e-9, figure, MU), measure=MU)
        given = {"loose": Accounted(rigorous=gaussian(0.388401))}
        system = SystemEvidence(key="s", claims=(LOOSE,), accounted=given, findings=(test,))
        assert bool(refuted_budgets(decide([system], alpha=0.01))) == refuted


def test_the_p_value_of_a_claim_is_one_of_a_budget_that_keeps_it() -> None:
    """A measurement that tests nothing but its claim refutes a budget within the claim, and none beyond it."""
    test = meter(LOOSE, figure=30.0, p=1e-9)
    assert refuted_budgets(decided(test, upper=8.0)) == ["loose"]
    assert refuted_budgets(decided(test, upper=12.0)) == []


def test_the_clearest_refutation_is_quoted_where_the_strongest_test_does_not_refute() -> None:
    strongest = meter(LOOSE, figure=1.0, p=1.0, strength=9)
    refuting = [meter(LOOSE, figure=figure, p=p) for figure, p in ((11.0, 1e-4), (13.0, 1e-9), (12.0, 1e-9))]
    decision = decided(strongest, *refuting).systems["s"]
    deciding = decision.deciding(LOOSE)
    assert deciding is not None
    assert deciding.finding.figure == 13.0
    assert decision.judgements["loose"].reason.startswith("one test measured ε ≥ 13.0 at")


def test_the_strongest_test_with_enough_trials_is_shown_whatever_it_found() -> None:
    few = meter(LOOSE, figure=4.0, p=1.0, strength=9, trials=5)
    strong, weak = meter(LOOSE, figure=1.0, p=1.0, strength=2, trials=50), meter(LOOSE, figure=2.0, p=1.0, trials=50)
    shown = decided(few, weak, strong).systems["s"].deciding(LOOSE)
    assert shown is not None
    assert shown.finding.figure == 1.0
    alone = decided(few).systems["s"].deciding(LOOSE)
    assert alone is not None
    assert alone.finding.figure == 4.0


def test_a_proof_against_a_claim_falls_on_those_that_imply_it() -> None:
    features, record = about("features", Unit.FEATURES, 10.0), about("record", Unit.RECORD, 10.0)
    proof = meter(features, figure=30.0, p=None, verdict=Verdict.VIOLATED)
    decision = decided(proof, claims=(features, record)).systems["s"]
    assert decision.judgements["record"].verdict is Verdict.VIOLATED


def test_other_audits_that_refute_are_named_and_those_that_do_not_are_not() -> None:
    rows = replace(meter(LOOSE, figure=9.0, p=1e-9, audit="rows"), measure="rows", measurement=None)
    tests = [
        meter(LOOSE, figure=30.0, p=1e-9, strength=3, audit="first"),
        meter(LOOSE, figure=20.0, p=1e-9, audit="second"),
        meter(LOOSE, figure=9.0, p=1.0, audit="third"),
        rows,
    ]
    reason = decided(*tests).systems["s"].judgements["loose"].reason
    assert reason.startswith("one test measured ε ≥ 30.0 at 95 % confidence")
    assert reason.endswith("(Holm); second refutes it, too: ε ≥ 20.0 at 95 % confidence")


def test_a_figure_that_is_exact_is_written_so() -> None:
    test = meter(LOOSE, figure=30.0, p=1e-9)
    assert test.measurement is not None
    exact = replace(test, measurement=replace(test.measurement, exact=True))
    assert decided(exact).systems["s"].judgements["loose"].reason.startswith("one test measured ε = 30.0, above")
    plain = CorrectedFinding(finding=replace(test, measurement=None), p_adjusted=1e-9, refutes=True)
    by_hand = CorrectedFinding(finding=exact, p_adjusted=1e-9, refutes=True)
    reason = judge(
        LOOSE,
        Accounted(rigorous=None),
        [by_hand, replace(plain, finding=replace(plain.finding, audit="b"))],
        alpha=0.05,
    ).reason
    assert reason.endswith("b refutes it, too: ε ≥ 30.0 at 95 % confidence")


def test_of_equal_figures_the_first_remark_is_quoted() -> None:
    weak = [premise(sentence, audit="state", verdict=Verdict.UNSUPPORTED) for sentence in ("first", "second")]
    decision = decide([evidence(*weak, accounted=bounded(0.9))], alpha=0.05)
    assert decision.systems["system"].judgements["test"].reason.endswith("; first")


def test_too_few_trials_are_counted_by_the_test_with_most() -> None:
    tests = [meter(LOOSE, figure=4.0, p=1.0, trials=trials) for trials in (5, 8, 7)]
    reason = decided(*tests).systems["s"].judgements["loose"].reason
    assert "there were too few trials to judge: 8 in each world, at least 30 are wanted" in reason


def corrected(figure: float, p_adjusted: float, claim: Claim = LOOSE) -> CorrectedFinding:
    return CorrectedFinding(finding=meter(claim, figure=figure, p=p_adjusted), claim=claim, p_adjusted=p_adjusted)


@pytest.mark.parametrize(
    ("tests", "alpha", "said"),
    [
        ([(11.0, 0.5), (9.0, 0.5)], 0.001, " after Holm's correction"),
        ([(9.0, 0.5), (9.5, 0.5)], 0.001, "read 9.0)"),
        ([(9.0, 0.5), (11.0, 0.03)], 0.001, ", p = 0.030 after Holm: below 5 %, not below the 0.1 % that a verdict "),
        ([(9.0, 0.0), (11.0, 0.03)], 0.001, " after Holm's correction"),
        ([(9.0, 0.001)], 0.001, "read 9.0)"),
        ([(9.0, 1 - 0.95)], 0.001, ", p = 0.050 after Holm: below 5 %"),
        ([(9.0, 0.051)], 0.001, "read 9.0)"),
    ],
)
def test_a_test_that_almost_refutes_is_said_to(tests: list[tuple[float, float]], alpha: float, said: str) -> None:
    given = Accounted(rigorous=bounded(5.0))
    reason = judge(LOOSE, given, [corrected(figure, p) for figure, p in tests], alpha=alpha).reason
    assert said in reason
    assert ("more trials would decide" in reason) == ("after Holm:" in said)
    assert ("correction" in reason) == ("correction" in said)


def test_budgets_are_compared_by_epsilon_where_the_claim_is_pure_and_by_mu_elsewhere() -> None:
    """No Gaussian curve keeps a pure ε, however small its μ beside that of randomised response with this ε."""
    pure = claimed(1.0, 0.0)
    budget = replace(gaussian(0.01, 1e-9), delta=0.0, upper=math.inf)
    assert budget.mu is not None
    assert budget.mu < pure.mu
    assert exceeds(budget, pure)
    assert not exceeds(gaussian(0.0), CLAIM)
    small = Claim.of_mu(0.5, DELTA, key="m", source="-", where="-", statement="μ", unit=Unit.RECORD, view="device")
    assert not exceeds(gaussian(0.5), small)
    assert exceeds(gaussian(0.5 + 2e-6), small)


def test_a_budget_beyond_the_claim_here_and_elsewhere_is_compared_here() -> None:
    excess = CurveExcess(delta=0.1, accounted=0.85, claimed=0.03)
    given = Accounted(rigorous=bounded(2.0), excess=excess)
    assert judge(CLAIM, given, (), alpha=0.05).reason.startswith("accounted ε ≤ 2.00 exceeds the claimed ε = 1.00")
