"""Rényi moments of dominating pairs: log E_Q[(P/Q)^a] = (a - 1) D_a(P || Q), in log space.

The moment is convex in the order and 0 at order 1. Whatever cannot be computed is +inf, which is a valid upper bound.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from vflpriv.accountants._pairs import (
    Array,
    Diluted,
    GaussianPair,
    LaplacePair,
    Pair,
    RandomizedResponsePair,
    SampledGaussianPair,
    SampledReplacementPair,
    WithoutReplacementPair,
)

__all__ = ["MAX_NODES", "log_moments"]

MAX_NODES = 50_000
"""The most nodes of one quadrature. An order that needs more is left out."""

_FRACTIONAL_UP_TO = 20.0
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def log_moments(pair: Pair, orders: tuple[float, ...], *, fast: bool = False) -> Array:
    """log E_Q[(P/Q)^a] at each order a > 1, for the worse of the two directions. Never NaN, never negative.

    The moment is convex in the order. `fast` therefore computes it at few orders only, for the pairs that are slow, and
    bounds it by chords between them.
    """
    if isinstance(pair, SampledGaussianPair):
        values = _sampled_moments(pair, orders, fast)
    elif isinstance(pair, SampledReplacementPair):
        values = _replacement_moments(pair, orders, fast)
    elif isinstance(pair, WithoutReplacementPair):
        values = _fixed_size_moments(pair, orders, fast)
    else:
        values = _closed_form(pair, np.array(orders))
    return np.where(np.isnan(values), math.inf, np.maximum(values, 0.0))


def _closed_form(pair: Pair, a: Array) -> Array:
    if isinstance(pair, GaussianPair):
        return np.asarray(a * (a - 1) * (pair.mu * pair.mu / 2))
    if isinstance(pair, LaplacePair):
        # Mironov 2017, Table II.
        grow, shrink = np.log(a / (2 * a - 1)), np.log((a - 1) / (2 * a - 1))
        return np.asarray(np.logaddexp(grow + (a - 1) * pair.shift, shrink - a * pair.shift))
    if isinstance(pair, RandomizedResponsePair):
        right, wrong = -math.log1p(math.exp(-pair.epsilon)), -float(np.logaddexp(0, pair.epsilon))
        return np.asarray(np.logaddexp(a * right + (1 - a) * wrong, a * wrong + (1 - a) * right))
    assert isinstance(pair, Diluted)
    return np.asarray(np.logaddexp(math.log1p(-pair.rate), math.log(pair.rate) + _closed_form(pair.pair, a)))


def _sampled_moments(pair: SampledGaussianPair, orders: tuple[float, ...], fast: bool) -> Array:
    """The removal's moments, which are the larger of the two directions (Mironov, Talwar, Zhang 2019, Theorem 5)."""
    whole = sorted({math.floor(a) for a in orders} | {math.ceil(a) for a in orders})
    known = dict(zip(whole, _binomial_series(pair.mu, pair.rate, tuple(whole)), strict=True))
    removal = SampledGaussianPair(pair.mu, pair.rate)
    values = []
    for a in orders:
        low, high = math.floor(a), math.ceil(a)
        # Convexity in the order: the chord between the neighbouring whole orders lies above.
        value = float(known[low] if low == high else (high - a) * known[low] + (a - low) * known[high])
        if low < high and a < _FRACTIONAL_UP_TO and not fast:
            value = min(value, _quadrature(removal, a))
        values.append(value)
    return np.array(values)


def _replacement_moments(pair: SampledReplacementPair, orders: tuple[float, ...], fast: bool) -> Array:
    chosen = sorted({*orders[::4], orders[-1]}) if fast else sorted(orders)
    values = [min(_quadrature(pair, a), _as_if_seen(pair, a)) for a in chosen]
    if not np.all(np.isfinite(values)):
        return np.array([_as_if_seen(pair, a) for a in orders])
    return np.asarray(np.interp(orders, chosen, values))


def _fixed_size_moments(pair: WithoutReplacementPair, orders: tuple[float, ...], fast: bool) -> Array:
    """Each half has at most the removal's excess over 1, hence twice that; by quadrature where it is quick."""
    with np.errstate(divide="ignore"):
        removal = _sampled_moments(pair.removal, orders, fast)
        # log(2 (e^m - 1)), without overflow.
        excess = math.log(2) + removal + np.log(-np.expm1(-removal))
    values = np.logaddexp(0.0, excess)
    if not fast:
        short = [i for i, a in enumerate(orders) if a < _FRACTIONAL_UP_TO]
        values[short] = [min(values[i], _halves_quadrature(pair, orders[i])) for i in short]
    return np.asarray(values)


def _halves_quadrature(pair: WithoutReplacementPair, a: float) -> float:
    """∫ over positive losses l of Q (excess of e^l) + P (excess of e^-l), which meets 0 smoothly at the loss 0."""
    low, high, step = pair.mu / 2, (a + 1) * pair.mu + 12.0, min(0.1, 0.2 / pair.mu)
    while (high - low) / step <= MAX_NODES:
        rules = []
        for start in (low, low + step / 2):
            x = np.arange(start, high, step)
            loss, log_q = pair.removal.loss(x), -x * x / 2 - _HALF_LOG_2PI
            both = np.logaddexp(_log_term(loss, a) + log_q, _log_term(-loss, a) + loss + log_q)
            rules.append(_log_sum(both))
        # The error falls with the fourth power of the step only: the larger of two rules, and their distance on top.
        if (apart := abs(rules[0] - rules[1])) < 1e-6:
            return float(np.logaddexp(0.0, max(rules) + apart + math.log(step)))
        step /= 2
    return math.inf


def _binomial_series(mu: float, rate: float, orders: tuple[int, ...]) -> Array:
    # A - 1 = Σ_{k≥2} C(a,k) (1-q)^{a-k} q^k (e^{k(k-1)mu²/2} - 1): all terms positive, so nothing cancels.
    starts, remaining, k, choose = _binomials(orders)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        exponent = k * (k - 1) * (mu * mu / 2)
        terms = choose + remaining * math.log1p(-rate) + k * math.log(rate) + exponent + np.log(-np.expm1(-exponent))
        top = np.maximum.reduceat(terms, starts)
        sums = np.add.reduceat(np.exp(terms - np.repeat(top, np.diff(np.append(starts, k.size)))), starts)
        values = np.logaddexp(0.0, top + np.log(sums))
    return np.where(np.array(orders) == 1, 0.0, values)


@lru_cache(maxsize=16)
def _binomials(orders: tuple[int, ...]) -> tuple[NDArray[np.int64], Array, Array, Array]:
    """For all orders in one array: where each starts, a - k, k from 2 (an empty term at order 1), and log C(a, k)."""
    counts = [max(a - 1, 1) for a in orders]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    a = np.repeat(np.array(orders, dtype=np.float64), counts)
    k = np.concatenate([np.arange(2.0, max(order, 2) + 1) for order in orders])
    remaining = np.maximum(a - k, 0.0)
    return starts, remaining, k, gammaln(a + 1) - gammaln(k + 1) - gammaln(remaining + 1)


def _quadrature(pair: SampledGaussianPair | SampledReplacementPair, a: float) -> float:
    """The trapezoidal rule, whose error falls exponentially for these integrands; halved until two rules agree."""
    reach = pair.mu / 2 if isinstance(pair, SampledReplacementPair) else pair.mu
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


def _as_if_seen(pair: SampledReplacementPair, a: float) -> float:
    """A bound by joint convexity, as if the adversary saw the sampling: 1-q + q e^{a(a-1)mu²/2}."""
    plain = a * (a - 1) * (pair.mu * pair.mu / 2)
    return float(np.logaddexp(math.log1p(-pair.rate), math.log(pair.rate) + plain))


def _log_excess(pair: SampledGaussianPair | SampledReplacementPair, a: float, x: Array) -> float:
    """log Σ Q(x) (r^a - 1 - a (r - 1)) with r = P/Q: nonnegative terms, whose integral is the moment minus 1."""
    loss = pair.loss(x)
    log_q = -x * x / 2 - _HALF_LOG_2PI
    if isinstance(pair, SampledReplacementPair):
        c = pair.mu / 2
        log_q = log_q + np.logaddexp(math.log1p(-pair.rate), math.log(pair.rate) - c * x - c * c / 2)
    return _log_sum(_log_term(loss, a) + log_q)


def _log_term(loss: Array, a: float) -> Array:
    """log(r^a - 1 - a (r - 1)) at r = e^loss; -inf where that is 0."""
    size = a * loss
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        middle = np.log(np.maximum(np.expm1(size) - a * np.expm1(loss), 0.0))
        taylor = np.log(a * (a - 1) / 2) + 2 * np.log(np.abs(loss)) + np.log1p((a + 1) * loss / 3)
        large = size + np.log1p(-np.exp(-size) - a * (np.exp(loss - size) - np.exp(-size)))
    return np.asarray(np.where(size > 1, large, np.where(np.abs(size) + np.abs(loss) < 1e-4, taylor, middle)))


def _log_sum(excess: Array) -> float:
    top = float(excess.max())
    return top + math.log(float(np.sum(np.exp(excess - top)))) if math.isfinite(top) else math.inf
