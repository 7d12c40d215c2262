"""Rényi differential privacy: a valid, cheap upper bound for any mix of noises, 6 to 75 % above the truth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from vflpriv.accountants._merging import Merged, check, merge, refusal, unbounded
from vflpriv.accountants._sampler import sampled_budget
from vflpriv.accountants.gdp import approximations
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.core.budgets import Budget, Tightness
from vflpriv.core.law import Pair
from vflpriv.core.ledger import Exposure

__all__ = ["Bound", "RdpAccountant", "best_order", "pure_bound", "renyi_bound"]

_FRACTIONAL = (1.002, 1.005, 1.01, 1.02, 1.035, 1.05, 1.075, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.75)
_HALVES = (2.5, 3.5, 4.5, 5.5)
_WHOLE = tuple(range(2, 16)) + tuple(sorted({round(16 * 1.12**k) for k in range(37)} | {1024}))
_ALL = tuple(sorted((*_FRACTIONAL, *_WHOLE, *_HALVES)))
_LARGE = tuple(2.0**k for k in range(11, 18))
_MANY_PAIRS = 32
_SMALL = 64.0  # with many pairs, larger orders are tried only if the best order is not below this


@register("accountant")
class RdpAccountant:
    """Adds the Rényi divergences of all releases, order by order, and converts the best order to epsilon.

    `upper` is certified; `lower` is 0, for this method has none. Orders run from 1.002 to 1024, and on to 131072
    when the best lies at the end.
    """

    name = "rdp"
    summary = "Rényi divergences of any mix of noises: cheap, valid, loose"
    tightness = Tightness.LOOSE

    def supports(self, exposure: Exposure) -> str | None:
        return refusal(exposure)

    @sampled_budget
    def budget(self, exposure: Exposure, delta: float) -> Budget:
        check(self.supports(exposure), delta)
        merged = merge(exposure)
        if merged.leaks:
            return unbounded(self.name, merged, delta)
        bound = renyi_bound(merged, delta)
        return Budget(
            accountant=self.name,
            method=bound.method,
            delta=delta,
            lower=0.0,
            estimate=bound.epsilon,
            upper=bound.epsilon,
            assumptions=merged.assumptions,
            approximations=approximations(exposure, delta),
        )


@dataclass(frozen=True)
class Bound:
    """An upper bound on epsilon and the order it comes from; the order is inf for plain addition of pure epsilons."""

    epsilon: float
    order: float

    @property
    def method(self) -> str:
        if math.isinf(self.order):
            return "addition of pure epsilons"
        return f"Rényi divergence of order {self.order:.4g}"


def renyi_bound(merged: Merged, delta: float) -> Bound:
    """The least epsilon over all orders, infinity among them."""
    pairs = merged.all_pairs
    if not pairs or delta == 0:
        return pure_bound(pairs)
    return min(best_order(pairs, delta), pure_bound(pairs), key=lambda b: b.epsilon)


def best_order(pairs: Mapping[Pair, int], delta: float) -> Bound:
    """The least epsilon over finite orders; with many different pairs only the coarser table of orders is tried."""
    many = len(pairs) > _MANY_PAIRS
    first = tuple(float(a) for a in (_WHOLE if many else _ALL))
    small = sum(a <= _SMALL for a in first) if many else len(first)
    orders, epsilons = first[:small], _convert(pairs, first[:small], delta, fast=many)
    for more in (first[small:], _LARGE):
        if more and np.argmin(epsilons) == len(orders) - 1 and epsilons[-1] > 0:
            orders += more
            epsilons = np.append(epsilons, _convert(pairs, more, delta, fast=True))
    at = int(np.argmin(epsilons))
    best = Bound(float(epsilons[at]), orders[at])
    if many or not 0 < best.epsilon < math.inf:
        return best
    return _refine(pairs, delta, best, orders[max(0, at - 1)], orders[min(len(orders) - 1, at + 1)])


def _refine(pairs: Mapping[Pair, int], delta: float, best: Bound, low: float, high: float) -> Bound:
    """Search between the best order's neighbours: every order is valid, a better one is tighter."""
    search = minimize_scalar(
        lambda t: float(_convert(pairs, (1 + math.exp(t),), delta, fast=False)[0]),
        bounds=(math.log(low - 1), math.log(high - 1)),
        method="bounded",
        options={"maxiter": 12},
    )
    return min(best, Bound(float(search.fun), 1 + math.exp(float(search.x))), key=lambda b: b.epsilon)


def _convert(pairs: Mapping[Pair, int], orders: tuple[float, ...], delta: float, *, fast: bool) -> Floats:
    """Epsilon by each order: Canonne, Kamath, Steinke 2020, Proposition 12 (and Balle et al. 2020, Theorem 21)."""
    total = sum((count * pair.log_moments(orders, fast=fast) for pair, count in pairs.items()), np.zeros(len(orders)))
    a = np.array(orders)
    return np.asarray(np.maximum(0.0, total / (a - 1) + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1)))


def pure_bound(pairs: Mapping[Pair, int]) -> Bound:
    """Order infinity: pure epsilons add up."""
    total = sum((count * pair.pure_cost for pair, count in pairs.items()), 0.0)
    return Bound(total, math.inf)
