"""Claims about attacks: their tests by the success of independent trainings, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.special import betainc

from vflpriv.audits.scoring.score import Score
from vflpriv.audits.statistics.means import mean_bounds, p_value_mean
from vflpriv.common.formatting import confidence as level
from vflpriv.common.formatting import interval, p_value, percent
from vflpriv.core.claims import Judgement, SuccessClaim, Verdict

if TYPE_CHECKING:
    from vflpriv.audits.scoring.attempts import Attempt

__all__ = [
    "JudgedSuccess",
    "SuccessTest",
    "allowed_rate",
    "beyond_p_value",
    "judge_success",
    "success_tests",
]


@dataclass(frozen=True, kw_only=True)
class SuccessTest:
    """A claim about an attack, with the attack's success on data of so many classes, or why there is none.

    `rates` are its success in independent trainings. Guesses within a training depend on each other: one model, one
    set of batches. So a training counts as one trial. Of a recorded training there is only one, and its guesses are
    then taken as independent, which the verdict says.
    """

    claim: SuccessClaim
    success: Score | None
    refusal: str | None
    classes: int
    rates: tuple[float, ...] = ()

    @property
    def rate(self) -> float | None:
        """The measured success: the mean over trainings."""
        if self.success is None:
            return None
        return sum(self.rates) / len(self.rates) if self.repeated else self.success.value

    @property
    def repeated(self) -> bool:
        """Whether there was more than one training."""
        return len(self.rates) > 1

    @property
    def of_other_data(self) -> bool:
        """Whether the claim is about data with another number of classes."""
        return self.claim.classes is not None and self.classes != self.claim.classes

    @property
    def p_value(self) -> float:
        """The claim's, before correction; 1 where nothing tests it."""
        if self.success is None or self.of_other_data:
            return 1.0
        allowed = allowed_rate(self.claim, self.success)
        return p_value_mean(self.rates, allowed) if self.repeated else beyond_p_value(self.success, allowed)

    def bounds(self, confidence: float) -> tuple[float, float] | None:
        """The interval of the success: over trainings, or over the guesses of the only one."""
        if self.success is None:
            return None
        return mean_bounds(self.rates, confidence) if self.repeated else (self.success.low, self.success.high)


@dataclass(frozen=True, kw_only=True)
class JudgedSuccess:
    """The verdict on a claim about an attack, with its corrected p-value and the interval of the success."""

    test: SuccessTest
    p_adjusted: float
    bounds: tuple[float, float] | None
    judgement: Judgement


def success_tests(
    claims: Sequence[SuccessClaim],
    outcomes: Sequence[Attempt],
    *,
    devices: int,
    classes: int,
    repeated: Sequence[Attempt] = (),
) -> list[SuccessTest]:
    """One test for each claim: its attack through the first view of its adversary, chosen before outcomes are seen.

    `repeated` are outcomes of the same attacks and views in several trainings, where there were several.
    """
    rates = {(o.attack, o.adversary): o.rates for o in repeated}
    tests = []
    for claim in claims:
        views = claim.adversary.each(devices)
        outcome = next((o for o in outcomes if o.attack == claim.attack and o.adversary in views), None)
        if outcome is None:
            tests.append(SuccessTest(claim=claim, success=None, refusal=None, classes=classes))
            continue
        own = rates.get((outcome.attack, outcome.adversary), ())
        tests.append(
            SuccessTest(claim=claim, success=outcome.success, refusal=outcome.refusal, classes=classes, rates=own)
        )
    return tests


def allowed_rate(claim: SuccessClaim, success: Score) -> float:
    """The rate that the claim allows on this data: what it says, but never less than blind guessing.

    Where one label is commoner than the others, whoever always names it is right more often than one in `classes`.
    """
    return max(claim.rate, success.chance)


def beyond_p_value(success: Score, rate: float) -> float:
    """P[Bin(n, rate) >= right guesses]: how likely so many are, or more, if guesses are independent.

    Below alpha/2 exactly when the low end of the Clopper-Pearson interval at confidence 1 - alpha exceeds the rate.
    """
    right = round(success.value * success.guesses)
    return float(betainc(right, success.guesses - right + 1, rate)) if right else 1.0


def judge_success(test: SuccessTest, *, p_adjusted: float, alpha: float, confidence: float) -> JudgedSuccess:
    """What can be said of a claim about an attack.

    * not applicable: the figure is of data with other classes, or the attack cannot be tried (`refusal`);
    * unsupported: the attack was not run, so that nothing speaks for the claim;
    * violated: the low end of the interval exceeds the rate, and Holm over the report rejects the claim at `alpha`;
    * consistent: the attack was run, and did not. Other attacks may succeed: not refuted is never verified.
    """
    bounds = test.bounds(confidence)
    judgement = _untested(test) or _tested(test, bounds or (0.0, 1.0), p_adjusted, alpha, confidence)
    return JudgedSuccess(test=test, p_adjusted=p_adjusted, bounds=bounds, judgement=judgement)


def _untested(test: SuccessTest) -> Judgement | None:
    """The verdict where nothing tests the claim; None where something does."""
    claim = test.claim
    if test.of_other_data:
        reason = f"the published rate is of data with {claim.classes} classes, and here are {test.classes}"
        return Judgement(Verdict.NOT_APPLICABLE, reason)
    if test.refusal is not None:
        return Judgement(Verdict.NOT_APPLICABLE, f"{claim.attack} cannot be tried: {test.refusal}")
    if test.success is None:
        return Judgement(Verdict.UNSUPPORTED, f"{claim.attack} was not run, and without it nothing supports the claim")
    return None


def _tested(
    test: SuccessTest, bounds: tuple[float, float], p_adjusted: float, alpha: float, confidence: float
) -> Judgement:
    claim, success = test.claim, test.success
    assert success is not None
    rate = allowed_rate(claim, success)
    blind = f" and the {percent(rate)} of blind guesses" if rate > claim.rate else ""
    limit = f"claimed {percent(claim.rate)}{blind}" if claim.rate else f"{percent(rate)} of blind guesses"
    measured = f"{claim.attack} was right in {percent(test.rate)} of {_guesses(test, success)}"
    outcome = f"{measured} ({interval(*bounds)} at {level(confidence)} confidence{_assumed(test)})"
    above = bounds[0] > rate
    if above and p_adjusted <= alpha:
        held = f"above the {limit}, p {p_value(p_adjusted)} after Holm's correction"
        return Judgement(Verdict.VIOLATED, f"{outcome}, {held}")
    if above and p_adjusted <= 1 - confidence:
        needed = f"below {level(1 - confidence)}, not below the {level(alpha)} that a verdict needs"
        held = f"above the {limit}, but p {p_value(p_adjusted)} after Holm's correction is {needed}"
        return Judgement(Verdict.CONSISTENT, f"{outcome}, {held}")
    corrected = "after Holm's correction " if above else ""
    return Judgement(Verdict.CONSISTENT, f"{outcome}, {corrected}not beyond the {limit}")


def _guesses(test: SuccessTest, success: Score) -> str:
    if test.repeated:
        return f"its guesses, the mean of {len(test.rates)} independent trainings"
    return f"{success.guesses} guesses"


def _assumed(test: SuccessTest) -> str:
    return "" if test.repeated else ", one training whose guesses are taken as independent"
