"""Dominating pairs that belong to no single law: pure ones, discrete ones, and those of batches that show who is in."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy.special import ndtr

from vflpriv.common.numerics import Floats
from vflpriv.core.law import Pair

__all__ = ["MANY_PAIRS", "AtomicPair", "Diluted", "PurePair", "holds", "normal_masses", "ratio", "thinned"]

MANY_PAIRS = 256
"""More different pairs than this are thinned out where a rough bound is enough."""

_GROUP = 4


@dataclass(frozen=True)
class PurePair(Pair):
    """The two answers of a coin that is right with odds e^epsilon: dominates everything that is epsilon-DP.

    With `bound` no two neighbours of the mechanism are known to be as easy to tell.
    """

    epsilon: float
    bound: bool = False
    described = "randomised response"
    library_note = "its accountant ignores the count of randomised responses; composed here"

    def masses(self, edges: Floats) -> tuple[Floats, Floats]:
        right, wrong = 1 - self._wrong, self._wrong
        top, bottom = holds(edges, self.epsilon), holds(edges, -self.epsilon)
        return right * top + wrong * bottom, wrong * top + right * bottom

    @property
    def _wrong(self) -> float:
        """P[the coin is wrong] = 1/(1 + e^epsilon), of any epsilon."""
        return math.exp(-self.epsilon) / (1 + math.exp(-self.epsilon))

    def reach(self, tail: float) -> tuple[float, float]:
        return -self.epsilon, self.epsilon

    def usual(self) -> float:
        return self.epsilon

    def moments(self, orders: tuple[float, ...], *, fast: bool) -> Floats:
        a = np.array(orders)
        right, wrong = -math.log1p(math.exp(-self.epsilon)), -float(np.logaddexp(0, self.epsilon))
        return np.asarray(np.logaddexp(a * right + (1 - a) * wrong, a * wrong + (1 - a) * right))

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    def attained(self) -> Pair | None:
        return None if self.bound else self

    def in_dp_accounting(self, interval: float) -> Any:
        from dp_accounting.pld import privacy_loss_distribution as pld

        return pld.from_randomized_response(2 * self._wrong, 2, value_discretization_interval=interval)


class AtomicPair(Pair):
    """A pair of discrete distributions: finitely many losses, each with its mass under P and under Q.

    Where P's masses add up to less than 1, what is missing has a larger loss than all that are listed; such a pair has
    moments of its own.
    """

    @abstractmethod
    def atoms(self) -> tuple[Floats, Floats, Floats]:
        """The losses in rising order, and the masses of P and Q on each."""

    def masses(self, edges: Floats) -> tuple[Floats, Floats]:
        losses, upper, lower = self.atoms()
        # An edge that rounding moved off a loss counts as on it.
        places = np.searchsorted(edges, losses - 1e-12 * np.maximum(1.0, np.abs(losses)), side="left") - 1
        inside = (places >= 0) & (places < edges.size - 1)
        p, q = (
            np.asarray(np.bincount(places[inside], of[inside], edges.size - 1), dtype=np.float64)
            for of in (upper, lower)
        )
        if edges[-1] == math.inf:
            p[-1] += max(0.0, 1 - math.fsum(upper))
        return p, q

    def reach(self, tail: float) -> tuple[float, float]:
        losses, upper, _ = self.atoms()
        below, above = np.cumsum(upper), np.cumsum(upper[::-1])[::-1]
        kept = (below > tail) & (above > tail)
        return float(losses[kept][0]), float(losses[kept][-1])

    def usual(self) -> float:
        losses, upper, _ = self.atoms()
        return float(losses[int(np.argmax(upper))])

    def moments(self, orders: tuple[float, ...], *, fast: bool) -> Floats:
        losses, upper, _ = self.atoms()
        with np.errstate(divide="ignore"):
            log_p = np.log(upper)
        # E_Q[(P/Q)^a] = E_P[e^{(a-1) loss}].
        values = [float(np.logaddexp.reduce(log_p + (a - 1) * losses)) for a in orders]
        return np.array(values)


@dataclass(frozen=True)
class Diluted(Pair):
    """The pair with probability `rate`, otherwise no release, and the adversary sees which: delta = rate * delta_pair.

    Dominates every secret sampling of the pair's mechanism, by joint convexity of the hockey-stick divergence. With
    `hidden`, a batch without the record has an output that the pair's epsilon bounds too (a sum); the adversary then
    does not see the sampling, and the bound is not attained.
    """

    pair: Pair
    rate: float
    hidden: bool = False
    described = "batches that are sampled without replacement, or whose size is seen"
    sampled = True

    def masses(self, edges: Floats) -> tuple[Floats, Floats]:
        upper, lower = self.pair.masses(edges)
        nothing = (1 - self.rate) * holds(edges, 0.0)
        return self.rate * upper + nothing, self.rate * lower + nothing

    def reach(self, tail: float) -> tuple[float, float]:
        return self.pair.reach(tail)

    def usual(self) -> float:
        return self.pair.usual() if self.rate > 0.5 else 0.0

    def reversed(self) -> Diluted:
        return replace(self, pair=self.pair.reversed())

    def moments(self, orders: tuple[float, ...], *, fast: bool) -> Floats:
        inner = self.pair.moments(orders, fast=fast)
        return np.asarray(np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + inner))

    @property
    def by_moments(self) -> bool:  # type: ignore[override]
        return self.pair.by_moments

    @property
    def pure_epsilon(self) -> float:
        return self.pair.pure_epsilon

    @property
    def pure_cost(self) -> float:
        if not self.hidden or self.pure_epsilon >= 700:
            return self.pure_epsilon
        # (1-q) + q e^eps bounds the likelihood ratio of a sampled mechanism that hides whether a record takes part.
        return math.log1p(self.rate * math.expm1(self.pure_epsilon))

    def attained(self) -> Pair | None:
        return None if self.hidden else self

    @property
    def unsampled_mu(self) -> float:
        return self.pair.unsampled_mu


def thinned(pairs: Mapping[Pair, int], extreme: Callable[..., float]) -> Mapping[Pair, int]:
    """Few pairs for very many similar ones: each group as its strongest (with `max`) or its weakest (with `min`).

    A larger mu and a larger rate are both easier to tell: less of either is a garbling of the pair.
    """
    if len(pairs) <= MANY_PAIRS:
        return pairs
    kept: Counter[Pair] = Counter()
    families: dict[Any, list[Any]] = {}
    for pair, count in pairs.items():
        if pair.family is None:
            kept[pair] += count
        else:
            families.setdefault(pair.family, []).append(pair)
    for members in families.values():
        members.sort(key=lambda pair: (pair.rate, pair.mu))
        for start in range(0, len(members), _GROUP):
            group = members[start : start + _GROUP]
            mu, rate = extreme(pair.mu for pair in group), extreme(pair.rate for pair in group)
            kept[cast(Pair, replace(group[0], mu=mu, rate=rate))] += sum(pairs[pair] for pair in group)
    return kept


def normal_masses(x: Floats) -> Floats:
    """Standard normal mass between neighbouring points, from the nearer tail so that small masses stay exact."""
    low, high = x[:-1], x[1:]
    flipped = low > 0
    return np.asarray(ndtr(np.where(flipped, -low, high)) - ndtr(np.where(flipped, -high, low)))


def holds(edges: Floats, atom: float) -> Floats:
    """1 for the interval that holds the atom, 0 for the others; an edge that rounding moved off it counts as on it."""
    slack = 1e-12 * max(1.0, abs(atom))
    return ((edges[:-1] < atom - slack) & (edges[1:] >= atom - slack)).astype(np.float64)


def ratio(sensitivity: float, width: float) -> float:
    """Sensitivity over the width of the noise: nothing costs nothing, and without noise anything costs everything."""
    if sensitivity == 0:
        return 0.0
    return sensitivity / width if width > 0 else math.inf
