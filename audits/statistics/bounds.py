"""Lower bounds on epsilon and mu, and p-values of privacy claims, from trials in two worlds.

A test guesses for each trial which of two worlds it was trained in. Its errors are counted (`Errors`), their rates are
bounded by Clopper and Pearson, and the bounds on the rates become bounds on epsilon (any mechanism) or on mu (claims of
mu-GDP). Where the scores themselves are Gaussian with known noise, their means give the tightest bound on mu.

Every bound here rests on the same three conditions, and is void without them:

* the test (score and threshold) was fixed before its trials were seen, on other data or on none;
* the trials are independent: one trial is one training, never several scores of the same one;
* the worlds differ by one unit of the claim's adjacency, and nothing else.

Functions that take counts accept arrays too, so that a coverage simulation of thousands of repetitions takes a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincc, betainccinv, expit, logsumexp, ndtr, ndtri

from vflpriv.common.numerics import Floats, interval
from vflpriv.common.seeds import host_generator
from vflpriv.core.audit import Errors
from vflpriv.core.budgets import epsilon_of
from vflpriv.core.ledger import Exposure

__all__ = [
    "Errors",
    "balanced",
    "check_alpha",
    "check_delta",
    "clopper_pearson_upper",
    "counts",
    "epsilon_error_rate",
    "epsilon_from_mu",
    "epsilon_of_rates",
    "epsilon_rectangle",
    "gaussian_refusal",
    "interval",
    "mu_error_rate",
    "mu_estimate",
    "mu_known_sigma",
    "mu_of_rates",
    "mu_rectangle",
    "p_value_dp",
    "p_value_dp_rectangle",
    "p_value_gdp",
    "p_value_rectangle",
    "pooled",
    "rate_upper",
    "rectangle",
    "secret_threshold",
    "standardised",
    "tail",
]

_SIMULATED = 40_000
"""Simulated trials of each world, by which `secret_threshold` chooses."""
_CANDIDATES = 200
_SAME = 1e-3
"""Relative difference up to which two distances between the worlds count as equal."""


# Bounds on error rates


def clopper_pearson_upper(k: int, n: int, alpha: float) -> float:
    """The one-sided upper bound U of a binomial probability p, k of n: P[U < p] <= alpha for every p.

    U = BetaInv(1 - alpha; k + 1, n - k), the root p of P[Bin(n, p) <= k] = alpha; 1 if k = n (Clopper, Pearson 1934).

    >>> round(clopper_pearson_upper(0, 100, 0.05), 6)
    0.029513
    """
    _check_count(k, n)
    check_alpha(alpha)
    return float(rate_upper(k, n, alpha))


def rate_upper(k: ArrayLike, n: int, alpha: float) -> Floats:
    """`clopper_pearson_upper` for an array of counts, unchecked."""
    k = np.asarray(k, dtype=np.float64)
    inner = betainccinv(k + 1, np.maximum(n - k, 1), alpha)
    return np.asarray(np.where(k >= n, 1.0, inner), dtype=np.float64)


def rectangle(
    false_positives: ArrayLike, negatives: int, false_negatives: ArrayLike, positives: int, confidence: float
) -> tuple[Floats, Floats]:
    """Upper bounds on both rates that hold together with probability `confidence`."""
    alpha = 1 - confidence
    check_alpha(alpha)
    return rate_upper(false_positives, negatives, alpha / 2), rate_upper(false_negatives, positives, alpha / 2)


def pooled(
    false_positives: ArrayLike, negatives: int, false_negatives: ArrayLike, positives: int, confidence: float
) -> Floats:
    """U(K) of `mu_error_rate`: the upper bound on the mean error probability of all trials."""
    alpha = 1 - confidence
    check_alpha(alpha)
    k, n = np.asarray(false_positives) + np.asarray(false_negatives), negatives + positives
    return np.asarray(np.maximum(rate_upper(k, n, alpha), np.minimum(1.0, (k + 1) / n)), dtype=np.float64)


def tail(k: ArrayLike, n: int, p: float) -> Floats:
    """P[Bin(n, p) <= k] where k <= n p - 1, and 1 elsewhere."""
    k = np.asarray(k, dtype=np.float64)
    return np.asarray(np.where(k <= n * p - 1, betaincc(k + 1, np.maximum(n - k, 1), p), 1.0), dtype=np.float64)


def counts(errors: Errors) -> tuple[int, int, int, int]:
    """False positives, negatives, false negatives, positives: the first four arguments of `rectangle` and `pooled`."""
    return errors.false_positives, errors.negatives, errors.false_negatives, errors.positives


def balanced(errors: Errors) -> Errors:
    """The same errors; raises where the worlds have different numbers of trials, which pooled bounds do not allow."""
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
    """Raise unless the level lies strictly between 0 and 1."""
    if not 0 < alpha < 1:
        raise ValueError(f"Expected 0 < alpha={alpha:g} < 1.")


def check_delta(delta: float) -> None:
    """Raise unless 0 <= delta < 1."""
    if not 0 <= delta < 1:
        raise ValueError(f"Expected 0 <= delta={delta:g} < 1.")


# Any mechanism: bounds on epsilon, p-values of an (epsilon, delta) claim


def epsilon_rectangle(errors: Errors, delta: float, confidence: float) -> float:
    """A lower bound on epsilon at `delta` for any mechanism, from two separate error rates.

    With probability `confidence` both rates lie below their upper bounds (alpha / 2 each, union bound). Every test of
    an (epsilon, delta)-DP mechanism has FNR >= 1 - delta - e^eps FPR and FPR >= 1 - delta - e^eps FNR (Kairouz, Oh,
    Viswanath 2015, Thm 2.1); both are solved for epsilon at the corner of the rectangle: using
    the second one too costs no confidence.
    """
    check_delta(delta)
    fpr, fnr = rectangle(*counts(errors), confidence)
    return float(epsilon_of_rates(fpr, fnr, delta))


def epsilon_error_rate(errors: Errors, delta: float, confidence: float) -> float:
    """A lower bound on epsilon at `delta` for any mechanism, from the number of all errors.

    As `mu_error_rate`, with p = (1 - delta) / (1 + e^eps) in step 1: the sum of the two inequalities of
    `epsilon_rectangle` is FPR + FNR >= 2 p. Solved for epsilon at U(K): ln((1 - delta - U) / U).
    """
    check_delta(delta)
    rate = pooled(*counts(balanced(errors)), confidence)
    return float(epsilon_of_rates(rate, rate, delta))


def p_value_dp(errors: Errors, epsilon: float, delta: float) -> float:
    """The p-value of "the mechanism is (epsilon, delta)-DP", for any mechanism: p = (1 - delta) / (1 + e^eps).

    Valid at every level, as `p_value_gdp` is. It is to `epsilon_error_rate` what `p_value_gdp` is to `mu_error_rate`.
    """
    check_delta(delta)
    if not epsilon >= 0:
        raise ValueError(f"Expected epsilon={epsilon} >= 0.")
    return float(tail(balanced(errors).total, errors.trials, (1 - delta) * float(expit(-epsilon))))


def p_value_dp_rectangle(errors: Errors, epsilon: float, delta: float) -> float:
    """The p-value of "the mechanism is (epsilon, delta)-DP" from two separate error rates.

    It is the smallest alpha at which `epsilon_rectangle` at confidence 1 - alpha exceeds epsilon.
    """
    return _smallest_alpha(lambda confidence: epsilon_rectangle(errors, delta, confidence) > epsilon)


def _smallest_alpha(exceeds: Callable[[float], bool]) -> float:
    """The smallest alpha at which a bound at confidence 1 - alpha exceeds a claim; 1 if none does."""
    low, high = math.log(1e-15), math.log(0.999)
    if not exceeds(-math.expm1(high)):
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if exceeds(-math.expm1(middle)) else (middle, high)
    return math.exp(high)


def epsilon_of_rates(fpr: ArrayLike, fnr: ArrayLike, delta: float) -> Floats:
    """The smallest epsilon, at least 0, at which both inequalities of `epsilon_rectangle` hold for these rates."""
    fpr, fnr = np.asarray(fpr), np.asarray(fnr)
    # max(0, ln(a / b)) = ln(max(a, b)) - ln(b), which is defined for a <= 0 too.
    from_positives = np.log(np.maximum(1 - delta - fnr, fpr)) - np.log(fpr)
    from_negatives = np.log(np.maximum(1 - delta - fpr, fnr)) - np.log(fnr)
    return np.asarray(np.maximum(from_positives, from_negatives), dtype=np.float64)


# Bounds on mu, p-values of a mu-GDP claim


def mu_rectangle(errors: Errors, confidence: float) -> float:
    """A lower bound on mu from two separate error rates: below it no mu makes the mechanism mu-GDP.

    Every test of a mu-GDP mechanism has FNR >= G_mu(FPR) = Phi(-Phi^-1(FPR) - mu) (Dong, Roth, Su 2022), so that
    mu >= -Phi^-1(FPR) - Phi^-1(FNR), which falls in both rates: at the rectangle's corner it holds with probability
    `confidence`. A negative value bounds nothing, hence 0. Nothing is assumed of the mechanism's own curve.
    """
    fpr, fnr = rectangle(*counts(errors), confidence)
    return float(mu_of_rates(fpr, fnr))


def mu_error_rate(errors: Errors, confidence: float) -> float:
    """A lower bound on mu from the number of all errors; tighter than `mu_rectangle` when both rates are alike.

    Guarantee: if the mechanism is mu-GDP, the bound exceeds mu with probability at most alpha = 1 - confidence.
    Proof. Let K of the n = 2N trials be errors, N in each world.

    1. Every test has FPR + FNR >= 2 Phi(-mu/2), since x + G_mu(x) is least at x = Phi(-mu/2). With N trials in each
       world the mean error probability is pbar = (FPR + FNR) / 2 >= p := Phi(-mu/2), and p <= 1/2.
    2. K is a sum of n independent coins with mean probability pbar. Shrinking each coin's probability by p / pbar
       makes P[K <= k] only larger; so take pbar = p. Hoeffding (1956, Thm 4): P[K <= k] <= P[Bin(n, p) <= k] for every
       whole k <= n p - 1, although the coins of the two worlds differ.
    3. Let U(k) = max{CP(k), (k + 1) / n} with CP the one-sided Clopper-Pearson bound at alpha. U rises in k, so
       {U(K) < p} = {K <= k*} for some k*, and U(k*) < p says both k* + 1 < n p, which is Hoeffding's condition, and
       CP(k*) < p, that is P[Bin(n, p) <= k*] < alpha. With 2.: P[U(K) < p] <= P[Bin(n, p) <= k*] < alpha.
    4. So with probability 1 - alpha, Phi(-mu/2) = p <= U(K), that is mu >= -2 Phi^-1(U(K)).

    The maximum's second term is the price of Hoeffding's gap n p - 1 < k < n p, where no comparison holds. It costs
    nothing at confidence >= 3/4: for p <= 1/2 and k >= floor(n p), P[Bin(n, p) <= k] > 1/4 (Greenberg, Mohri 2014, by
    symmetry), so that CP(k) <= 1/2 at alpha <= 1/4 already satisfies k <= n CP(k) - 1.
    """
    rate = pooled(*counts(balanced(errors)), confidence)
    return float(mu_of_rates(rate, rate))


def mu_estimate(errors: Errors) -> float:
    """The mu whose best test errs as often as this one did: a point estimate, neither a bound nor unbiased."""
    # The half error keeps it finite when there is none.
    rate = (errors.total + 0.5) / (errors.trials + 1)
    return float(mu_of_rates(rate, rate))


def p_value_gdp(errors: Errors, mu: float) -> float:
    """The p-value of "the mechanism is mu-GDP": P[Bin(2N, p) <= K] with p = Phi(-mu/2), and 1 where K > 2N p - 1.

    Valid at every level a, P[p-value <= a] <= a: the event is {K <= k} for the largest k with P[Bin(2N, p) <= k] <= a
    among k <= 2N p - 1, where Hoeffding's comparison holds (`mu_error_rate`, steps 1 and 2). For alpha <= 1/4 it is
    below alpha exactly when the bound of `mu_error_rate` at confidence 1 - alpha exceeds mu.
    """
    if not mu >= 0:
        raise ValueError(f"Expected mu={mu} >= 0.")
    return float(tail(balanced(errors).total, errors.trials, float(ndtr(-mu / 2))))


def p_value_rectangle(errors: Errors, mu: float) -> float:
    """The p-value of "the mechanism is mu-GDP" from two separate error rates.

    It is the smallest alpha at which `mu_rectangle` at confidence 1 - alpha exceeds mu.
    """
    return _smallest_alpha(lambda confidence: mu_rectangle(errors, confidence) > mu)


def mu_of_rates(fpr: ArrayLike, fnr: ArrayLike) -> Floats:
    """The smallest mu >= 0 whose curve G_mu lies at or below the point (FPR, FNR)."""
    # Never abs(): a test worse than guessing says nothing. Adding 0.0 turns -0.0 into 0.0.
    return np.asarray(np.maximum(0.0, -ndtri(fpr) - ndtri(fnr)) + 0.0, dtype=np.float64)


# From mu to epsilon, where the trade-off curve is Gaussian


def epsilon_from_mu(mu_lower: float, delta: float, *, gaussian: bool) -> float | None:
    """Epsilon at `delta` of a lower bound on mu; None unless the mechanism's trade-off curve is Gaussian.

    If the curve is G_m for some m, mu_lower bounds m from below, and epsilon rises in m. For any other curve, mu_lower
    says only that one point of it lies below G_mu, which implies nothing about epsilon at a small delta: Laplace noise
    of scale 1 has epsilon = 1 and a point on G_1.03, whose epsilon at delta = 1e-5 is 4.5.
    """
    check_delta(delta)
    return epsilon_of(mu_lower, delta) if gaussian else None


def gaussian_refusal(exposure: Exposure, *, leaks: bool = False) -> str | None:
    """Why a bound on mu gives no bound on epsilon, or None where the trade-off curve is Gaussian by the ledger.

    `leaks` says that releases depend on state that earlier rounds moved, so that the rigorous budget is only a bound.
    """
    if exposure.not_applicable is not None:
        return exposure.not_applicable
    if exposure.unprotected:
        return f"the trade-off curve is not Gaussian: {exposure.unprotected[0]}"
    not_gaussian = [e for e in exposure.events if not e.noise.gaussian]
    if not_gaussian:
        return f"the trade-off curve is not Gaussian: {not_gaussian[0].kind} has {not_gaussian[0].noise}"
    sampled = [e for e in exposure.events if e.sampling is not None]
    if sampled:
        return f"the trade-off curve is not Gaussian: batches of {sampled[0].kind} are sampled in secret"
    return "the trade-off curve is not known: releases depend on state that earlier rounds moved" if leaks else None


# A threshold far from the middle, for mechanisms whose batches are secret


def secret_threshold(
    *, means: tuple[float, float], rate: float, rounds: int, trials: int, confidence: float, seed: int
) -> float:
    """The threshold for which a simulation of the declared mechanism expects the largest bound on mu.

    With secret batches a trial tells the worlds apart only where its score is extreme, so that the best threshold lies
    far from the middle. The simulated record is in each of `rounds` rounds with probability `rate`; there it adds the
    mean of its world, in standard deviations of the noise. No trial is looked at.
    """
    generator = host_generator(seed, "search", 1)
    scores = []
    for mean in means:
        total = np.zeros(_SIMULATED)
        for _ in range(rounds):
            coin = generator.random(_SIMULATED) < rate
            x = generator.standard_normal(_SIMULATED) + coin * mean
            total += _log_density(x, means[0], rate) - _log_density(x, means[1], rate)
        scores.append(np.sort(total))
    inside, outside = scores
    thresholds = np.quantile(np.concatenate(scores), np.linspace(0.02, 1, _CANDIDATES, endpoint=False))
    fnr = np.searchsorted(inside, thresholds, side="right") / _SIMULATED
    fpr = 1 - np.searchsorted(outside, thresholds, side="right") / _SIMULATED
    corners = rectangle(np.ceil(fpr * trials), trials, np.ceil(fnr * trials), trials, confidence)
    return float(thresholds[int(np.argmax(mu_of_rates(*corners)))])


def _log_density(x: Floats, mean: float, rate: float) -> Floats:
    """Log-density, but for a constant, of N(mean, 1) with probability `rate` and N(0, 1) otherwise."""
    parts = np.stack((math.log(rate) - (x - mean) ** 2 / 2, math.log1p(-rate) - x**2 / 2))
    return np.asarray(logsumexp(parts, axis=0), dtype=np.float64)


# Scores whose noise is known


def mu_known_sigma(inside: Floats, outside: Floats, confidence: float) -> float:
    """A lower bound on mu from scores of standard deviation 1, linear in Gaussian releases of known std.

    A unit-length combination of such releases has the same std in both worlds, and means at most mu apart: the
    difference of sample means, less z sqrt(1/n + 1/n'), exceeds mu with probability at most 1 - confidence.
    The bound presumes that the noise has the declared std; tests that count errors do not.
    """
    check_alpha(1 - confidence)
    spread = math.sqrt(1 / len(inside) + 1 / len(outside))
    return max(0.0, float(inside.mean() - outside.mean() - ndtri(confidence) * spread))


def standardised(ratios: Floats, strengths: Floats) -> Floats | None:
    """Log-likelihood ratios as scores of standard deviation 1; None where the worlds' distance varies between trials.

    `strengths` holds each trial's summed squared distance between the worlds' means, in units of the noise. The ratio
    is N(±s/2, s) where the distance s is the same in every trial; where it depends on the noise, the ratio is not
    normal.
    """
    if not len(strengths) or strengths.min() <= 0 or strengths.max() > strengths.min() * (1 + _SAME):
        return None
    return ratios / math.sqrt(float(strengths.max()))
