"""The decision: Holm's correction, the verdict on a claim with the sentence a reviewer quotes, and the exit code."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from vflpriv.audits.statistics.bounds import Errors, epsilon_error_rate, mu_error_rate, p_value_dp, p_value_gdp
from vflpriv.audits.statistics.significance import holm_adjusted
from vflpriv.audits.two_world.findings import describe_trials
from vflpriv.audits.verdict import (
    ACCOUNTING,
    Accounted,
    CorrectedFinding,
    SuccessTest,
    SystemEvidence,
    decide,
    exit_code,
    judge,
)
from vflpriv.core.audit import EPSILON, MU, AuditContext, ClaimTest, Finding, Measurement, measured, untested
from vflpriv.core.budgets import Budget, CurveExcess, epsilon_of
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.claims import Claim, Judgement, SuccessClaim, Verdict
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

DELTA = 1e-3


def claimed(epsilon: float, delta: float = DELTA) -> Claim:
    return Claim.of_epsilon(
        epsilon, delta, key="test", source="-", where="-", statement="(ε, δ)", unit=Unit.RECORD, view="device"
    )


CLAIM = claimed(1.0)


def gaussian(mu: float, delta: float = DELTA) -> Budget:
    epsilon = epsilon_of(mu, delta)
    return Budget(accountant="gdp", method="exact", delta=delta, lower=epsilon, estimate=epsilon, upper=epsilon, mu=mu)


def bounded(upper: float) -> Budget:
    return Budget(accountant="prv", method="fft", delta=DELTA, lower=0.0, estimate=min(upper, 1e9), upper=upper)


def outcome(
    fp: int, fn: int, *, canary: str = "worst-case", view: str = "device(0)", epsilon: float | None = None
) -> CorrectedFinding:
    """A test of CLAIM's mu with 500 trials in each world, or of an epsilon for any shape, as if it were alone."""
    errors = Errors(false_positives=fp, negatives=500, false_negatives=fn, positives=500)
    p = p_value_gdp(errors, CLAIM.mu) if epsilon is None else p_value_dp(errors, epsilon, DELTA)
    lower = mu_error_rate(errors, 0.95) if epsilon is None else epsilon_error_rate(errors, DELTA, 0.95)
    claimed_bound = CLAIM.mu if epsilon is None else epsilon
    finding = Finding(
        audit="two-world",
        subject=canary,
        verdict=Verdict.CONSISTENT,
        sentence=describe_trials(CanaryKind(canary), Adversary.parse(view), errors),
        figure=lower,
        measure=MU if epsilon is None else EPSILON,
        claim="test",
        p_value=p,
        trials=500,
    )
    measuring = finding.measuring(CLAIM, 0.95)
    assert measuring.measurement is not None
    strength = list(CanaryKind).index(CanaryKind(canary))
    finding = replace(measuring, measurement=replace(measuring.measurement, strength=strength))
    refutes = p <= 0.05 and (lower or 0.0) > claimed_bound
    return CorrectedFinding(finding=finding, p_adjusted=p, refutes=refutes)


def changed(test: CorrectedFinding, *, refutes: bool | None = None, **changes: object) -> CorrectedFinding:
    finding = replace(test.finding, **changes)  # type: ignore[arg-type]
    return replace(test, finding=finding, refutes=test.refutes if refutes is None else refutes)


def premise(sentence: str, **changes: object) -> Finding:
    """A check that found a premise broken."""
    settings = {"audit": "sensitivity", "subject": "x", "verdict": Verdict.VIOLATED, "figure": 1.0, "measure": "L2"}
    return Finding(sentence=sentence, **settings | changes)  # type: ignore[arg-type]


def say(
    *tests: CorrectedFinding,
    accounted: Budget | None = None,
    paper: Budget | None = None,
    broken: str | None = None,
    claim: Claim = CLAIM,
    reason: str | None = None,
) -> Judgement:
    premises = [] if broken is None else [CorrectedFinding(finding=premise(broken))]
    given = Accounted(rigorous=accounted, paper=paper, not_applicable=reason)
    return judge(claim, given, [*tests, *premises], alpha=0.05)


STRONG, MILD, WEAK = outcome(60, 71), outcome(180, 190, canary="crafted"), outcome(240, 236, canary="natural")
BROKEN = "the sensitivity search found a witness beyond the declared bound: dpzv moved by 3.2, declared 0.5"


def evidence(*findings: Finding, accounted: Budget | None = None, **changes: object) -> SystemEvidence:
    """One system with CLAIM and these findings."""
    budgets = {"test": Accounted(rigorous=accounted)}
    given = [replace(finding, measurement=None) for finding in findings]
    return replace(
        SystemEvidence(key="system", claims=(CLAIM,), accounted=budgets, findings=given),
        **changes,  # type: ignore[arg-type]
    )


def judged(*findings: Finding, accounted: Budget | None = None, **changes: object) -> Judgement:
    decision = decide([evidence(*findings, accounted=accounted, **changes)], alpha=0.05)
    return decision.systems["system"].judgements["test"]


def test_a_test_that_refutes_is_quoted_with_its_numbers() -> None:
    assert say(WEAK, STRONG, MILD, accounted=gaussian(4.495)) == Judgement(
        Verdict.VIOLATED,
        "one test measured μ ≥ 2.074 at 95 % confidence, above the claimed μ = 0.388: worst-case canary, "
        "view device(0), 131 errors in 2 × 500 trials, p = 6.4e-90, rejected at a family-wise error of 5 % (Holm)",
    )


def test_a_test_refutes_whatever_was_accounted() -> None:
    assert say(STRONG, accounted=gaussian(0.1)).verdict is Verdict.VIOLATED
    assert say(STRONG).verdict is Verdict.VIOLATED


def test_what_holm_does_not_reject_refutes_nothing() -> None:
    test = outcome(195, 200)
    assert test.finding.figure > CLAIM.mu
    kept = changed(test, refutes=False)
    assert say(kept, accounted=gaussian(0.38)) == Judgement(
        Verdict.CONSISTENT,
        "accounted ε ≤ 0.97 (μ = 0.380) is within the claimed ε = 1.00 (μ = 0.388) at δ = 1e-3, and its one test does "
        "not refute it (μ ≥ 0.398 at 95 % confidence: worst-case canary, view device(0), 395 errors in 2 × 500 "
        "trials) after Holm's correction",
    )


def test_a_handful_of_trials_is_never_quoted_as_a_refutation() -> None:
    sentence = "worst-case canary, view device(0), 0 errors in 2 × 8 trials"
    test = replace(STRONG.finding, sentence=sentence, trials=8, figure=1.2, p_value=1e-4)
    assert judged(test, accounted=gaussian(4.495)) == Judgement(
        Verdict.UNSUPPORTED,
        "accounted ε ≤ 23.2 (μ = 4.495) exceeds the claimed ε = 1.00 (μ = 0.388) at δ = 1e-3, but there were too few "
        "trials to judge: 8 in each world, at least 30 are wanted",
    )
    assert judged(test, STRONG.finding).verdict is Verdict.VIOLATED
    assert judged(replace(test, trials=30)).verdict is Verdict.VIOLATED
    assert judged(test, min_trials=8) == Judgement(
        Verdict.VIOLATED,
        "one test measured μ ≥ 1.200 at 95 % confidence, above the claimed μ = 0.388: worst-case canary, view "
        "device(0), 0 errors in 2 × 8 trials, p = 1.0e-4, rejected at a family-wise error of 5 % (Holm)",
    )


def test_a_test_in_one_run_is_quoted_in_its_own_words() -> None:
    sentence = "one run, view devices(all), 90 of 90 coins guessed, 900 canaries"
    test = replace(STRONG.finding, sentence=sentence, trials=90)
    assert sentence in judged(test).reason
    assert judged(replace(test, trials=20)).verdict is Verdict.UNSUPPORTED


def test_a_rejection_whose_bound_is_not_above_the_claim_refutes_nothing() -> None:
    odd = replace(WEAK.finding, figure=0.3, p_value=0.01)
    assert judged(odd, accounted=gaussian(0.38)).verdict is Verdict.CONSISTENT


def test_a_broken_premise_violates_alone_and_beside_a_test() -> None:
    assert say(broken=BROKEN, accounted=gaussian(0.1)) == Judgement(Verdict.VIOLATED, BROKEN)
    both = say(STRONG, broken=BROKEN)
    assert both.reason.startswith("one test measured μ ≥ 2.074")
    assert both.reason.endswith(f"; {BROKEN}")


def test_unsupported_says_both_numbers_and_that_trials_did_not_show_it() -> None:
    assert say(WEAK, outcome(250, 255), accounted=gaussian(4.495), paper=gaussian(CLAIM.mu)) == Judgement(
        Verdict.UNSUPPORTED,
        "accounted ε ≤ 23.2 (μ = 4.495) exceeds the claimed ε = 1.00 (μ = 0.388) at δ = 1e-3, but its 2 tests do not "
        "refute it (the strongest of them shows μ ≥ 0 at 95 % confidence: worst-case canary, view device(0), 505 "
        "errors in 2 × 500 trials); the paper's own reading gives ε ≤ 1.00",
    )


def test_unsupported_without_trials_without_an_end_and_without_an_accountant() -> None:
    assert say(accounted=bounded(1.63)) == Judgement(
        Verdict.UNSUPPORTED,
        "accounted ε ≤ 1.63 exceeds the claimed ε = 1.00 at δ = 1e-3, and no trials were run",
    )
    assert say(accounted=bounded(math.inf)) == Judgement(
        Verdict.UNSUPPORTED,
        "no finite ε can be accounted for at δ = 1e-3, against the claimed ε = 1.00, and no trials were run",
    )
    assert say() == Judgement(Verdict.UNSUPPORTED, "no accountant gives an upper bound, and no trials were run")


def test_consistent_is_never_verified() -> None:
    found = say(WEAK, accounted=bounded(0.9))
    assert found == Judgement(
        Verdict.CONSISTENT,
        "accounted ε ≤ 0.90 is within the claimed ε = 1.00 at δ = 1e-3, and its one test does not refute it (μ ≥ 0 at "
        "95 % confidence: natural canary, view device(0), 476 errors in 2 × 500 trials)",
    )
    assert "verif" not in found.reason


@pytest.mark.parametrize(("factor", "word"), [(1 + 5e-7, Verdict.UNMEASURED), (1 + 2e-6, Verdict.UNSUPPORTED)])
def test_a_budget_as_close_as_root_finding_is_the_claim(factor: float, word: Verdict) -> None:
    assert say(accounted=gaussian(CLAIM.mu * factor)).verdict is word
    assert say(accounted=bounded(CLAIM.epsilon * factor)).verdict is word


def test_the_certified_end_decides_not_the_estimate() -> None:
    wide = Budget(accountant="prv", method="fft", delta=DELTA, lower=0.5, estimate=0.9, upper=1.1)
    assert say(accounted=wide).verdict is Verdict.UNSUPPORTED


def test_mu_decides_where_the_curve_is_gaussian_even_if_epsilon_is_zero() -> None:
    """At a delta this large both mu have epsilon = 0, and still the curve lies below the claimed one."""
    lax = Claim.of_mu(0.1, 0.2, key="lax", source="-", where="-", statement="μ", unit=Unit.RECORD, view="device")
    assert lax.epsilon == gaussian(0.2, 0.2).upper == 0.0
    assert say(claim=lax, accounted=gaussian(0.2, 0.2)) == Judgement(
        Verdict.UNSUPPORTED,
        "accounted ε ≤ 0 (μ = 0.200) exceeds the claimed ε = 0 (μ = 0.100) at δ = 0.2, and no trials were run",
    )


def test_numbers_that_differ_are_seen_to_differ() -> None:
    assert say(accounted=bounded(1.00003)).reason.startswith("accounted ε ≤ 1.00003 exceeds the claimed ε = 1 ")


def test_an_infinite_claim_is_never_exceeded() -> None:
    found = say(accounted=bounded(math.inf), claim=claimed(math.inf))
    assert found == Judgement(
        Verdict.UNMEASURED,
        "accounted ε ≤ ∞ is within the claimed ε = ∞ at δ = 1e-3, as accounted from the ledger; nothing was measured",
    )


def test_not_applicable_gives_the_reason_and_nothing_else() -> None:
    found = say(STRONG, accounted=gaussian(4.495), broken=BROKEN, reason="the server holds the labels")
    assert found == Judgement(Verdict.NOT_APPLICABLE, "the server holds the labels")


def test_an_epsilon_claim_of_another_shape_is_refuted_by_epsilon_alone() -> None:
    """Randomised response with epsilon = 1, on the nose: its mu is far above mu_of(1, 1e-3), which refutes nothing."""
    kept = outcome(134, 135, canary="natural", view="device", epsilon=1.0)
    assert not kept.refutes
    assert say(kept, accounted=bounded(1.0)) == Judgement(
        Verdict.CONSISTENT,
        "accounted ε ≤ 1.00 is within the claimed ε = 1.00 at δ = 1e-3, and its one test does not refute it (ε ≥ 0.88 "
        "at 95 % confidence: natural canary, view device, 269 errors in 2 × 500 trials)",
    )
    refuting = outcome(134, 135, canary="natural", view="device", epsilon=0.5)
    assert say(refuting, claim=claimed(0.5), accounted=bounded(0.5)) == Judgement(
        Verdict.VIOLATED,
        "one test measured ε ≥ 0.88 at 95 % confidence, above the claimed ε = 0.50: natural canary, view device, "
        "269 errors in 2 × 500 trials, p = 3.2e-13, rejected at a family-wise error of 5 % (Holm)",
    )


def test_unequal_trials_are_written_out() -> None:
    errors = Errors(false_positives=1, negatives=300, false_negatives=0, positives=200)
    sentence = describe_trials(CanaryKind.WORST_CASE, Adversary.parse("device(0)"), errors)
    test = changed(STRONG, sentence=sentence, p_value=1e-9)
    assert "worst-case canary, view device(0), 1 error in 200 + 300 trials, p = 1.0e-9" in say(test).reason


def test_a_p_value_too_small_to_write_is_bounded() -> None:
    assert "trials, p < 1e-300, rejected" in say(changed(STRONG, p_value=0.0)).reason


def test_budgets_at_another_delta_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected a budget at the claim's delta=0\.001, found delta=1e-05\."):
        say(accounted=gaussian(0.3, 1e-5))
    with pytest.raises(ValueError, match="Expected 0 < alpha=0 < 1"):
        judge(CLAIM, Accounted(rigorous=None), (), alpha=0.0)
    with pytest.raises(ValueError, match="Expected 0 < alpha=1 < 1"):
        decide([], alpha=1.0)


def test_p_values_of_all_systems_are_corrected_together_and_stay_with_their_findings() -> None:
    findings = [replace(STRONG.finding, p_value=p, subject=str(p)) for p in (0.03, 0.01, 0.04)]
    success = SuccessTest(claim=RARE, success=None, refusal=None, classes=10)
    systems = [evidence(findings[0], premise("holds", verdict=Verdict.CONSISTENT, p_value=1e-9), findings[1], key="a")]
    systems += [evidence(findings[2], key="b", successes=(success,))]
    decision = decide(systems, alpha=0.05)
    corrected = [c for s in ("a", "b") for c in decision.systems[s].findings]
    assert [c.finding.sentence for c in corrected] == [f.sentence for s in systems for f in s.findings]
    assert [c.finding.subject for c in corrected] == [f.subject for s in systems for f in s.findings]
    first, second, third, nothing = holm_adjusted([0.03, 0.01, 0.04, 1.0])
    assert [c.p_adjusted for c in corrected] == [first, None, second, third]
    assert decision.systems["b"].successes[0].p_adjusted == nothing
    assert [c.refutes for c in corrected] == [False, False, True, False]
    assert decision.systems["a"].tests_of(CLAIM) == [corrected[0], corrected[2]]


RARE = SuccessClaim(
    key="rare",
    source="-",
    where="-",
    statement="-",
    unit=Unit.LABEL,
    adversary=Adversary.parse("device"),
    attack="label_direct",
    rate=0.1,
    classes=10,
)


@pytest.mark.parametrize(
    ("system", "code"),
    [
        (evidence(STRONG.finding, accounted=bounded(0.9)), 1),
        (evidence(WEAK.finding, accounted=bounded(1.1)), 3),
        (evidence(WEAK.finding, accounted=bounded(0.9)), 0),
        (evidence(premise(BROKEN), accounted=bounded(0.9)), 1),
        (evidence(claims=(), accounted=None), 0),
        (evidence(premise(BROKEN), claims=()), 1),
        (evidence(premise("holds", verdict=Verdict.CONSISTENT), claims=()), 0),
        (evidence(premise("open", verdict=Verdict.UNSUPPORTED), claims=()), 0),
        (evidence(accounted=bounded(0.9)), 3),
        (evidence(claims=(), successes=(SuccessTest(claim=RARE, success=None, refusal=None, classes=10),)), 3),
        (evidence(claims=(), successes=(SuccessTest(claim=RARE, success=None, refusal=None, classes=2),)), 0),
    ],
    ids=[
        "violated",
        "unsupported",
        "consistent",
        "broken premise",
        "no claims",
        "broken premise without a claim",
        "premise without a claim",
        "unsupported premise without a claim",
        "unmeasured",
        "attack not run",
        "attack on other data",
    ],
)
def test_the_exit_code(system: SystemEvidence, code: int) -> None:
    assert decide([system], alpha=0.05).exit_code == code
    sound = evidence(WEAK.finding, accounted=bounded(0.9), key="sound")
    assert decide([sound, system], alpha=0.05).exit_code == code


@pytest.mark.parametrize(
    ("verdict", "code"),
    [(Verdict.VIOLATED, 1), (Verdict.UNSUPPORTED, 3), (Verdict.CONSISTENT, 0), (Verdict.NOT_APPLICABLE, 0)],
)
def test_the_ledger_of_a_recorded_system_counts_by_itself_and_for_no_claim(verdict: Verdict, code: int) -> None:
    check = premise("messages", audit="ledger", verdict=verdict, claim_units=frozenset(), decides_alone=True)
    assert decide([evidence(check, claims=())], alpha=0.05).exit_code == code
    decision = decide([evidence(check, WEAK.finding, accounted=bounded(0.9))], alpha=0.05)
    assert decision.systems["system"].judgements["test"].verdict is Verdict.CONSISTENT
    assert decision.exit_code == code


def test_the_exit_code_takes_the_gravest_verdict() -> None:
    assert exit_code([Verdict.UNSUPPORTED, Verdict.VIOLATED, Verdict.CONSISTENT]) == 1
    assert exit_code([Verdict.NOT_APPLICABLE, Verdict.CONSISTENT]) == 0


@pytest.mark.parametrize(("units", "violated"), [(None, True), ({Unit.RECORD}, True), ({Unit.LABEL}, False)])
def test_a_premise_bears_on_the_claims_about_its_units(units: set[Unit] | None, violated: bool) -> None:
    broken = premise(BROKEN, claim_units=None if units is None else frozenset(units))
    assert (judged(broken, accounted=bounded(0.9)).verdict is Verdict.VIOLATED) == violated


def test_an_unsupported_premise_is_quoted_by_its_largest_figure_and_decides_nothing() -> None:
    weaker, stronger = (
        premise(f"moved by {figure}", audit="server-state", figure=figure, verdict=Verdict.UNSUPPORTED)
        for figure in (1.0, 2.0)
    )
    assert judged(weaker, stronger, accounted=bounded(1.1)).reason.endswith("no trials were run; moved by 2.0")
    within = "accounted ε ≤ 0.90 is within the claimed ε = 1.00 at δ = 1e-3"
    assert judged(weaker, stronger, accounted=bounded(0.9)) == Judgement(
        Verdict.UNMEASURED,
        f"{within}, as accounted from the ledger; nothing that was measured speaks for it; moved by 2.0",
    )
    holds = premise("holds", verdict=Verdict.CONSISTENT)
    assert judged(weaker, holds, accounted=bounded(0.9)) == Judgement(
        Verdict.CONSISTENT,
        f"{within}, and what was checked of its premises holds: sensitivity (1 check); no trials were run",
    )


def test_a_test_in_another_measure_is_decided_by_its_p_value() -> None:
    test = premise("9 of 9 rows told apart", audit="rows", measure="rows", claim="test", p_value=1e-6)
    assert judged(test, accounted=bounded(0.9)) == Judgement(
        Verdict.VIOLATED,
        "the rows audit refutes it: 9 of 9 rows told apart, p = 1.0e-6, rejected at a family-wise error of 5 % (Holm)",
    )
    assert judged(replace(test, p_value=0.5), accounted=bounded(0.9)) == Judgement(
        Verdict.CONSISTENT,
        "accounted ε ≤ 0.90 is within the claimed ε = 1.00 at δ = 1e-3, and its one test does not refute it (9 of 9 "
        "rows told apart)",
    )


def test_a_proof_against_one_claim_needs_no_p_value() -> None:
    assert judged(premise("proved", claim="test"), accounted=bounded(0.9)).verdict is Verdict.VIOLATED
    skipped = untested("two-world", CLAIM, "needs noise")
    assert judged(skipped, accounted=bounded(0.9)).verdict is Verdict.UNMEASURED
    assert not skipped.is_test


HOLDS = premise("holds", verdict=Verdict.CONSISTENT)


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ((), Verdict.UNMEASURED),
        ((WEAK.finding,), Verdict.CONSISTENT),
        ((replace(WEAK.finding, trials=8),), Verdict.UNMEASURED),
        ((HOLDS,), Verdict.CONSISTENT),
        ((replace(HOLDS, measures=False),), Verdict.UNMEASURED),
        ((replace(HOLDS, claim_units=frozenset({Unit.LABEL})),), Verdict.UNMEASURED),
        ((replace(HOLDS, verdict=Verdict.VIOLATED, measures=False),), Verdict.VIOLATED),
    ],
    ids=["nothing", "test", "few trials", "premise", "declarations only", "of another unit", "broken declaration"],
)
def test_a_claim_that_nothing_measured_is_unmeasured(findings: tuple[Finding, ...], verdict: Verdict) -> None:
    assert judged(*findings, accounted=bounded(0.9)).verdict is verdict


def test_an_unmeasured_claim_says_whose_word_it_rests_on_and_counts_unless_the_ledger_is_trusted() -> None:
    system = evidence(accounted=bounded(0.9), ledger="the ledger you wrote")
    judgement = decide([system], alpha=0.001).systems["system"].judgements["test"]
    assert judgement.reason == (
        "accounted ε ≤ 0.90 is within the claimed ε = 1.00 at δ = 1e-3, as accounted from the ledger you wrote; "
        "nothing was measured"
    )
    assert [decide([system], alpha=0.001, trust_ledger=trusted).exit_code for trusted in (False, True)] == [3, 0]
    unsupported = evidence(accounted=bounded(1.1), key="other")
    assert decide([system, unsupported], alpha=0.001, trust_ledger=True).exit_code == 3
    broken = evidence(premise(BROKEN), claims=(), key="broken")
    assert decide([system, broken], alpha=0.001, trust_ledger=True).exit_code == 1


def test_a_p_value_between_the_levels_of_intervals_and_verdicts_is_said() -> None:
    test = replace(outcome(195, 200).finding, p_value=0.01)
    decision = decide([evidence(test, accounted=gaussian(0.38))], alpha=0.001, confidence=0.95)
    judgement = decision.systems["system"].judgements["test"]
    assert judgement.verdict is Verdict.CONSISTENT
    assert judgement.reason.endswith(
        "395 errors in 2 × 500 trials), p = 0.010 after Holm: below 5 %, not below the 0.1 % that a verdict needs; "
        "more trials would decide"
    )
    assert decide([evidence(replace(test, p_value=9e-4))], alpha=0.001).exit_code == 1


def test_a_curve_that_exceeds_the_claim_elsewhere_is_unsupported() -> None:
    claim = Claim.of_mu(0.268, DELTA, key="test", source="-", where="-", statement="μ", unit=Unit.RECORD, view="device")
    excess = CurveExcess(delta=0.1, accounted=0.85, claimed=0.03)
    budget = bounded(claim.epsilon)
    assert judge(claim, Accounted(rigorous=budget), [WEAK], alpha=0.05).verdict is Verdict.CONSISTENT
    assert judge(claim, Accounted(rigorous=budget, excess=excess), (), alpha=0.05) == Judgement(
        Verdict.UNSUPPORTED,
        "accounted ε ≤ 0.85 exceeds ε = 0.03 of the claimed curve μ = 0.268 at δ = 0.1 (at δ = 1e-3, where accounted "
        "ε ≤ 0.64, it does not), and no trials were run",
    )


def test_results_are_joined_by_names_that_are_there_once() -> None:
    with pytest.raises(
        ValueError, match=r"Expected rows to test one of the claims \['test'\] of system, found 'other'"
    ):
        judged(premise("x", audit="rows", claim="other"))
    with pytest.raises(ValueError, match="Expected systems with distinct keys"):
        decide([evidence(), evidence()], alpha=0.05)
    with pytest.raises(ValueError, match="Expected claims of system with distinct keys"):
        decide([evidence(claims=(CLAIM, CLAIM))], alpha=0.05)


def about(key: str, unit: Unit, epsilon: float, *, view: str = "device") -> Claim:
    return Claim.of_epsilon(epsilon, DELTA, key=key, source="-", where="-", statement="-", unit=unit, view=view)


def refuting(claim: Claim, *, figure: float = 3.0) -> Finding:
    return Finding(
        audit="meter",
        subject="meter",
        verdict=Verdict.VIOLATED,
        sentence="the meter read",
        figure=figure,
        measure=EPSILON,
        claim=claim.key,
        p_value=1e-9,
    )


@pytest.mark.parametrize(
    ("other", "falls"),
    [
        (about("wide", Unit.RECORD, 1.0), True),
        (about("wide", Unit.RECORD, 0.5), True),
        (about("looser", Unit.RECORD, 2.0), False),
        (about("label", Unit.LABEL, 1.0), False),
        (about("elsewhere", Unit.RECORD, 1.0, view="eavesdropper"), False),
    ],
)
def test_what_refutes_a_claim_refutes_those_that_imply_it(other: Claim, falls: bool) -> None:
    features = about("features", Unit.FEATURES, 1.0)
    accounted = {c.key: Accounted(rigorous=bounded(0.4)) for c in (features, other)}
    given = SystemEvidence(key="s", claims=(features, other), accounted=accounted, findings=(refuting(features),))
    decision = decide([given], alpha=0.05).systems["s"]
    judgement = decision.judgements[other.key]
    assert (judgement.verdict is Verdict.VIOLATED) == falls
    assert bool(decision.tests_of(other)) == falls
    if falls:
        assert "whoever keeps this claim keeps features" in judgement.reason


def test_a_measurement_above_what_is_accounted_is_a_finding_of_its_own() -> None:
    claim = about("loose", Unit.RECORD, 10.0)
    test = replace(refuting(claim), verdict=Verdict.CONSISTENT)

    def against(other: Claim) -> ClaimTest:
        return ClaimTest(EPSILON, 3.0, 1e-9 if other.epsilon < 3 else 1.0)

    measurement = test.measuring(claim, 0.95).measurement
    assert measurement is not None
    measured = replace(test, p_value=1.0, measurement=replace(measurement, p_value=1.0, against=against))
    for upper, refuted in ((1.0, True), (3.5, False)):
        given = {claim.key: Accounted(rigorous=bounded(upper))}
        evidence_ = SystemEvidence(key="s", claims=(claim,), accounted=given, findings=(measured,))
        decision = decide([evidence_], alpha=0.001)
        found = [c.finding for c in decision.systems["s"].findings if c.finding.audit == ACCOUNTING]
        assert bool(found) == refuted
        verdict = decision.systems["s"].judgements[claim.key].verdict
        assert verdict is (Verdict.UNSUPPORTED if refuted else Verdict.CONSISTENT)
        assert decision.exit_code == (1 if refuted else 0)
        if refuted:
            assert found[0].sentence.startswith(
                "the bound does not hold for the program that ran: ε ≥ 3.00 was measured"
            )
            assert "ε ≤ 1.00 is accounted" in found[0].sentence


def proof(mu: float, *, exact: bool = True) -> Finding:
    """The figure of one pair of worlds, without statistics."""
    measurement = Measurement(
        unit=CLAIM.unit,
        view=CLAIM.adversary,
        method="exact, this pair",
        outcome="record 1 with label 0 or 1",
        decides=EPSILON,
        mu=mu,
        epsilon=epsilon_of(mu, DELTA),
        delta=DELTA,
        exact=exact,
        confidence=1.0,
    )
    return measured("flow", "exact, this pair", CLAIM, measurement, AuditContext())


def decided(*findings: Finding, accounted: Budget) -> tuple[Judgement, list[CorrectedFinding]]:
    """What is said of the claim, and what it was compared with, in the order of the report."""
    given = replace(evidence(accounted=accounted), findings=findings)
    decision = decide([given], alpha=0.05).systems["system"]
    return decision.judgements["test"], decision.tests_of(CLAIM)


def test_an_exact_figure_above_the_claim_refutes_it_without_a_p_value() -> None:
    said, tests = decided(WEAK.finding, proof(0.5), accounted=gaussian(0.6))
    assert said.verdict is Verdict.VIOLATED
    sentence = "one pair of worlds shows ε = 1.35 without statistics, above the claimed ε = 1.00: record 1"
    assert said.reason.startswith(sentence)
    assert [test.p_adjusted is None for test in tests] == [True, False], "it stands first"
    assert [test.refutes for test in tests] == [True, False]


def test_an_exact_figure_within_the_claim_is_quoted_before_trials_that_show_less() -> None:
    said, _ = decided(WEAK.finding, proof(CLAIM.mu * 0.98), accounted=gaussian(CLAIM.mu))
    assert said.verdict is Verdict.CONSISTENT
    assert "the strongest of them shows ε = 0.98: record 1" in said.reason
    # Alone it is a measurement, too: the claim is not unmeasured.
    assert decided(proof(0.1), accounted=gaussian(CLAIM.mu))[0].verdict is Verdict.CONSISTENT


def test_an_exact_figure_is_corrected_with_no_test_and_corrects_none() -> None:
    alone = decided(MILD.finding, accounted=gaussian(0.6))[1][0].p_adjusted
    beside = decided(MILD.finding, proof(0.1), accounted=gaussian(0.6))[1][1].p_adjusted
    assert alone == beside


def test_rounding_of_a_figure_refutes_nothing() -> None:
    assert decided(proof(CLAIM.mu * (1 + 1e-5)), accounted=gaussian(CLAIM.mu))[0].verdict is Verdict.CONSISTENT
    assert decided(proof(CLAIM.mu * (1 + 1e-3)), accounted=gaussian(CLAIM.mu))[0].verdict is Verdict.VIOLATED


def test_an_exact_figure_above_what_is_accounted_is_no_support_for_the_claim() -> None:
    said, _ = decided(proof(CLAIM.mu * 0.9), accounted=gaussian(CLAIM.mu * 0.5))
    assert said.verdict is Verdict.UNSUPPORTED
    assert "the bound does not hold for the program that ran: ε = 0.88" in said.reason


UNEXPLAINED = replace(
    proof(0.1), measurement=None, verdict=Verdict.UNMEASURED, sentence="the trace does not explain everything: a read"
)


def test_what_a_trace_does_not_explain_is_never_consistent_whatever_trials_say() -> None:
    said, _ = decided(WEAK.finding, UNEXPLAINED, accounted=gaussian(CLAIM.mu))
    assert said.verdict is Verdict.UNMEASURED
    assert "but the trace does not explain everything: a read; its one test does not refute it" in said.reason
    assert decided(STRONG.finding, UNEXPLAINED, accounted=gaussian(CLAIM.mu))[0].verdict is Verdict.VIOLATED
    assert decided(WEAK.finding, UNEXPLAINED, accounted=gaussian(1.0))[0].verdict is Verdict.UNSUPPORTED
