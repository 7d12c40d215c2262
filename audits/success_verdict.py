"""The verdict on a claim about an attack: how often it may be right, and how often it was."""

from __future__ import annotations

from scipy.special import betainc

from vflpriv.audits.attack_success import Success
from vflpriv.claims import SuccessClaim
from vflpriv.formatting import confidence, interval, p_value, percent
from vflpriv.verdicts import Verdict, Word

__all__ = ["allowed_rate", "beyond_p_value", "judge_success", "success_p_value"]


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
) -> Verdict:
    """What can be said of a claim about an attack.

    * not applicable: the figure is of data with other classes, or the attack cannot be tried (`refusal`);
    * unsupported: the attack was not run, so that nothing speaks for the claim;
    * violated: the low end of the interval exceeds the rate, and Holm over the report rejects the claim at `alpha`;
    * consistent: the attack was run, and did not. Other attacks may succeed: not refuted is never verified.
    """
    if classes != claim.classes:
        reason = f"the published rate is of data with {claim.classes} classes, and here are {classes}"
        return Verdict(Word.NOT_APPLICABLE, reason)
    if refusal is not None:
        return Verdict(Word.NOT_APPLICABLE, f"{claim.attack} cannot be tried: {refusal}")
    if success is None:
        return Verdict(Word.UNSUPPORTED, f"{claim.attack} was not run, and without it nothing supports the claim")
    rate = allowed_rate(claim, success)
    blind = f" and the {percent(rate)} of blind guesses" if rate > claim.rate else ""
    limit = f"claimed {percent(claim.rate)}{blind}"
    measured = f"{claim.attack} was right in {percent(success.rate)} of {success.guesses} guesses"
    bounds = f"{interval(success.low, success.high)} at {confidence(1 - alpha)} confidence"
    if success.low > rate and p_adjusted <= alpha:
        held = f"above the {limit}, p {p_value(p_adjusted)} after Holm's correction"
        return Verdict(Word.VIOLATED, f"{measured} ({bounds}), {held}")
    held = "after Holm's correction not" if success.low > rate else "not"
    return Verdict(Word.CONSISTENT, f"{measured} ({bounds}), {held} beyond the {limit}")
