"""Gaussian differential privacy: exact where all noise is Gaussian and batches are not sampled in secret."""

from __future__ import annotations

import math
from collections.abc import Mapping

from scipy.special import ndtri

from vflpriv.accountants._merging import Merged, check, merge, refusal, unbounded
from vflpriv.accountants._pairs import (
    Diluted,
    GaussianPair,
    Pair,
    SampledGaussianPair,
    SampledReplacementPair,
    WithoutReplacementPair,
)
from vflpriv.common.registry import register
from vflpriv.core.budgets import Budget, Tightness
from vflpriv.core.ledger import Exposure
from vflpriv.core.tradeoff import epsilon_of

__all__ = ["CENTRAL_LIMIT", "GdpAccountant", "approximations", "central_limit", "exact_budget", "unsampled"]

CENTRAL_LIMIT = "central limit (not a bound)"
_SAMPLED = SampledGaussianPair | SampledReplacementPair | WithoutReplacementPair | Diluted


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
        if any(isinstance(pair, _SAMPLED) for pair in merged.pairs):
            return "batches are sampled in secret: there the central-limit mu is an approximation, not a bound"
        return "not all noise is Gaussian"

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
        method="exact composition of Gaussians",
        delta=delta,
        lower=epsilon,
        estimate=epsilon,
        upper=epsilon,
        mu=merged.mu,
        assumptions=merged.assumptions,
    )


def unsampled(pairs: Mapping[Pair, int], delta: float) -> float:
    """Epsilon as if every record took part in every round, a bound since sampling only helps; inf without Gaussians."""
    squares = [count * _mu(pair) ** 2 for pair, count in pairs.items()]
    return _epsilon(math.sqrt(sum(squares)), delta)


def _mu(pair: Pair) -> float:
    unsampled_pair = pair.pair if isinstance(pair, Diluted) else pair
    gaussian = GaussianPair | SampledGaussianPair | SampledReplacementPair | WithoutReplacementPair
    return unsampled_pair.mu if isinstance(unsampled_pair, gaussian) else math.inf


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
    variances = []
    for pair, count in merged.pairs.items():
        if isinstance(pair, SampledGaussianPair):
            variances.append(count * pair.rate**2 * _expm1(pair.mu * pair.mu))
        elif isinstance(pair, SampledReplacementPair):
            # Var[q (e^{cx} - e^{-cx}) e^{-c²/2}] with c = mu/2.
            c = pair.mu / 2
            variances.append(count * pair.rate**2 * 2 * (_expm1(c * c) - _expm1(-c * c)))
        else:
            raise ValueError("Expected Gaussian noise in sums only for the central-limit value.")
    return variances


def approximations(exposure: Exposure, delta: float) -> dict[str, float]:
    """Values that are not bounds, for `Budget.approximations`: the central limit, where batches are secret."""
    merged = merge(exposure)
    sampled = [isinstance(pair, SampledGaussianPair | SampledReplacementPair) for pair in merged.pairs]
    if not sampled or not all(sampled) or merged.leaks:
        return {}
    return {CENTRAL_LIMIT: central_limit(exposure, delta)}


def _epsilon(mu: float, delta: float) -> float:
    """The root of delta(epsilon); beyond mu = 1e7 the root without the second term, which is equal in all digits."""
    return epsilon_of(mu, delta) if mu < 1e7 or math.isinf(mu) or delta == 0 else mu * mu / 2 - mu * float(ndtri(delta))


def _expm1(x: float) -> float:
    return math.expm1(x) if x < 700 else math.inf
