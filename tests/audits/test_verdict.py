"""Verdicts: the four words, and the sentences a reviewer quotes, word by word."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from vflpriv.audits.statistics.bounds import Errors, epsilon_error_rate, mu_error_rate, p_value_dp, p_value_gdp
from vflpriv.audits.verdict import ClaimTest, judge
from vflpriv.core.budgets import Budget
from vflpriv.core.claims import Claim, Judgement, Verdict
from vflpriv.core.tradeoff import epsilon_of
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
) -> ClaimTest:
    """A test of CLAIM's mu with 500 trials a world, or of an epsilon for any shape."""
    errors = Errors(false_positives=fp, negatives=500, false_negatives=fn, positives=500)
    p = p_value_gdp(errors, CLAIM.mu) if epsilon is None else p_value_dp(errors, epsilon, DELTA)
    return ClaimTest(
        canary=canary,
        adversary=Adversary.parse(view),
        errors=errors,
        mu_lower=mu_error_rate(errors, 0.95),
        p_value=p,
        rejected=p <= 0.05,
        epsilon_lower=None if epsilon is None else epsilon_error_rate(errors, DELTA, 0.95),
    )


def say(
    *tests: ClaimTest,
    accounted: Budget | None = None,
    paper: Budget | None = None,
    broken: str | None = None,
    claim: Claim = CLAIM,
    reason: str | None = None,
) -> Judgement:
    return judge(
        claim,
        accounted=accounted,
        paper_budget=paper,
        tests=tests,
        sensitivity_broken=broken,
        alpha=0.05,
        not_applicable=reason,
    )


STRONG, MILD, WEAK = outcome(60, 71), outcome(180, 190, canary="crafted"), outcome(240, 236, canary="natural")
BROKEN = "dpzv clip 'paper' moved by 3.2, declared 0.5"


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
    assert test.mu_lower > CLAIM.mu
    kept = replace(test, rejected=False)
    assert say(kept, accounted=gaussian(0.38)) == Judgement(
        Verdict.CONSISTENT,
        "accounted ε ≤ 0.97 (μ = 0.380) is within the claimed ε = 1.00 (μ = 0.388) at δ = 1e-3, and its one test does "
        "not refute it (μ ≥ 0.398 at 95 % confidence: worst-case canary, view device(0), 395 errors in 2 × 500 "
        "trials) after Holm's correction",
    )


def test_a_handful_of_trials_is_never_quoted_as_a_refutation() -> None:
    few = Errors(false_positives=0, negatives=8, false_negatives=0, positives=8)
    test = replace(STRONG, errors=few, mu_lower=1.2, p_value=1e-4)
    assert say(test, accounted=gaussian(4.495)) == Judgement(
        Verdict.UNSUPPORTED,
        "accounted ε ≤ 23.2 (μ = 4.495) exceeds the claimed ε = 1.00 (μ = 0.388) at δ = 1e-3, but there were too few "
        "trials to judge: 8 in each world, at least 30 are wanted",
    )
    assert say(test, STRONG).verdict is Verdict.VIOLATED
    assert say(replace(test, errors=replace(few, negatives=30, positives=30))).verdict is Verdict.VIOLATED
    assert judge(
        CLAIM, accounted=None, paper_budget=None, tests=[test], sensitivity_broken=None, alpha=0.05, min_trials=8
    ) == Judgement(
        Verdict.VIOLATED,
        "one test measured μ ≥ 1.200 at 95 % confidence, above the claimed μ = 0.388: worst-case canary, view "
        "device(0), 0 errors in 2 × 8 trials, p = 1.0e-4, rejected at a family-wise error of 5 % (Holm)",
    )


def test_a_test_in_one_run_is_quoted_in_its_own_words() -> None:
    words = "one run, view devices(all), 90 of 90 coins guessed, 900 canaries"
    test = replace(STRONG, canary="one-run", errors=None, guesses=90, setting=words)
    assert words in say(test).reason
    assert say(replace(test, guesses=20)).verdict is Verdict.UNSUPPORTED


def test_a_rejection_whose_bound_is_not_above_the_claim_refutes_nothing() -> None:
    odd = replace(WEAK, mu_lower=0.3, p_value=0.01, rejected=True)
    assert say(odd, accounted=gaussian(0.38)).verdict is Verdict.CONSISTENT


def test_a_sensitivity_witness_violates_alone_and_beside_a_test() -> None:
    alone = f"the sensitivity search found a witness beyond the declared bound: {BROKEN}"
    assert say(broken=BROKEN, accounted=gaussian(0.1)) == Judgement(Verdict.VIOLATED, alone)
    both = say(STRONG, broken=BROKEN)
    assert both.reason.startswith("one test measured μ ≥ 2.074")
    assert both.reason.endswith(f"; {alone}")


def test_unsupported_says_both_numbers_and_that_trials_did_not_show_it() -> None:
    assert say(WEAK, outcome(250, 255), accounted=gaussian(4.495), paper=gaussian(CLAIM.mu)) == Judgement(
        Verdict.UNSUPPORTED,
        "accounted ε ≤ 23.2 (μ = 4.495) exceeds the claimed ε = 1.00 (μ = 0.388) at δ = 1e-3, but its 2 tests do not "
        "refute it (the largest bound, each at 95 % confidence, is μ ≥ 0: natural canary, view device(0), 476 errors "
        "in 2 × 500 trials); the paper's own reading gives ε ≤ 1.00",
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


@pytest.mark.parametrize(("factor", "word"), [(1 + 5e-7, Verdict.CONSISTENT), (1 + 2e-6, Verdict.UNSUPPORTED)])
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
        Verdict.CONSISTENT, "accounted ε ≤ ∞ is within the claimed ε = ∞ at δ = 1e-3, and no trials were run"
    )


def test_not_applicable_gives_the_reason_and_nothing_else() -> None:
    found = say(STRONG, accounted=gaussian(4.495), broken=BROKEN, reason="the server holds the labels")
    assert found == Judgement(Verdict.NOT_APPLICABLE, "the server holds the labels")


def test_an_epsilon_claim_of_another_shape_is_refuted_by_epsilon_alone() -> None:
    """Randomised response with epsilon = 1, on the nose: its mu is far above mu_of(1, 1e-3), which refutes nothing."""
    kept = outcome(134, 135, canary="natural", view="device", epsilon=1.0)
    assert kept.mu_lower > CLAIM.mu
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
    test = replace(STRONG, errors=errors, p_value=1e-9)
    assert "worst-case canary, view device(0), 1 error in 200 + 300 trials, p = 1.0e-9" in say(test).reason


def test_a_p_value_too_small_to_write_is_bounded() -> None:
    assert "trials, p < 1e-300, rejected" in say(replace(STRONG, p_value=0.0)).reason


def test_budgets_at_another_delta_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected a budget at the claim's delta=0\.001, found delta=1e-05\."):
        say(accounted=gaussian(0.3, 1e-5))
    with pytest.raises(ValueError, match="Expected 0 < alpha=0 < 1"):
        judge(CLAIM, accounted=None, paper_budget=None, tests=(), sensitivity_broken=None, alpha=0.0)
