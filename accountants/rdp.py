"""Rényi differential privacy: a valid, cheap upper bound for any mix of noises. It never fails, and is 6-75 % loose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.optimize import minimize_scalar

from vflpriv.accountants._merging import Merged, check, merge, unbounded, why_not
from vflpriv.accountants._moments import log_moment
from vflpriv.accountants._pairs import Diluted, LaplacePair, Pair, RandomizedResponsePair
from vflpriv.accountants.gdp import approximations
from vflpriv.budgets import Budget
from vflpriv.ledger import Exposure
from vflpriv.registry import register

__all__ = ["Bound", "RdpAccountant", "best_order", "renyi_bound"]

_FRACTIONAL = (1.002, 1.005, 1.01, 1.02, 1.035, 1.05, 1.075, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.75)
_HALVES = (2.5, 3.5, 4.5, 5.5)
_WHOLE = tuple(range(2, 16)) + tuple(sorted({round(16 * 1.12**k) for k in range(37)} | {1024}))
_LARGE = tuple(2**k for k in range(11, 18))
_MANY_PAIRS = 32


@register("accountant")
class RdpAccountant:
    """Adds the Rényi divergences of all releases, order by order, and converts the best order to epsilon.

    `upper` is certified; `lower` is 0, for this method has none. Orders run from 1.002 to 1024, and on to 131072
    when the best lies at the end.
    """

    name = "rdp"
    summary = "Rényi divergences of any mix of noises: cheap, valid, loose"

    def supports(self, exposure: Exposure) -> str | None:
        return why_not(exposure)

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
    if not pairs:
        return Bound(0.0, math.inf)
    return min(best_order(pairs, delta), _pure(pairs), key=lambda b: b.epsilon)


def best_order(pairs: Mapping[Pair, int], delta: float) -> Bound:
    """The least epsilon over finite orders; with many different pairs only whole ones are tried."""
    many = len(pairs) > _MANY_PAIRS
    orders = sorted(_WHOLE if many else (*_FRACTIONAL, *_WHOLE, *_HALVES))
    found = [Bound(_convert(pairs, order, delta), order) for order in orders]
    best = min(found, key=lambda b: b.epsilon)
    if best.order == orders[-1] and best.epsilon > 0:
        found += [Bound(_convert(pairs, order, delta), order) for order in _LARGE]
        best = min(found, key=lambda b: b.epsilon)
    return best if many else _refine(pairs, delta, found, best)


def _refine(pairs: Mapping[Pair, int], delta: float, found: list[Bound], best: Bound) -> Bound:
    """Searches between the best order's neighbours: any order is valid, a better one is only tighter."""
    place = found.index(best)
    low, high = found[max(0, place - 1)].order, found[min(len(found) - 1, place + 1)].order
    if not 0 < best.epsilon < math.inf:
        return best
    search = minimize_scalar(
        lambda t: _convert(pairs, 1 + math.exp(t), delta),
        bounds=(math.log(low - 1), math.log(high - 1)),
        method="bounded",
        options={"maxiter": 12},
    )
    return min(best, Bound(float(search.fun), 1 + math.exp(float(search.x))), key=lambda b: b.epsilon)


def _convert(pairs: Mapping[Pair, int], a: float, delta: float) -> float:
    """From order to epsilon: Canonne, Kamath, Steinke 2020, Proposition 12 (and Balle et al. 2020, Theorem 21)."""
    total = sum(count * log_moment(pair, a) for pair, count in pairs.items())
    if math.isinf(total):
        return math.inf
    return max(0.0, total / (a - 1) + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1))


def _pure(pairs: Mapping[Pair, int]) -> Bound:
    """Order infinity: pure epsilons add up."""
    total = 0.0
    for pair, count in pairs.items():
        if isinstance(pair, LaplacePair):
            total += count * pair.shift
        elif isinstance(pair, RandomizedResponsePair):
            total += count * pair.epsilon
        elif isinstance(pair, Diluted):
            # (1-q) + q e^eps bounds the likelihood ratio of the sampled mechanism.
            inner = pair.pair.shift if isinstance(pair.pair, LaplacePair) else pair.pair.epsilon
            total += count * math.log1p(pair.rate * math.expm1(min(inner, 700.0))) if inner < 700 else math.inf
        else:
            return Bound(math.inf, math.inf)
    return Bound(total, math.inf)
