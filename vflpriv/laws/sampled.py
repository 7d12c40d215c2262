"""Pairs of Gaussian releases from secret batches, and their Rényi moments by series and quadrature, in log space.

All Gaussians here have standard deviation 1. Whatever cannot be computed is +inf, which is a valid upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, gammaln, ndtri

from vflpriv.common.numerics import Floats
from vflpriv.core.law import Pair
from vflpriv.laws.pairs import holds, normal_masses

__all__ = ["MAX_NODES", "SampledGaussianPair", "SampledReplacementPair", "WithoutReplacementPair"]

MAX_NODES = 50_000
"""The most nodes of one quadrature. An order that needs more is left out."""

_FRACTIONAL_UP_TO = 20.0
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class SampledGaussianPair(Pair):
    """(1-q) N(0, 1) + q N(mu, 1) against N(0, 1): a record is removed; with `added`, the other way round.

    Dominates the Poisson-sampled Gaussian under add-remove (Zhu et al. 2022, Theorem 11).
    """

    mu: float
    rate: float
    added: bool = False
    described = "batches in which a record is added or removed"
    sampled = True

    def loss(self, x: Floats) -> Floats:
        """log P(x)/Q(x) of the removal, increasing in x."""
        return _log_mixture(self.rate, self.mu * x - self.mu**2 / 2)

    def masses(self, edges: Floats) -> tuple[Floats, Floats]:
        if self.added:
            lower, upper = SampledGaussianPair(self.mu, self.rate).masses(-edges[::-1])
            return upper[::-1], lower[::-1]
        x = self._inverse(edges)
        without, within = normal_masses(x), normal_masses(x - self.mu)
        return (1 - self.rate) * without + self.rate * within, without

    def _inverse(self, loss: Floats) -> Floats:
        # log(1 + (e^l - 1)/q), and -inf where l <= log(1-q), the smallest loss there is.
        q, x = self.rate, np.full_like(loss, -math.inf)
        inside = loss > math.log1p(-q)
        near = inside & (loss < 1)
        far = inside & ~near
        x[near] = np.log1p(np.maximum(np.expm1(loss[near]) / q, -1 + 1e-16))
        x[far] = loss[far] + np.log1p((q - 1) * np.exp(-loss[far])) - math.log(q)
        return x / self.mu + self.mu / 2

    def reach(self, tail: float) -> tuple[float, float]:
        z = -float(ndtri(tail))
        if self.added:
            low, high = self.loss(np.array([-z, z]))
            return -float(high), -float(low)
        low, high = self.loss(np.array([-z, self.mu + z]))
        return float(low), float(high)

    def usual(self) -> float:
        loss = float(self.loss(np.array([self.mu if self.rate > 0.5 and not self.added else 0.0]))[0])
        return -loss if self.added else loss

    def reversed(self) -> SampledGaussianPair:
        return SampledGaussianPair(self.mu, self.rate, not self.added)

    def moments(self, orders: tuple[float, ...], *, fast: bool) -> Floats:
        """The removal's, which are the larger of the two directions (Mironov, Talwar, Zhang 2019, Theorem 5)."""
        whole = sorted({math.floor(a) for a in orders} | {math.ceil(a) for a in orders})
        known = dict(zip(whole, _binomial_series(self.mu, self.rate, tuple(whole)), strict=True))
        removal = SampledGaussianPair(self.mu, self.rate)
        values = []
        for a in orders:
            low, high = math.floor(a), math.ceil(a)
            # Convexity in the order: the chord between the neighbouring whole orders lies above.
            value = float(known[low] if low == high else (high - a) * known[low] + (a - low) * known[high])
            if low < high and a < _FRACTIONAL_UP_TO and not fast:
                value = min(value, _quadrature(removal, a, self.mu))
            values.append(value)
        return np.array(values)

    def log_density(self, x: Floats) -> Floats:
        """log Q(x) of the removal."""
        return np.asarray(-x * x / 2 - _HALF_LOG_2PI)

    @property
    def unsampled_mu(self) -> float:
        return self.mu

    @property
    def ratio_variance(self) -> float | None:
        return self.rate**2 * _expm1(self.mu * self.mu)

    @property
    def sampled_gaussian(self) -> tuple[float, float] | None:
        return 1 / self.mu, self.rate

    @property
    def family(self) -> Hashable:
        return SampledGaussianPair, self.added

    def in_dp_accounting(self, interval: float) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        grid = {"value_discretization_interval": interval}
        return pld.from_gaussian_mechanism(1 / self.mu, sampling_prob=self.rate, **grid)


@dataclass(frozen=True)
class SampledReplacementPair(Pair):
    """(1-q) N(0, 1) + q N(mu/2, 1) against (1-q) N(0, 1) + q N(-mu/2, 1): a record is replaced.

    Dominates the Poisson-sampled Gaussian under replace-one when a record's own contribution is at most mu/2 long
    and zero outside the batch (Lebeda, Regehr, Kamath, Steinke 2024).
    """

    mu: float
    rate: float
    described = "sampled batches in which a record is replaced"
    library_note = "its RDP accountant would not double the sensitivity"
    sampled = True

    def loss(self, x: Floats) -> Floats:
        """log P(x)/Q(x), increasing in x and odd."""
        c = self.mu / 2
        return _log_mixture(self.rate, c * x - c * c / 2) - _log_mixture(self.rate, -c * x - c * c / 2)

    def masses(self, edges: Floats) -> tuple[Floats, Floats]:
        x, c, q = self._inverse(edges), self.mu / 2, self.rate
        without = (1 - q) * normal_masses(x)
        return without + q * normal_masses(x - c), without + q * normal_masses(x + c)

    def _inverse(self, loss: Floats) -> Floats:
        # x = (asinh(sinh(l/2) e^{c²/2} (1-q)/q) + l/2) / c, by solving a quadratic equation in e^{cx}.
        c, half = self.mu / 2, np.abs(loss) / 2
        with np.errstate(divide="ignore"):
            log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
        a = log_sinh + c * c / 2 + math.log1p(-self.rate) - math.log(self.rate)
        asinh = np.where(a > 20, a + math.log(2), np.arcsinh(np.exp(np.minimum(a, 20))))
        return np.asarray(np.sign(loss) * (asinh + half) / c)

    def reach(self, tail: float) -> tuple[float, float]:
        z = -float(ndtri(tail))
        low, high = self.loss(np.array([-z, self.mu / 2 + z]))
        return float(low), float(high)

    def usual(self) -> float:
        return float(self.loss(np.array([self.mu / 2 if self.rate > 0.5 else 0.0]))[0])

    def moments(self, orders: tuple[float, ...], *, fast: bool) -> Floats:
        chosen = sorted({*orders[::4], orders[-1]}) if fast else sorted(orders)
        values = [min(_quadrature(self, a, self.mu / 2), self._as_if_seen(a)) for a in chosen]
        if not np.all(np.isfinite(values)):
            return np.array([self._as_if_seen(a) for a in orders])
        return np.asarray(np.interp(orders, chosen, values))

    def _as_if_seen(self, a: float) -> float:
        """A bound by joint convexity, as if the adversary saw the sampling: 1-q + q e^{a(a-1)mu²/2}."""
        plain = a * (a - 1) * (self.mu * self.mu / 2)
        return float(np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + plain))

    def log_density(self, x: Floats) -> Floats:
        """log Q(x)."""
        log_q, c = -x * x / 2 - _HALF_LOG_2PI, self.mu / 2
        return np.asarray(log_q + np.logaddexp(math.log1p(-self.rate), math.log(self.rate) - c * x - c * c / 2))

    @property
    def unsampled_mu(self) -> float:
        return self.mu

    @property
    def ratio_variance(self) -> float | None:
        # Var[q (e^{cx} - e^{-cx}) e^{-c²/2}] with c = mu/2.
        c = self.mu / 2
        return self.rate**2 * 2 * (_expm1(c * c) - _expm1(-c * c))

    @property
    def family(self) -> Hashable:
        return SampledReplacementPair

    def in_dp_accounting(self, interval: float) -> Any:
        from dp_accounting import NeighboringRelation
        from dp_accounting.pld import privacy_loss_distribution as pld

        options = {"value_discretization_interval": interval, "neighboring_relation": NeighboringRelation.REPLACE_ONE}
        return pld.from_gaussian_mechanism(2 / self.mu, sampling_prob=self.rate, **options)


@dataclass(frozen=True)
class WithoutReplacementPair(Pair):
    """A batch of fixed size, drawn without replacement, holds with probability `rate` the record that is replaced.

    Worlds are told apart at most as well, at every epsilon, as (1-q) N(0) + q N(mu) from N(0) or N(mu) from
    (1-q) N(mu) + q N(0), whichever is easier there: the first for epsilon > 0, the second below (Zhu, Dong, Wang 2022,
    Theorem 11; mu is of one record replaced in a known batch). The larger of the two profiles is one pair's: positive
    losses are the first pair's, negative ones the second's, and the rest of the mass has loss 0. Its composition is
    conservative, since no two worlds have both halves.
    """

    mu: float
    rate: float
    described = "batches that are sampled without replacement, or whose size is seen"
    sampled = True

    @property
    def removal(self) -> SampledGaussianPair:
        """The half with positive losses."""
        return SampledGaussianPair(self.mu, self.rate)

    def masses(self, edges: Floats) -> tuple[Floats, Floats]:
        first = self.removal.masses(np.maximum(edges, 0.0))
        second = self.removal.reversed().masses(np.minimum(edges, 0.0))
        # Both P and Q leave (1-q) (2 Phi(mu/2) - 1) to the loss 0.
        zero = (1 - self.rate) * float(erf(self.mu / math.sqrt(8))) * holds(edges, 0.0)
        return first[0] + second[0] + zero, first[1] + second[1] + zero

    def reach(self, tail: float) -> tuple[float, float]:
        return min(0.0, self.removal.reversed().reach(tail)[0]), max(0.0, self.removal.reach(tail)[1])

    def usual(self) -> float:
        return 0.0

    def moments(self, orders: tuple[float, ...], *, fast: bool) -> Floats:
        """Each half has at most the removal's excess over 1, hence twice that; by quadrature where it is quick."""
        with np.errstate(divide="ignore"):
            removal = self.removal.moments(orders, fast=fast)
            # log(2 (e^m - 1)), without overflow.
            excess = math.log(2) + removal + np.log(-np.expm1(-removal))
        values = np.logaddexp(0.0, excess)
        if not fast:
            short = [i for i, a in enumerate(orders) if a < _FRACTIONAL_UP_TO]
            values[short] = [min(values[i], _halves_quadrature(self, orders[i])) for i in short]
        return np.asarray(values)

    def attained(self) -> Pair | None:
        """All other records contribute -mu/2, and the record mu/2 or -mu/2."""
        return self.removal

    @property
    def unsampled_mu(self) -> float:
        return self.mu


def _log_mixture(rate: float, log_ratio: Floats) -> Floats:
    """log(1-q + q e^y), without overflow for large y nor cancellation for small q."""
    small = np.log1p(rate * np.expm1(np.minimum(log_ratio, 1)))
    large = log_ratio + math.log(rate) + np.log1p((1 - rate) / rate * np.exp(-np.maximum(log_ratio, 1)))
    return np.asarray(np.where(log_ratio < 1, small, large))


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


def _binomial_series(mu: float, rate: float, orders: tuple[int, ...]) -> Floats:
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
def _binomials(orders: tuple[int, ...]) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """For all orders in one array: where each starts, a - k, k from 2 (an empty term at order 1), and log C(a, k)."""
    counts = [max(a - 1, 1) for a in orders]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    a = np.repeat(np.array(orders, dtype=np.float64), counts)
    k = np.concatenate([np.arange(2.0, max(order, 2) + 1) for order in orders])
    remaining = np.maximum(a - k, 0.0)
    return starts, remaining, k, gammaln(a + 1) - gammaln(k + 1) - gammaln(remaining + 1)


def _quadrature(pair: SampledGaussianPair | SampledReplacementPair, a: float, reach: float) -> float:
    """The trapezoidal rule, whose error falls exponentially for these integrands; halved until two rules agree."""
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


def _log_excess(pair: SampledGaussianPair | SampledReplacementPair, a: float, x: Floats) -> float:
    """log Σ Q(x) (r^a - 1 - a (r - 1)) with r = P/Q: nonnegative terms, whose integral is the moment minus 1."""
    return _log_sum(_log_term(pair.loss(x), a) + pair.log_density(x))


def _log_term(loss: Floats, a: float) -> Floats:
    """log(r^a - 1 - a (r - 1)) at r = e^loss; -inf where that is 0."""
    size = a * loss
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        middle = np.log(np.maximum(np.expm1(size) - a * np.expm1(loss), 0.0))
        taylor = np.log(a * (a - 1) / 2) + 2 * np.log(np.abs(loss)) + np.log1p((a + 1) * loss / 3)
        large = size + np.log1p(-np.exp(-size) - a * (np.exp(loss - size) - np.exp(-size)))
    return np.asarray(np.where(size > 1, large, np.where(np.abs(size) + np.abs(loss) < 1e-4, taylor, middle)))


def _log_sum(excess: Floats) -> float:
    top = float(excess.max())
    return top + math.log(float(np.sum(np.exp(excess - top)))) if math.isfinite(top) else math.inf


def _expm1(x: float) -> float:
    return math.expm1(x) if x < 700 else math.inf
