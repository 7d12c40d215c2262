"""Gaussian differential privacy: exact where all noise is Gaussian and batches are not sampled in secret."""

from __future__ import annotations

import math
from collections.abc import Mapping

from scipy.special import ndtri

from vflpriv.accountants._merging import Merged, check, merge, refusal, unbounded
from vflpriv.accountants._sampler import sampled_budget
from vflpriv.common.registry import register
from vflpriv.core.budgets import Budget, Tightness, epsilon_of
from vflpriv.core.law import Pair
from vflpriv.core.ledger import Exposure

__all__ = ["CENTRAL_LIMIT", "GdpAccountant", "approximations", "central_limit", "exact_budget", "unsampled"]

CENTRAL_LIMIT = "central limit (not a bound)"


@register("accountant")
class GdpAccountant:
    """Closed form: the squares of sensitivity / std add up to mu², and epsilon is the root of delta(epsilon).

    Lower, estimate and upper agree, since the worst pair of neighbouring data sets attains the Gaussian curve.
    """

    name = "gdp"
    summary = "exact closed form for Gaussian noise without secret sampling"
    tightness = Tightness.EXACT

    def supports(self, exposure: Exposure) -> str | None:
        if (reason := refusal(exposure)) is not None:
            return reason
        merged = merge(exposure)
        if merged.gaussian or merged.leaks:
            return None
        if any(pair.sampled for pair in merged.pairs):
            return "batches are sampled in secret: there the central-limit mu is an approximation, not a bound"
        return "not all noise is Gaussian"

    @sampled_budget
    def budget(self, exposure: Exposure, delta: float) -> Budget:
        check(self.supports(exposure), delta)
        return exact_budget(self.name, merge(exposure), delta)


def exact_budget(accountant: str, merged: Merged, delta: float) -> Budget:
    """The closed-form budget of a Gaussian curve; infinite if a message is unprotected."""
    if merged.leaks:
        return unbounded(accountant, merged, delta)
    epsilon = _epsilon(merged.mu, delta)
    return Budget(
        accountant=accountant,
        method="exact composition of Gaussians" if merged.attained else "a bound on the composition of Gaussians",
        delta=delta,
        lower=epsilon if merged.attained else 0.0,
        estimate=epsilon,
        upper=epsilon,
        mu=merged.mu if merged.attained else None,
        assumptions=merged.assumptions,
    )


def unsampled(pairs: Mapping[Pair, int], delta: float) -> float:
    """Epsilon as if every record took part in every round, a bound since sampling only helps; inf without Gaussians."""
    squares = [count * pair.unsampled_mu**2 for pair, count in pairs.items()]
    return _epsilon(math.sqrt(sum(squares)), delta)


def central_limit(exposure: Exposure, delta: float) -> float:
    """The epsilon of the central-limit curve, mu ≈ q √(T (e^{1/ν²} - 1)) with ν = noise / sensitivity. Not a bound.

    Exact without sampling. Raises `ValueError` for noise that is not Gaussian.
    """
    merged = merge(exposure)
    if merged.leaks:
        return math.inf
    return _epsilon(math.sqrt(merged.mu * merged.mu + sum(_variances(merged))), delta)


def _variances(merged: Merged) -> list[float]:
    """Each pair's count times the variance of its likelihood ratio, the mu² of the limit."""
    variances = [(count, pair.ratio_variance) for pair, count in merged.pairs.items()]
    if any(variance is None for _, variance in variances):
        raise ValueError("Expected Gaussian noise in sums only for the central-limit value.")
    return [count * variance for count, variance in variances if variance is not None]


def approximations(exposure: Exposure, delta: float) -> dict[str, float]:
    """Values that are not bounds, for `Budget.approximations`: the central limit, where batches are secret."""
    merged = merge(exposure)
    if not merged.pairs or merged.leaks or any(pair.ratio_variance is None for pair in merged.pairs):
        return {}
    return {CENTRAL_LIMIT: central_limit(exposure, delta)}


def _epsilon(mu: float, delta: float) -> float:
    """The root of delta(epsilon); beyond mu = 1e7 the root without the second term, which is equal in all digits."""
    return epsilon_of(mu, delta) if mu < 1e7 or math.isinf(mu) or delta == 0 else mu * mu / 2 - mu * float(ndtri(delta))
