"""Rényi bounds: the conversion, the best of all orders, and which orders are tried when."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from tests.accountants.exposures import event, expose
from vflpriv.accountants import rdp
from vflpriv.accountants._merging import Merged
from vflpriv.accountants.rdp import Bound, RdpAccountant, best_order, pure_bound, renyi_bound
from vflpriv.core.law import Pair
from vflpriv.laws import Gaussian, Laplace
from vflpriv.laws.gaussian import GaussianPair
from vflpriv.laws.laplace import LaplacePair
from vflpriv.laws.pairs import PurePair
from vflpriv.laws.sampled import SampledGaussianPair


def converted(moment: float, order: float, delta: float) -> float:
    """Canonne, Kamath, Steinke 2020, Proposition 12: of log E (P/Q)^a = moment."""
    best = (moment + (order - 1) * math.log1p(-1 / order) - math.log(delta * order)) / (order - 1)
    return max(0.0, best)


@pytest.mark.parametrize("order", [1.002, 1.5, 2.0, 17.0, 3000.0])
def test_orders_are_converted_by_the_published_bound(order: float) -> None:
    pairs: dict[Pair, int] = {GaussianPair(0.3): 7, LaplacePair(0.2): 3}
    moment = 7 * order * (order - 1) * 0.045 + 3 * float(LaplacePair(0.2).log_moments((order,))[0])
    for fast in (True, False):
        found = rdp._convert(pairs, (order, 2 * order), 1e-3, fast=fast)
        assert found[0] == pytest.approx(converted(moment, order, 1e-3), rel=1e-9)
        assert found.shape == (2,)
    assert rdp._convert({GaussianPair(1e-3): 1}, (2.0,), 0.9, fast=False)[0] == 0.0


@pytest.mark.parametrize(
    ("mu", "delta"), [(0.02, 1e-5), (0.3, 1e-3), (1.7, 1e-9), (8.0, 0.1), (40.0, 1e-5), (1e-4, 1e-9)]
)
def test_the_best_order_of_a_gaussian_is_found(mu: float, delta: float) -> None:
    """Orders run from 1.002 to 131072, as far as that helps."""
    found = best_order({GaussianPair(mu): 1}, delta)
    search = minimize_scalar(
        lambda t: converted((1 + math.exp(t)) * math.exp(t) * mu * mu / 2, 1 + math.exp(t), delta),
        bounds=(math.log(0.002), math.log(131071.0)),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert found.epsilon == pytest.approx(search.fun, rel=1e-5)
    assert found.epsilon >= search.fun * (1 - 1e-9)
    own = converted(found.order * (found.order - 1) * mu * mu / 2, found.order, delta)
    assert found.epsilon == pytest.approx(own, rel=1e-6)


@pytest.mark.parametrize(("mu", "low", "high"), [(1.0, 5.0, 7.0), (0.05, 90.0, 110.0), (2e-3, 1500.0, 2500.0)])
def test_of_many_pairs_the_best_order_of_the_table_is_taken(mu: float, low: float, high: float) -> None:
    """Whole orders up to 64 first, larger ones where the best is the last: nothing between the table's is searched."""
    pairs: dict[Pair, int] = {GaussianPair(mu * math.sqrt((1 + k / 100) / 40)): 1 for k in range(33)}
    total = math.sqrt(sum(pair.mu**2 for pair in pairs))  # type: ignore[attr-defined]
    found = best_order(pairs, 1e-5)
    orders = [*range(2, 16), *{round(16 * 1.12**k) for k in range(37)}, 1024, *(2.0**k for k in range(11, 18))]
    best = min((converted(a * (a - 1) * total**2 / 2, a, 1e-5), a) for a in orders)
    assert (found.epsilon, found.order) == (pytest.approx(best[0], rel=1e-9), best[1])
    assert low / 2 < found.order < 2 * high
    few = best_order(dict(list(pairs.items())[:32]), 1e-5)
    assert few.order not in orders


class _Counted(GaussianPair):
    """Counts what it is asked."""

    asked: list[tuple[tuple[float, ...], bool]] = []  # noqa: RUF012 (one list for all)

    def log_moments(self, orders: tuple[float, ...], *, fast: bool = False) -> Any:
        self.asked.append((orders, fast))
        return super().log_moments(orders, fast=fast)


@pytest.mark.parametrize(
    ("mu", "pairs", "largest"),
    [(1.0, 1, 1024.0), (1e-4, 1, 2.0**17), (1.0, 33, 64.0), (0.05, 33, 1024.0), (1e-4, 33, 2.0**17)],
)
def test_larger_orders_are_asked_for_only_where_the_best_is_the_largest(mu: float, pairs: int, largest: float) -> None:
    _Counted.asked.clear()
    best_order({_Counted(mu / math.sqrt(pairs) * (1 + k / 1000)): 1 for k in range(pairs)}, 1e-5)
    tables = [orders for orders, _ in _Counted.asked if len(orders) > 1]
    assert max(max(orders) for orders in tables) == pytest.approx(largest, rel=0.1)
    assert min(min(orders) for orders in tables) == (1.002 if pairs == 1 else 2.0)
    refined = [orders for orders, _ in _Counted.asked if len(orders) == 1]
    assert (len(refined) > 0) == (pairs == 1)
    assert len(refined) <= 12
    assert _Counted.asked[0][1] == (pairs > 32)


@pytest.mark.parametrize("mu", [1e4, 3200.0, 1600.0, 40.0, 0.3, 1e-3, 7e-5, 3e-5, 1e-5])
def test_the_search_runs_between_the_neighbours_of_the_best_order_of_the_table(
    mu: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At either end of the table the best order is its own neighbour; the search takes no shortcuts."""
    between: list[tuple[float, float]] = []

    def search(function: Any, *, bounds: tuple[float, float], **options: Any) -> Any:
        between.append(bounds)
        return minimize_scalar(function, bounds=bounds, **options)

    monkeypatch.setattr(rdp, "minimize_scalar", search)
    _Counted.asked.clear()
    best_order({_Counted(mu): 1}, 1e-9)
    orders = [a for asked, _ in _Counted.asked if len(asked) > 1 for a in asked]
    costs = [converted(a * (a - 1) * mu * mu / 2, a, 1e-9) for a in orders]
    at = costs.index(min(costs))
    ends = orders[max(at - 1, 0)], orders[min(at + 1, len(orders) - 1)]
    assert between == [pytest.approx([math.log(end - 1) for end in ends])]
    assert not any(fast for asked, fast in _Counted.asked if len(asked) == 1)


def test_nothing_is_searched_where_the_best_costs_nothing_or_everything() -> None:
    assert best_order({GaussianPair(1e-3): 1}, 0.9).epsilon == 0.0
    assert best_order({GaussianPair(1e200): 1}, 1e-5).epsilon == math.inf


def test_pure_epsilons_add_up_and_count_as_an_order() -> None:
    pairs: dict[Pair, int] = {PurePair(0.5): 3, LaplacePair(0.25): 2}
    assert pure_bound(pairs) == Bound(2.0, math.inf)
    assert pure_bound({}) == Bound(0.0, math.inf)
    assert pure_bound({**pairs, GaussianPair(1.0): 1}).epsilon == math.inf
    assert Bound(2.0, math.inf).method == "addition of pure epsilons"
    assert Bound(2.0, 12.3456).method == "Rényi divergence of order 12.35"
    for delta, pure in ((1e-12, True), (0.0, True), (0.3, False)):
        found = renyi_bound(Merged(mu=0.0, pairs={PurePair(0.01): 3}), delta)
        assert math.isinf(found.order) == pure
    assert renyi_bound(Merged(mu=0.0, pairs={}), 1e-5) == Bound(0.0, math.inf)
    assert renyi_bound(Merged(mu=1.0, pairs={}), 0.0).epsilon == math.inf


def test_the_budget_is_an_upper_bound_alone_with_its_approximations() -> None:
    exposure = expose(event(Gaussian(1.0), 0.7, 30, rate=0.1), assumptions=("a",))
    budget = RdpAccountant().budget(exposure, 1e-5)
    assert (budget.lower, budget.estimate, budget.delta, budget.assumptions[0]) == (0.0, budget.upper, 1e-5, "a")
    assert budget.upper == pytest.approx(best_order({SampledGaussianPair(0.7, 0.1): 30}, 1e-5).epsilon)
    assert len(budget.approximations) == 1
    assert RdpAccountant().budget(expose(event(Laplace(2.0))), 1e-5).approximations == {}
    leaking = RdpAccountant().budget(expose(event(Gaussian(1.0)), unprotected=("x",)), 1e-5)
    assert leaking.lower == leaking.upper == math.inf


def test_the_table_of_orders_is_dense_where_bounds_are_sharp() -> None:
    assert np.all(np.diff(rdp._ALL) > 0)
    assert max(np.diff(np.log(np.array(rdp._ALL)[20:]))) < 0.2
