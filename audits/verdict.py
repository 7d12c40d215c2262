"""The verdict on a claim: its three numbers, claimed, accounted and measured, as one word and one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.special import betainc

from vflpriv.audits.scoring.labels import Success
from vflpriv.audits.statistics.bounds import Errors
from vflpriv.common.formatting import confidence, delta, epsilon, exact, interval, mu, p_value, percent
from vflpriv.core.budgets import Budget
from vflpriv.core.claims import MIN_TRIALS, Claim, Judgement, SuccessClaim, Verdict
from vflpriv.core.views import Adversary

__all__ = [
    "ClaimTest",
    "allowed_rate",
    "beyond_p_value",
    "judge",
    "judge_success",
    "success_p_value",
]


# The verdict on a claim: its three numbers, claimed, accounted and measured, as one word and one sentence.

# Accountants invert by root finding; a budget this close to the claim is the claim.
_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class ClaimTest:
    """One test of a claim, in two worlds or in one run.

    `mu_lower` is this test's own lower bound at confidence 1 - alpha, `p_value` the claim's under this test (of
    `p_value_gdp`); `rejected` says whether Holm's procedure over *all* tests of the report rejects the claim by it.
    `epsilon_lower` is given where the claim is (epsilon, delta) of a mechanism whose curve is not Gaussian: then the
    p-value is that of `p_value_dp`, and epsilon is compared instead of mu. A test in
    one run has no `errors` of two worlds, but a number of `guesses` and a `setting` in words.
    """

    canary: str
    adversary: Adversary
    errors: Errors | None
    mu_lower: float
    p_value: float
    rejected: bool
    epsilon_lower: float | None = None
    setting: str = ""
    guesses: int = 0

    @property
    def trials(self) -> int:
        """Trials in the world that has fewer, or guesses of a test in one run."""
        return self.guesses if self.errors is None else min(self.errors.positives, self.errors.negatives)

    @property
    def lower(self) -> float:
        """The bound that is compared with the claim."""
        return self.mu_lower if self.epsilon_lower is None else self.epsilon_lower

    def claimed(self, claim: Claim) -> float:
        """What it is compared with."""
        return claim.mu if self.epsilon_lower is None else claim.epsilon


def judge(
    claim: Claim,
    *,
    accounted: Budget | None,
    paper_budget: Budget | None,
    tests: Sequence[ClaimTest],
    sensitivity_broken: str | None,
    alpha: float,
    premises: Sequence[str] = (),
    facts: Sequence[str] = (),
    not_applicable: str | None = None,
    min_trials: int = MIN_TRIALS,
) -> Judgement:
    """What can be said of a claim.

    * not applicable: the question does not arise, for the reason given;
    * violated: a test refutes it (rejected by Holm over the report at `alpha`, its lower bound above the claim),
      or the sensitivity search found a witness beyond the bound that the guarantee rests on, or another premise of
      its proof does not hold in the run (`premises`, a sentence each). A test with fewer than `min_trials` in a world
      never refutes: its p-value is valid, but one lucky handful is no evidence to publish;
    * unsupported: neither, but what can be accounted for rigorously exceeds the claim, or nothing can;
    * consistent: neither, and the accounted budget is within the claim. Not refuted is never verified.

    `facts` are sentences to quote beside either of the first two. `accounted` is the rigorous budget, `paper_budget`
    the one under the paper's own reading, which decides nothing.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"Expected 0 < alpha={alpha:g} < 1.")
    if accounted is not None and accounted.delta != claim.delta:
        raise ValueError(f"Expected a budget at the claim's delta={claim.delta:g}, found delta={accounted.delta:g}.")
    if not_applicable is not None:
        return Judgement(Verdict.NOT_APPLICABLE, not_applicable)
    enough = [test for test in tests if test.trials >= min_trials]
    found = [_refutation(claim, enough, alpha), _broken(sensitivity_broken), *premises]
    if any(found):
        return Judgement(Verdict.VIOLATED, "; ".join(reason for reason in (*found, *facts) if reason))
    tested = _tested(claim, enough, alpha) if enough or not tests else _too_few(tests, min_trials)
    if accounted is None:
        return Judgement(Verdict.UNSUPPORTED, f"no accountant gives an upper bound, and {tested}")
    if _exceeds(accounted, claim):
        joined = f"{_comparison(accounted, claim, exceeds=True)}, {'but' if tests else 'and'} {tested}"
        return Judgement(Verdict.UNSUPPORTED, "; ".join((joined + _paper(paper_budget), *facts)))
    return Judgement(Verdict.CONSISTENT, f"{_comparison(accounted, claim, exceeds=False)}, and {tested}")


def _refutation(claim: Claim, tests: Sequence[ClaimTest], alpha: float) -> str | None:
    refuting = [test for test in tests if test.rejected and test.lower > test.claimed(claim)]
    if not refuting:
        return None
    test = min(refuting, key=lambda t: (t.p_value, -t.lower))
    letter, write = _scale(test)
    measured, claimed = _apart(write, test.lower, test.claimed(claim))
    p = p_value(test.p_value)
    p = p.replace("<", "< ") if p.startswith("<") else f"= {p}"
    return (
        f"one test measured {letter} ≥ {measured} at {confidence(1 - alpha)} confidence, above the claimed {letter} = "
        f"{claimed}: {_setting(test)}, p {p}, rejected at a family-wise error of "
        f"{confidence(alpha)} (Holm)"
    )


def _broken(witness: str | None) -> str | None:
    return f"the sensitivity search found a witness beyond the declared bound: {witness}" if witness else None


def _scale(test: ClaimTest) -> tuple[str, Callable[[float], str]]:
    return ("μ", mu) if test.epsilon_lower is None else ("ε", epsilon)


def _too_few(tests: Sequence[ClaimTest], wanted: int) -> str:
    most = max(test.trials for test in tests)
    return f"there were too few trials to judge: {most} in each world, at least {wanted} are wanted"


def _setting(test: ClaimTest) -> str:
    errors = test.errors
    if errors is None:
        return test.setting
    trials = f"2 × {errors.positives} trials" if errors.balanced else f"{errors.positives} + {errors.negatives} trials"
    wrong = f"{errors.total} error{'' if errors.total == 1 else 's'}"
    return f"{test.canary} canary, view {test.adversary}, {wrong} in {trials}"


def _tested(claim: Claim, tests: Sequence[ClaimTest], alpha: float) -> str:
    if not tests:
        return "no trials were run"
    best = max(tests, key=lambda t: t.lower)
    letter, write = _scale(best)
    level, bound = f"{confidence(1 - alpha)} confidence", f"{letter} ≥ {write(best.lower)}"
    if len(tests) == 1:
        said = f"its one test does not refute it ({bound} at {level}: {_setting(best)})"
    else:
        largest = f"the largest bound, each at {level}, is {bound}"
        said = f"its {len(tests)} tests do not refute it ({largest}: {_setting(best)})"
    return f"{said} after Holm's correction" if best.lower > best.claimed(claim) else said


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


# The verdict on a claim about an attack: how often it may be right, and how often it was.


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
