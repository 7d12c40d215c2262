"""Dominating pairs: two distributions that are at least as easy to tell apart as the outputs of a release on any two
neighbouring data sets (Zhu, Dong, Wang 2022, "Optimal Accounting of Differential Privacy via Characteristic Function").

Composition keeps domination, so bounds on the pairs are bounds on the run. The privacy loss of a pair (P, Q) is
log P(x)/Q(x) with x drawn from P. A pair gives the mass that P and Q put on intervals of the loss, and how far the loss
reaches. All Gaussians here have standard deviation 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, ndtr, ndtri

__all__ = [
    "MANY_PAIRS",
    "Array",
    "Diluted",
    "GaussianPair",
    "LaplacePair",
    "Pair",
    "RandomizedResponsePair",
    "SampledGaussianPair",
    "SampledReplacementPair",
    "WithoutReplacementPair",
    "attained",
    "pure_epsilon",
    "thinned",
]

Array = NDArray[np.float64]

MANY_PAIRS = 256
"""More different pairs than this are thinned out where a rough bound is enough."""

_GROUP = 4


class Pair(Protocol):
    """Two distributions, by the masses of their privacy loss."""

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """P's and Q's mass on each half-open interval (edges[j], edges[j + 1]] of the loss."""
        ...

    def reach(self, tail: float) -> tuple[float, float]:
        """Losses below and above which P has at most mass `tail` each."""
        ...

    def usual(self) -> float:
        """The loss, or nearly so, of P's most likely outcomes."""
        ...

    def reversed(self) -> Pair:
        """The pair (Q, P): the same neighbours, the other way round."""
        ...


class _Symmetric:
    """A pair whose two directions have the same loss."""

    def reversed(self) -> Self:
        return self


@dataclass(frozen=True)
class GaussianPair(_Symmetric):
    """N(mu, 1) against N(0, 1): any number of Gaussian releases without secret sampling."""

    mu: float

    def masses(self, edges: Array) -> tuple[Array, Array]:
        mu = self.mu
        return _normal_masses(edges / mu - mu / 2), _normal_masses(edges / mu + mu / 2)

    def reach(self, tail: float) -> tuple[float, float]:
        z = -float(ndtri(tail))
        return self.mu**2 / 2 - z * self.mu, self.mu**2 / 2 + z * self.mu

    def usual(self) -> float:
        return self.mu**2 / 2


@dataclass(frozen=True)
class SampledGaussianPair:
    """(1-q) N(0, 1) + q N(mu, 1) against N(0, 1): a record is removed; with `added`, the other way round.

    Dominates the Poisson-sampled Gaussian under add-remove (Zhu et al. 2022, Theorem 11).
    """

    mu: float
    rate: float
    added: bool = False

    def loss(self, x: Array) -> Array:
        """log P(x)/Q(x) of the removal, increasing in x."""
        return _log_mixture(self.rate, self.mu * x - self.mu**2 / 2)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        if self.added:
            lower, upper = SampledGaussianPair(self.mu, self.rate).masses(-edges[::-1])
            return upper[::-1], lower[::-1]
        x = self._inverse(edges)
        without, within = _normal_masses(x), _normal_masses(x - self.mu)
        return (1 - self.rate) * without + self.rate * within, without

    def _inverse(self, loss: Array) -> Array:
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


@dataclass(frozen=True)
class SampledReplacementPair(_Symmetric):
    """(1-q) N(0, 1) + q N(mu/2, 1) against (1-q) N(0, 1) + q N(-mu/2, 1): a record is replaced.

    Dominates the Poisson-sampled Gaussian under replace-one when a record's own contribution is at most mu/2 long
    and zero outside the batch (Lebeda, Regehr, Kamath, Steinke 2024).
    """

    mu: float
    rate: float

    def loss(self, x: Array) -> Array:
        """log P(x)/Q(x), increasing in x and odd."""
        c = self.mu / 2
        return _log_mixture(self.rate, c * x - c * c / 2) - _log_mixture(self.rate, -c * x - c * c / 2)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        x, c, q = self._inverse(edges), self.mu / 2, self.rate
        without = (1 - q) * _normal_masses(x)
        return without + q * _normal_masses(x - c), without + q * _normal_masses(x + c)

    def _inverse(self, loss: Array) -> Array:
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


@dataclass(frozen=True)
class LaplacePair(_Symmetric):
    """Laplace(0, 1) against Laplace(shift, 1): its loss has an atom at each end, -shift and shift.

    A shift of the same L1 length that is spread over several entries is harder to tell.
    """

    shift: float

    def masses(self, edges: Array) -> tuple[Array, Array]:
        s, inner = self.shift, np.clip(edges, -self.shift, self.shift)
        top, bottom = _holds(edges, s) / 2, _holds(edges, -s) / 2
        upper = np.diff(np.exp((inner - s) / 2)) / 2 + top + bottom * math.exp(-s)
        lower = -np.diff(np.exp(-(inner + s) / 2)) / 2 + top * math.exp(-s) + bottom
        return upper, lower

    def reach(self, tail: float) -> tuple[float, float]:
        return -self.shift, self.shift

    def usual(self) -> float:
        return self.shift


@dataclass(frozen=True)
class RandomizedResponsePair(_Symmetric):
    """The two answers of a coin that is right with odds e^epsilon: dominates everything that is epsilon-DP."""

    epsilon: float

    def masses(self, edges: Array) -> tuple[Array, Array]:
        right, wrong = 1 / (1 + math.exp(-self.epsilon)), 1 / (1 + math.exp(self.epsilon))
        top, bottom = _holds(edges, self.epsilon), _holds(edges, -self.epsilon)
        return right * top + wrong * bottom, wrong * top + right * bottom

    def reach(self, tail: float) -> tuple[float, float]:
        return -self.epsilon, self.epsilon

    def usual(self) -> float:
        return self.epsilon


@dataclass(frozen=True)
class WithoutReplacementPair(_Symmetric):
    """A batch of fixed size, drawn without replacement, with probability `rate` _holds the record that is replaced.

    Worlds are told apart at most as well, at every epsilon, as (1-q) N(0) + q N(mu) from N(0) or N(mu) from
    (1-q) N(mu) + q N(0), whichever is easier there: the first for epsilon > 0, the second below (Zhu, Dong, Wang 2022,
    Theorem 11; mu is of one record replaced in a known batch). The larger of the two profiles is one pair's: positive
    losses are the first pair's, negative ones the second's, and the rest of the mass has loss 0. Its composition is
    conservative, since no two worlds have both halves.
    """

    mu: float
    rate: float

    @property
    def removal(self) -> SampledGaussianPair:
        """The half with positive losses."""
        return SampledGaussianPair(self.mu, self.rate)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        first = self.removal.masses(np.maximum(edges, 0.0))
        second = self.removal.reversed().masses(np.minimum(edges, 0.0))
        # Both P and Q leave (1-q) (2 Phi(mu/2) - 1) to the loss 0.
        zero = (1 - self.rate) * float(erf(self.mu / math.sqrt(8))) * _holds(edges, 0.0)
        return first[0] + second[0] + zero, first[1] + second[1] + zero

    def reach(self, tail: float) -> tuple[float, float]:
        return min(0.0, self.removal.reversed().reach(tail)[0]), max(0.0, self.removal.reach(tail)[1])

    def usual(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Diluted(_Symmetric):
    """The pair with probability `rate`, otherwise no release, and the adversary sees which: delta = rate * delta_pair.

    Dominates every secret sampling of the pair's mechanism, by joint convexity of the hockey-stick divergence. With
    `hidden`, a batch without the record has an output that the pair's epsilon bounds too (a sum); the adversary then
    does not see the sampling, and the bound is not attained.
    """

    pair: GaussianPair | LaplacePair | RandomizedResponsePair
    rate: float
    hidden: bool = False

    def masses(self, edges: Array) -> tuple[Array, Array]:
        upper, lower = self.pair.masses(edges)
        nothing = (1 - self.rate) * _holds(edges, 0.0)
        return self.rate * upper + nothing, self.rate * lower + nothing

    def reach(self, tail: float) -> tuple[float, float]:
        return self.pair.reach(tail)

    def usual(self) -> float:
        return self.pair.usual() if self.rate > 0.5 else 0.0


def pure_epsilon(pair: Pair) -> float:
    """The largest loss of a pure mechanism, in a round that the record takes part in; inf for Gaussians."""
    inner = pair.pair if isinstance(pair, Diluted) else pair
    if isinstance(inner, LaplacePair):
        return inner.shift
    return inner.epsilon if isinstance(inner, RandomizedResponsePair) else math.inf


def attained(pair: Pair) -> Pair | None:
    """A pair that two real neighbouring data sets attain and that this pair dominates; None where none is known.

    It is the pair itself wherever that is attained. For a batch without replacement: all other records contribute
    -mu/2, and the record mu/2 or -mu/2.
    """
    if isinstance(pair, WithoutReplacementPair):
        return pair.removal
    return None if isinstance(pair, Diluted) and pair.hidden else pair


def thinned(pairs: Mapping[Pair, int], extreme: Callable[..., float]) -> Mapping[Pair, int]:
    """Few pairs for very many similar ones: each group as its strongest (with `max`) or its weakest (with `min`).

    A larger mu and a larger rate are both easier to tell: less of either is a garbling of the pair.
    """
    if len(pairs) <= MANY_PAIRS:
        return pairs
    kept: Counter[Pair] = Counter()
    alike: dict[tuple[type, bool], list[SampledGaussianPair | SampledReplacementPair]] = {}
    for pair, count in pairs.items():
        if isinstance(pair, SampledGaussianPair | SampledReplacementPair):
            alike.setdefault((type(pair), getattr(pair, "added", False)), []).append(pair)
        else:
            kept[pair] += count
    for members in alike.values():
        members.sort(key=lambda pair: (pair.rate, pair.mu))
        for start in range(0, len(members), _GROUP):
            group = members[start : start + _GROUP]
            mu, rate = extreme(pair.mu for pair in group), extreme(pair.rate for pair in group)
            kept[replace(group[0], mu=mu, rate=rate)] += sum(pairs[pair] for pair in group)
    return kept


def _normal_masses(x: Array) -> Array:
    """Standard normal mass between neighbouring points, from the nearer tail so that small masses stay exact."""
    low, high = x[:-1], x[1:]
    flipped = low > 0
    return np.asarray(ndtr(np.where(flipped, -low, high)) - ndtr(np.where(flipped, -high, low)))


def _log_mixture(rate: float, log_ratio: Array) -> Array:
    """log(1-q + q e^y), without overflow for large y nor cancellation for small q."""
    small = np.log1p(rate * np.expm1(np.minimum(log_ratio, 1)))
    large = log_ratio + math.log(rate) + np.log1p((1 - rate) / rate * np.exp(-np.maximum(log_ratio, 1)))
    return np.asarray(np.where(log_ratio < 1, small, large))


def _holds(edges: Array, atom: float) -> Array:
    """1 for the interval that _holds the atom, 0 for the others; an edge that rounding moved off it counts as on it."""
    slack = 1e-12 * max(1.0, abs(atom))
    return ((edges[:-1] < atom - slack) & (edges[1:] >= atom - slack)).astype(np.float64)
