"""The verdict on a claim: its three numbers, claimed, accounted and measured, as one word and one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vflpriv.audits._bounds import Errors
from vflpriv.budgets import Budget
from vflpriv.claims import Claim
from vflpriv.verdicts import Verdict, Word
from vflpriv.views import Adversary

__all__ = ["ClaimTest", "judge"]

# Accountants invert by root finding; a budget this close to the claim is the claim.
_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class ClaimTest:
    """One two-world test of a claim.

    `mu_lower` is this test's own lower bound at confidence 1 - alpha, `p_value` the claim's under this test;
    `rejected` says whether Holm's procedure over *all* tests of the report rejects the claim by it.
    """

    canary: str
    adversary: Adversary
    errors: Errors
    mu_lower: float
    p_value: float
    rejected: bool


def judge(
    claim: Claim,
    *,
    accounted: Budget | None,
    paper_budget: Budget | None,
    tests: Sequence[ClaimTest],
    sensitivity_broken: str | None,
    alpha: float,
    not_applicable: str | None = None,
) -> Verdict:
    """What can be said of a claim.

    * not applicable: the question does not arise, for the reason given;
    * violated: a test refutes it (rejected by Holm over the report at `alpha`, its lower bound above the claimed mu),
      or the sensitivity search found a witness beyond the bound that the guarantee rests on;
    * unsupported: neither, but what can be accounted for rigorously exceeds the claim, or nothing can;
    * consistent: neither, and the accounted budget is within the claim. Not refuted is never verified.

    `accounted` is the rigorous budget, `paper_budget` the one under the paper's own reading, which decides nothing.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"Expected 0 < alpha={alpha:g} < 1.")
    if accounted is not None and accounted.delta != claim.delta:
        raise ValueError(f"Expected a budget at the claim's delta={claim.delta:g}, found delta={accounted.delta:g}.")
    if not_applicable is not None:
        return Verdict(Word.NOT_APPLICABLE, not_applicable)
    found = [_refutation(claim, tests, alpha), _broken(sensitivity_broken)]
    if any(found):
        return Verdict(Word.VIOLATED, "; ".join(reason for reason in found if reason))
    tested = _tested(claim, tests, alpha)
    if accounted is None:
        return Verdict(Word.UNSUPPORTED, f"no accountant gives an upper bound, and {tested}")
    if _exceeds(accounted, claim):
        joined = f"{_comparison(accounted, claim, exceeds=True)}, {'but' if tests else 'and'} {tested}"
        return Verdict(Word.UNSUPPORTED, joined + _paper(paper_budget))
    return Verdict(Word.CONSISTENT, f"{_comparison(accounted, claim, exceeds=False)}, and {tested}")


def _refutation(claim: Claim, tests: Sequence[ClaimTest], alpha: float) -> str | None:
    refuting = [test for test in tests if test.rejected and test.mu_lower > claim.mu]
    if not refuting:
        return None
    test = min(refuting, key=lambda t: (t.p_value, -t.mu_lower))
    measured, claimed = _apart(test.mu_lower, claim.mu)
    return (
        f"one test measured μ ≥ {measured} at {_percent(1 - alpha)} confidence, above the claimed μ = {claimed}: "
        f"{_setting(test)}, p = {test.p_value:.2g}, rejected at a family-wise error of {_percent(alpha)} (Holm)"
    )


def _broken(witness: str | None) -> str | None:
    return f"the sensitivity search found a witness beyond the declared bound: {witness}" if witness else None


def _setting(test: ClaimTest) -> str:
    errors = test.errors
    trials = f"2 x {errors.positives} trials" if errors.balanced else f"{errors.positives} + {errors.negatives} trials"
    wrong = f"{errors.total} error{'' if errors.total == 1 else 's'}"
    return f"{test.canary} canary, view {test.adversary}, {wrong} in {trials}"


def _tested(claim: Claim, tests: Sequence[ClaimTest], alpha: float) -> str:
    if not tests:
        return "no trials were run"
    best = max(tests, key=lambda t: t.mu_lower)
    confidence = f"{_percent(1 - alpha)} confidence"
    if len(tests) == 1:
        said = f"its one test does not refute it (μ ≥ {best.mu_lower:.4g} at {confidence}: {_setting(best)})"
    else:
        largest = f"the largest bound, each at {confidence}, is μ ≥ {best.mu_lower:.4g}"
        said = f"its {len(tests)} tests do not refute it ({largest}: {_setting(best)})"
    return f"{said} after Holm's correction" if best.mu_lower > claim.mu else said


def _exceeds(budget: Budget, claim: Claim) -> bool:
    # Where the curve is Gaussian, mu is the whole of it; elsewhere epsilon can only be compared at the claim's delta.
    upper, claimed = (budget.upper, claim.epsilon) if budget.mu is None else (budget.mu, claim.mu)
    return upper > claimed * (1 + _TOLERANCE)


def _comparison(budget: Budget, claim: Claim, *, exceeds: bool) -> str:
    if exceeds and math.isinf(budget.upper):
        claimed = f"against the claimed ε = {_number(claim.epsilon)}"
        return f"no finite ε can be accounted for at δ = {claim.delta:g}, {claimed}"
    write = _apart if exceeds else _plain
    upper, claimed = write(budget.upper, claim.epsilon)
    if budget.mu is not None:
        mu, mu_claimed = write(budget.mu, claim.mu)
        upper, claimed = f"{upper} (μ = {mu})", f"{claimed} (μ = {mu_claimed})"
    verb = "exceeds" if exceeds else "is within"
    return f"accounted ε ≤ {upper} {verb} the claimed ε = {claimed} at δ = {claim.delta:g}"


def _paper(budget: Budget | None) -> str:
    return "" if budget is None else f"; the paper's own reading gives ε ≤ {_number(budget.upper)}"


def _number(value: float, digits: int = 4) -> str:
    return "∞" if math.isinf(value) else f"{value:.{digits}g}"


def _plain(value: float, other: float) -> tuple[str, str]:
    return _number(value), _number(other)


def _apart(value: float, other: float) -> tuple[str, str]:
    """Both numbers with as many digits as it takes to see that they differ."""
    pairs = [(_number(value, digits), _number(other, digits)) for digits in (4, 6, 8, 10, 12)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def _percent(share: float) -> str:
    return f"{100 * share:.6g} %"
