"""From the errors of a test to lower bounds on epsilon of any mechanism, and to p-values of an (epsilon, delta) claim.

Every bound here rests on the same three conditions, and is void without them:

* the test (score and threshold) was fixed before its trials were seen, on other data or on none;
* the trials are independent: one trial is one training, never several scores of the same one;
* the worlds differ by one unit of the claim's adjacency, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincc, betainccinv, betaincinv, expit

__all__ = [
    "Bound",
    "Errors",
    "Floats",
    "balanced",
    "check_alpha",
    "check_delta",
    "clopper_pearson_upper",
    "counts",
    "epsilon_error_rate",
    "epsilon_rectangle",
    "interval",
    "p_value_dp",
    "pooled",
    "rectangle",
    "tail",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Errors:
    """What a test that was fixed in advance got wrong.

    Trials of world 0 ("in") are the positives, trials of world 1 ("out") the negatives; a false positive says "in" of a
    trial of world 1.
    """

    false_positives: int
    negatives: int
    false_negatives: int
    positives: int

    def __post_init__(self) -> None:
        _check_count(self.false_positives, self.negatives)
        _check_count(self.false_negatives, self.positives)

    @property
    def total(self) -> int:
        """Errors in both worlds together."""
        return self.false_positives + self.false_negatives

    @property
    def trials(self) -> int:
        """Trials in both worlds together."""
        return self.negatives + self.positives

    @property
    def balanced(self) -> bool:
        """Whether both worlds had the same number of trials."""
        return self.negatives == self.positives


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A lower bound on mu, or on epsilon at `delta`, that holds with probability `confidence` before the trials.

    `details` holds the upper bounds on error rates that it was computed from.
    """

    method: str
    confidence: float
    errors: Errors
    mu: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    details: Mapping[str, float] = field(default_factory=dict)


def clopper_pearson_upper(k: int, n: int, alpha: float) -> float:
    """The one-sided upper bound U of a binomial probability p, k of n: P[U < p] <= alpha for every p.

    U = BetaInv(1 - alpha; k + 1, n - k), the root p of P[Bin(n, p) <= k] = alpha; 1 if k = n (Clopper, Pearson 1934).

    >>> round(clopper_pearson_upper(0, 100, 0.05), 6)
    0.029513
    """
    _check_count(k, n)
    check_alpha(alpha)
    return float(_upper(k, n, alpha))


def interval(k: int, n: int, confidence: float) -> tuple[float, float]:
    """The two-sided Clopper-Pearson interval, alpha / 2 on each side: for display beside a rate.

    >>> [round(end, 4) for end in interval(5, 100, 0.95)]
    [0.0164, 0.1128]
    """
    alpha = 1 - confidence
    _check_count(k, n)
    check_alpha(alpha)
    low = float(betaincinv(k, n - k + 1, alpha / 2)) if k else 0.0
    return low, float(_upper(k, n, alpha / 2))


def epsilon_rectangle(errors: Errors, delta: float, confidence: float) -> Bound:
    """A lower bound on epsilon at `delta` for any mechanism, from two separate error rates.

    With probability `confidence` both rates lie below their upper bounds (alpha / 2 each, union bound). Every test of
    an (epsilon, delta)-DP mechanism has FNR >= 1 - delta - e^eps FPR and FPR >= 1 - delta - e^eps FNR (Kairouz, Oh,
    Viswanath 2015, Thm 2.1); both are solved for epsilon at the corner of the rectangle, so two-sided is free.
    """
    check_delta(delta)
    fpr, fnr = rectangle(*counts(errors), confidence)
    epsilon = float(_epsilon_of_rates(fpr, fnr, delta))
    upper = {"fpr_upper": float(fpr), "fnr_upper": float(fnr)}
    return Bound(method="rectangle", confidence=confidence, errors=errors, epsilon=epsilon, delta=delta, details=upper)


def epsilon_error_rate(errors: Errors, delta: float, confidence: float) -> Bound:
    """A lower bound on epsilon at `delta` for any mechanism, from the number of all errors.

    As `mu_error_rate`, with p = (1 - delta) / (1 + e^eps) in step 1: the sum of the two inequalities of
    `epsilon_rectangle` is FPR + FNR >= 2 p. Solved for epsilon at U(K): ln((1 - delta - U) / U).
    """
    check_delta(delta)
    rate = pooled(*counts(balanced(errors)), confidence)
    upper = {"error_upper": float(rate)}
    epsilon = float(_epsilon_of_rates(rate, rate, delta))
    return Bound(method="error rate", confidence=confidence, errors=errors, epsilon=epsilon, delta=delta, details=upper)


def p_value_dp(errors: Errors, epsilon: float, delta: float) -> float:
    """The p-value of "the mechanism is (epsilon, delta)-DP", for any mechanism: p = (1 - delta) / (1 + e^eps).

    Valid at every level, as `p_value_gdp`; the other side of `epsilon_error_rate`.
    """
    check_delta(delta)
    if not epsilon >= 0:
        raise ValueError(f"Expected epsilon={epsilon} >= 0.")
    return float(tail(balanced(errors).total, errors.trials, (1 - delta) * float(expit(-epsilon))))


def counts(errors: Errors) -> tuple[int, int, int, int]:
    return errors.false_positives, errors.negatives, errors.false_negatives, errors.positives


def balanced(errors: Errors) -> Errors:
    if not errors.balanced:
        raise ValueError(
            f"Expected as many trials in each world, found negatives={errors.negatives} and "
            f"positives={errors.positives}: use the rectangle."
        )
    return errors


def _check_count(k: int, n: int) -> None:
    if n < 1 or not 0 <= k <= n:
        raise ValueError(f"Expected 0 <= errors={k} <= trials={n} and trials >= 1.")


def check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise ValueError(f"Expected 0 < alpha={alpha:g} < 1.")


def check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise ValueError(f"Expected 0 <= delta={delta:g} < 1.")


# The same formulas over arrays, so that thousands of repetitions of a coverage simulation take a second.


def _upper(k: ArrayLike, n: int, alpha: float) -> Floats:
    k = np.asarray(k, dtype=np.float64)
    inner = betainccinv(k + 1, np.maximum(n - k, 1), alpha)
    return np.asarray(np.where(k >= n, 1.0, inner), dtype=np.float64)


def rectangle(
    false_positives: ArrayLike, negatives: int, false_negatives: ArrayLike, positives: int, confidence: float
) -> tuple[Floats, Floats]:
    """Upper bounds on both rates that hold together with probability `confidence`."""
    alpha = 1 - confidence
    check_alpha(alpha)
    return _upper(false_positives, negatives, alpha / 2), _upper(false_negatives, positives, alpha / 2)


def pooled(
    false_positives: ArrayLike, negatives: int, false_negatives: ArrayLike, positives: int, confidence: float
) -> Floats:
    """U(K) of `mu_error_rate`: the upper bound on the mean error probability of all trials."""
    alpha = 1 - confidence
    check_alpha(alpha)
    k, n = np.asarray(false_positives) + np.asarray(false_negatives), negatives + positives
    return np.asarray(np.maximum(_upper(k, n, alpha), np.minimum(1.0, (k + 1) / n)), dtype=np.float64)


def tail(k: ArrayLike, n: int, p: float) -> Floats:
    """P[Bin(n, p) <= k] where k <= n p - 1, and 1 elsewhere."""
    k = np.asarray(k, dtype=np.float64)
    return np.asarray(np.where(k <= n * p - 1, betaincc(k + 1, np.maximum(n - k, 1), p), 1.0), dtype=np.float64)


def _epsilon_of_rates(fpr: ArrayLike, fnr: ArrayLike, delta: float) -> Floats:
    fpr, fnr = np.asarray(fpr), np.asarray(fnr)
    # max(0, ln(a / b)) = ln(max(a, b)) - ln(b), which is defined for a <= 0 too.
    one = np.log(np.maximum(1 - delta - fnr, fpr)) - np.log(fpr)
    other = np.log(np.maximum(1 - delta - fpr, fnr)) - np.log(fnr)
    return np.asarray(np.maximum(one, other), dtype=np.float64)
