"""From the errors of a test to lower bounds on mu, and to p-values of a claim of mu-GDP.

The conditions of `_bounds` apply. A bound on mu assumes nothing of the mechanism's shape; epsilon by way of mu does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from vflpriv.audits._bounds import Bound, Errors, Floats, balanced, check_delta, counts, pooled, rectangle, tail
from vflpriv.audits._pilot import Pilot, pilot_size
from vflpriv.ledger import Exposure
from vflpriv.releases import Gaussian
from vflpriv.tradeoff import epsilon_of

__all__ = [
    "epsilon_from_mu",
    "gaussian_refusal",
    "mu_error_rate",
    "mu_estimate",
    "mu_of_rates",
    "mu_rectangle",
    "mu_scores",
    "p_value_gdp",
]


def mu_rectangle(errors: Errors, confidence: float) -> Bound:
    """A lower bound on mu from two separate error rates: below it no mu makes the mechanism mu-GDP.

    Every test of a mu-GDP mechanism has FNR >= G_mu(FPR) = Phi(-Phi^-1(FPR) - mu) (Dong, Roth, Su 2022), so that
    mu >= -Phi^-1(FPR) - Phi^-1(FNR), which falls in both rates: at the rectangle's corner it holds with probability
    `confidence`. A negative value says nothing, hence 0. No assumption on the shape of the mechanism's own curve.
    """
    fpr, fnr = rectangle(*counts(errors), confidence)
    upper = {"fpr_upper": float(fpr), "fnr_upper": float(fnr)}
    mu = float(mu_of_rates(fpr, fnr))
    return Bound(method="rectangle", confidence=confidence, errors=errors, mu=mu, details=upper)


def mu_error_rate(errors: Errors, confidence: float) -> Bound:
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
    upper = {"error_upper": float(rate)}
    mu = float(mu_of_rates(rate, rate))
    return Bound(method="error rate", confidence=confidence, errors=errors, mu=mu, details=upper)


def mu_scores(inside: Floats, outside: Floats, confidence: float) -> float:
    """`mu_error_rate` of scores whose best threshold is not known: it is set on a pilot, which is not tested."""
    aside = pilot_size(min(len(inside), len(outside)))
    if not aside:
        return 0.0
    pilot = Pilot.of(inside[:aside], outside[:aside])
    plus, minus = (pilot.evidence(scores[aside:]) for scores in (inside, outside))
    errors = Errors(
        false_positives=int((minus > 0).sum()),
        negatives=len(minus),
        false_negatives=int((plus <= 0).sum()),
        positives=len(plus),
    )
    return mu_error_rate(errors, confidence).mu or 0.0


def mu_estimate(errors: Errors) -> float:
    """The mu whose best test errs as often as this one did: a point estimate, neither a bound nor unbiased."""
    # The half error keeps it finite when there is none.
    rate = (errors.total + 0.5) / (errors.trials + 1)
    return float(mu_of_rates(rate, rate))


def epsilon_from_mu(mu_lower: float, delta: float, *, gaussian: bool) -> float | None:
    """Epsilon at `delta` of a lower bound on mu; None unless the mechanism's trade-off curve is Gaussian.

    If the curve is G_m for some m, mu_lower bounds m from below and epsilon rises in m. Of any other curve, mu_lower
    says that one point of it lies below G_mu, and nothing about epsilon at a small delta: Laplace noise of scale 1 has
    epsilon = 1 and a point on G_1.03, whose epsilon at delta = 1e-5 is 4.5.
    """
    check_delta(delta)
    return epsilon_of(mu_lower, delta) if gaussian else None


def gaussian_refusal(exposure: Exposure, *, leaks: bool = False) -> str | None:
    """Why a bound on mu says nothing of epsilon here, or None where the ledger says that the curve is Gaussian."""
    if exposure.not_applicable is not None:
        return exposure.not_applicable
    if exposure.unprotected:
        return f"the trade-off curve is not Gaussian: {exposure.unprotected[0]}"
    other = [e for e in exposure.events if not isinstance(e.noise, Gaussian)]
    if other:
        return f"the trade-off curve is not Gaussian: {other[0].kind} has {other[0].noise}"
    sampled = [e for e in exposure.events if e.sampling is not None]
    if sampled:
        return f"the trade-off curve is not Gaussian: batches of {sampled[0].kind} are sampled in secret"
    return "the trade-off curve is not known: what is seen depends on state that is not" if leaks else None


def p_value_gdp(errors: Errors, mu: float) -> float:
    """The p-value of "the mechanism is mu-GDP": P[Bin(2N, p) <= K] with p = Phi(-mu/2), and 1 where K > 2N p - 1.

    Valid at every level a, P[p-value <= a] <= a: the event is {K <= k} for the largest k with P[Bin(2N, p) <= k] <= a
    among k <= 2N p - 1, where Hoeffding's comparison holds (`mu_error_rate`, steps 1 and 2). For alpha <= 1/4 it is
    below alpha exactly when the bound of `mu_error_rate` at confidence 1 - alpha exceeds mu.
    """
    if not mu >= 0:
        raise ValueError(f"Expected mu={mu} >= 0.")
    return float(tail(balanced(errors).total, errors.trials, float(ndtr(-mu / 2))))


def mu_of_rates(fpr: ArrayLike, fnr: ArrayLike) -> Floats:
    # Never abs(): a test worse than guessing says nothing. Adding 0.0 turns -0.0 into 0.0.
    return np.asarray(np.maximum(0.0, -ndtri(fpr) - ndtri(fnr)) + 0.0, dtype=np.float64)
