"""Rényi moments of dominating pairs: log E_Q[(P/Q)^a] = (a - 1) D_a(P || Q), in log space.

The moment is convex in the order and 0 at order 1. Whatever cannot be computed is +inf, which is a valid upper bound.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp

from vflpriv.accountants._pairs import (
    Array,
    Diluted,
    GaussianPair,
    LaplacePair,
    Pair,
    RandomizedResponsePair,
    SampledGaussianPair,
    SampledReplacementPair,
)

__all__ = ["MAX_NODES", "log_moment"]

MAX_NODES = 200_000
"""The most nodes of one quadrature. An order that needs more is left out."""

_FRACTIONAL_UP_TO = 20.0
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@lru_cache(maxsize=4096)
def log_moment(pair: Pair, order: float) -> float:
    """log E_Q[(P/Q)^order] for order > 1, the larger of the two directions. Never NaN, never negative."""
    value = max(0.0, _log_moment(pair, order))
    return math.inf if math.isnan(value) else value


def _log_moment(pair: Pair, a: float) -> float:
    if isinstance(pair, GaussianPair):
        return a * (a - 1) * pair.mu * pair.mu / 2
    if isinstance(pair, LaplacePair):
        # Mironov 2017, Table II.
        weights = math.log(a / (2 * a - 1)), math.log((a - 1) / (2 * a - 1))
        return float(np.logaddexp(weights[0] + (a - 1) * pair.shift, weights[1] - a * pair.shift))
    if isinstance(pair, RandomizedResponsePair):
        right, wrong = -math.log1p(math.exp(-pair.epsilon)), -float(np.logaddexp(0, pair.epsilon))
        return float(np.logaddexp(a * right + (1 - a) * wrong, a * wrong + (1 - a) * right))
    if isinstance(pair, Diluted):
        return float(np.logaddexp(math.log1p(-pair.rate), math.log(pair.rate) + log_moment(pair.pair, a)))
    if isinstance(pair, SampledGaussianPair):
        return _sampled_moment(pair.mu, pair.rate, a)
    assert isinstance(pair, SampledReplacementPair)
    return _quadrature(pair, a)


def _sampled_moment(mu: float, rate: float, a: float) -> float:
    """The removal's moment, which is the larger of the two directions (Mironov, Talwar, Zhang 2019, Theorem 5)."""
    if a == math.floor(a):
        return _binomial_series(mu, rate, int(a))
    if a < _FRACTIONAL_UP_TO:
        exact = _quadrature(SampledGaussianPair(mu, rate), a)
        if math.isfinite(exact):
            return exact
    # Convexity in the order: the chord between the neighbouring whole orders lies above.
    low, high = math.floor(a), math.ceil(a)
    below = _binomial_series(mu, rate, low) if low > 1 else 0.0
    return (high - a) * below + (a - low) * _binomial_series(mu, rate, high)


def _binomial_series(mu: float, rate: float, a: int) -> float:
    # A - 1 = Σ_{k≥2} C(a,k) (1-q)^{a-k} q^k (e^{k(k-1)mu²/2} - 1): all terms positive, so nothing cancels.
    k = np.arange(2, a + 1, dtype=np.float64)
    choose = gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)
    exponent = k * (k - 1) * (mu * mu / 2)
    grown = exponent + np.log(-np.expm1(-exponent))
    total = logsumexp(choose + (a - k) * math.log1p(-rate) + k * math.log(rate) + grown)
    return float(np.logaddexp(0.0, total))


def _quadrature(pair: SampledGaussianPair | SampledReplacementPair, a: float) -> float:
    """The trapezoidal rule, whose error falls exponentially for these integrands; halved until two rules agree."""
    replaced = isinstance(pair, SampledReplacementPair)
    reach = pair.mu / 2 if replaced else pair.mu
    # The integrand is a sum of unit Gaussians whose centers lie between -reach and about (a + 1) reach.
    low, high = -reach - 12.0, (a + 1) * reach + 12.0
    step = min(0.25, 0.5 / reach)
    while (high - low) / step <= MAX_NODES:
        coarse = _log_excess(pair, a, np.arange(low, high, step))
        between = _log_excess(pair, a, np.arange(low + step / 2, high, step))
        if abs(coarse - between) < 1e-9:
            total = float(np.logaddexp(coarse, between)) + math.log(step / 2)
            return float(np.logaddexp(0.0, total))
        step /= 2
    return math.inf


def _log_excess(pair: SampledGaussianPair | SampledReplacementPair, a: float, x: Array) -> float:
    """log Σ Q(x) (r^a - 1 - a (r - 1)) with r = P/Q: nonnegative terms, whose integral is the moment minus 1."""
    loss = pair.loss(x)
    log_q = -x * x / 2 - _HALF_LOG_2PI
    if isinstance(pair, SampledReplacementPair):
        c = pair.mu / 2
        log_q = log_q + np.logaddexp(math.log1p(-pair.rate), math.log(pair.rate) - c * x - c * c / 2)
    size = a * loss
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        middle = np.log(np.maximum(np.expm1(size) - a * np.expm1(loss), 0.0))
        taylor = np.log(a * (a - 1) / 2) + 2 * np.log(np.abs(loss)) + np.log1p((a + 1) * loss / 3)
        large = size + np.log1p(-np.exp(-size) - a * (np.exp(loss - size) - np.exp(-size)))
    excess = np.where(size > 1, large, np.where(np.abs(size) + np.abs(loss) < 1e-4, taylor, middle))
    return float(logsumexp(excess + log_q))
