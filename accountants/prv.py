"""Privacy-loss distributions: certified bounds on epsilon from both sides, usually within 0.1 % of each other.

The discretisation is connect-the-dots, as in dp-accounting's PLD (which serves as a cross-check), written in vectors;
its counterpart from below errs in second order too, and composition is one transform with a bounded error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vflpriv.accountants._composition import MAX_GRID_POINTS, GridTooLargeError, compose
from vflpriv.accountants._lattice import Lattice, optimistic, pessimistic
from vflpriv.accountants._merging import Merged, check, merge, why_not
from vflpriv.accountants._pairs import LaplacePair, Pair, RandomizedResponsePair
from vflpriv.accountants.gdp import approximations, exact_budget
from vflpriv.accountants.rdp import Bound, best_order, renyi_bound
from vflpriv.budgets import Budget
from vflpriv.ledger import Exposure
from vflpriv.registry import register

__all__ = ["PrvAccountant"]

_AIM = 1e-4  # the first grid's expected error, relative to epsilon
_ENOUGH = 2e-3  # a wider bracket is worth a finer grid
_USELESS = 0.1  # a grid that errs by more is not worth its time: RDP stands alone
_LARGEST_STEP = 0.05
_TRUNCATED = 1e-7  # the share of delta that may be cut off the losses' tails
_ATTEMPTS = 4


@register("accountant")
class PrvAccountant:
    """Bounds the privacy loss of each dominating pair on a grid, from above and below, and composes them.

    `upper` is the lesser of that and the Rényi bound, `lower` a certified bound from below. Gaussians without sampling
    are composed in closed form first; an exposure that has nothing else is exact. Where no useful grid fits into
    `MAX_GRID_POINTS` points, the Rényi bound stands alone and the budget says so.
    """

    name = "prv"
    summary = "privacy-loss distributions on an adaptive grid: tight certified bounds from both sides"

    def supports(self, exposure: Exposure) -> str | None:
        return why_not(exposure)

    def budget(self, exposure: Exposure, delta: float) -> Budget:
        check(self.supports(exposure), delta)
        merged = merge(exposure)
        if merged.gaussian or merged.leaks:
            return exact_budget(self.name, merged, delta)
        renyi = renyi_bound(merged, delta)
        bracket = _bracket(merged.all_pairs, delta, renyi.epsilon)
        upper = min(bracket.upper, renyi.epsilon)
        lower = min(bracket.lower, upper)
        return Budget(
            accountant=self.name,
            method=bracket.method if bracket.upper < renyi.epsilon else f"{renyi.method}; {bracket.method}",
            delta=delta,
            lower=lower,
            estimate=(lower + upper) / 2,
            upper=upper,
            assumptions=(*merged.assumptions, *bracket.notes),
            approximations=approximations(exposure, delta),
        )


@dataclass(frozen=True)
class _Bracket:
    lower: float
    upper: float
    step: float
    notes: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        if self.notes:
            return "no privacy-loss distribution: the grid would not fit"
        return f"privacy-loss distribution, grid step {self.step:.3g}"


def _bracket(pairs: Mapping[Pair, int], delta: float, high: float) -> _Bracket:
    """The best bounds that grids of growing fineness give below `high`, a bound that is already known."""
    if high == 0:
        return _Bracket(0.0, 0.0, _LARGEST_STEP)
    order, best = best_order(pairs, delta).order, None
    step, coarsest = _step(pairs, order, high, _AIM), _step(pairs, order, high, _USELESS)
    for _ in range(_ATTEMPTS):
        try:
            found = _bracket_at(pairs, delta, high, order, step)
        except GridTooLargeError as error:
            step *= 1.1 * error.factor
            if step > (coarsest if best is None else 0.7 * best.step):
                break
            continue
        best = found if best is None else _better(best, found)
        gap = (best.upper - best.lower) / max(best.upper, 1e-3)
        if gap <= _ENOUGH or math.isinf(best.upper):
            break
        step = best.step / min(10.0, max(2.0, math.sqrt(2 * gap / _ENOUGH)))
    return best or _unfit(step)


def _unfit(step: float) -> _Bracket:
    note = f"no useful grid of privacy losses fits into {MAX_GRID_POINTS} points: the bound is RDP's, there is no lower one"
    return _Bracket(0.0, math.inf, step, (note,))


def _better(one: _Bracket, other: _Bracket) -> _Bracket:
    return _Bracket(max(one.lower, other.lower), min(one.upper, other.upper), min(one.step, other.step))


def _step(pairs: Mapping[Pair, int], order: float, epsilon: float, error: float) -> float:
    """The grid step at which epsilon errs by about `error`, relatively.

    Rounding adds about step²/6 to the variance of each loss, hence order T step² / 12 to epsilon. A grid that holds the
    largest atom of a pure mechanism at both ends rounds it nowhere.
    """
    step = math.sqrt(12 * error * epsilon / (order * sum(pairs.values())))
    step = min(step, _LARGEST_STEP)
    atoms = [2 * pair.usual() for pair in pairs if isinstance(pair, LaplacePair | RandomizedResponsePair)]
    return max(atoms) / math.ceil(max(atoms) / step) if atoms else step


def _bracket_at(pairs: Mapping[Pair, int], delta: float, high: float, order: float, step: float) -> _Bracket:
    """Both bounds on one grid: from above for both directions of the neighbours, from below for the worse one."""
    tail = _TRUNCATED * delta / sum(pairs.values())
    forward, backward = dict(pairs), {pair.reversed(): count for pair, count in pairs.items()}
    above = [_solve(forward, pessimistic, delta, high, order, step, tail)]
    if backward != forward:
        above.append(_solve(backward, pessimistic, delta, high, order, step, tail))
    worse = forward if above[0] >= above[-1] else backward
    return _Bracket(_solve(worse, optimistic, delta, high, order, step, tail), max(above), step)


def _solve(
    pairs: Mapping[Pair, int],
    rounding: Callable[[Pair, float, float], Lattice],
    delta: float,
    high: float,
    order: float,
    step: float,
    tail: float,
) -> float:
    """Epsilon of the rounded losses' composition, under the tilt of the best Rényi order, else under none."""
    spans = [reach[1] - reach[0] for reach in (pair.reach(tail) for pair in pairs)]
    if not sum(spans) / step <= MAX_GRID_POINTS:
        raise GridTooLargeError(sum(spans) / step / MAX_GRID_POINTS)
    parts = [(rounding(pair, step, tail), count) for pair, count in pairs.items()]
    upper = rounding is pessimistic
    epsilon = compose(parts, order - 1).epsilon(delta, high, upper=upper)
    if math.isfinite(epsilon) and (upper or epsilon > 0):
        return epsilon
    return compose(parts, 0.0).epsilon(delta, high, upper=upper)
