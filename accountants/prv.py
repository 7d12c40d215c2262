"""Privacy-loss distributions: certified bounds on epsilon from both sides, usually within 0.1 % of each other.

Losses are discretised by "connect the dots", as in dp-accounting's PLD (a cross-check), in vectorised form. The
counterpart that bounds from below has a second-order error too, and composition is one transform with a bounded error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from vflpriv.accountants._composition import MAX_GRID_POINTS, GridTooLargeError, compose
from vflpriv.accountants._lattice import Lattice, optimistic, pessimistic
from vflpriv.accountants._merging import Merged, check, merge, refusal
from vflpriv.accountants._sampler import sampled_budget, sampled_upper
from vflpriv.accountants.gdp import approximations, exact_budget, unsampled
from vflpriv.accountants.rdp import Bound, best_order, pure_bound
from vflpriv.common.registry import register
from vflpriv.core.budgets import Budget, Tightness
from vflpriv.core.law import Pair
from vflpriv.core.ledger import Exposure
from vflpriv.laws.pairs import MANY_PAIRS, thinned

__all__ = ["PrvAccountant"]

_AIM = 1e-4  # the first grid's expected error, relative to epsilon
_ENOUGH = 1e-3  # a wider bracket is worth a finer grid
_UNSAMPLED = "exact composition of Gaussians, as if nothing were sampled"
_USELESS = 0.1  # a grid with a larger error is not worth its time: RDP alone is used
_AIM_OF_MANY = 5e-4  # the same with very many different pairs, when a grid takes a second and only one is computed
_LOOSE = 0.01  # a wider bracket is mentioned in the budget's assumptions
_LARGEST_STEP = 0.05
_TRUNCATED = 1e-7  # the share of delta that may be cut off the losses' tails
_ATTEMPTS = 4
_TILTS = (0.7, 1.0, 0.0)  # in units of the best Rényi order's tilt
_ACCURATE = 1e-3  # with a smaller relative error of delta, no other tilt is tried


@register("accountant")
class PrvAccountant:
    """Bounds the privacy loss of each dominating pair on a grid, from above and below, and composes them.

    `upper` is the least of that, the Rényi bound and the closed form without sampling, `lower` a certified bound from
    below. Gaussians without sampling are composed in closed form first; an exposure with nothing else is exact. Where
    no useful grid fits into memory, or only a coarse one, the budget's assumptions say so.
    """

    name = "prv"
    summary = "privacy-loss distributions on an adaptive grid: tight certified bounds from both sides"
    tightness = Tightness.TIGHT

    def supports(self, exposure: Exposure) -> str | None:
        if (reason := refusal(exposure)) is not None:
            return reason
        known_by_moments = [pair.described for pair in merge(exposure).pairs if pair.by_moments]
        return f"there is {known_by_moments[0]}" if known_by_moments else None

    @sampled_budget
    def budget(self, exposure: Exposure, delta: float) -> Budget:
        check(self.supports(exposure), delta)
        merged = merge(exposure)
        if merged.gaussian or merged.leaks:
            return exact_budget(self.name, merged, delta)
        pairs = merged.all_pairs
        if delta == 0:
            return _pure(self.name, merged)
        known, method, bracket = _bounds(tuple(pairs.items()), delta)
        upper = min(bracket.upper, known.epsilon)
        lower = min(bracket.lower, upper)
        return Budget(
            accountant=self.name,
            method=bracket.method if bracket.upper < known.epsilon else f"{method}; {bracket.method}",
            delta=delta,
            lower=lower,
            estimate=(lower + upper) / 2,
            upper=upper,
            assumptions=(*merged.assumptions, *_looseness(pairs, lower, upper)),
            approximations=approximations(exposure, delta),
        )

    @sampled_upper
    def upper(self, exposure: Exposure, delta: float) -> float:
        """An upper bound not below that of `budget`, and seldom above it, in half the time: without a lower one."""
        merged = merge(exposure)
        check(self.supports(exposure), delta)
        if merged.gaussian or merged.leaks:
            return exact_budget(self.name, merged, delta).upper
        if delta == 0:
            return _pure(self.name, merged).upper
        known, _ = _known(merged.all_pairs, delta)
        return min(known.epsilon, _bracket(merged.all_pairs, delta, known, lower=False).upper)


@lru_cache(maxsize=256)
def _bounds(pairs: tuple[tuple[Pair, int], ...], delta: float) -> tuple[Bound, str, _Bracket]:
    """The bound without a grid, its method, and the bounds of grids; several views and units often have one answer."""
    counted = dict(pairs)
    known, method = _known(counted, delta)
    return known, method, _bracket(counted, delta, known)


def _known(pairs: Mapping[Pair, int], delta: float) -> tuple[Bound, str]:
    """A bound without any grid, with the best finite order for the tilt, and the method that gives it."""
    finite = best_order(pairs, delta)
    renyi = min(finite, pure_bound(pairs), key=lambda b: b.epsilon)
    epsilon, method = min((renyi.epsilon, renyi.method), (unsampled(pairs, delta), _UNSAMPLED))
    return Bound(epsilon, finite.order), method


def _looseness(pairs: Mapping[Pair, int], lower: float, upper: float) -> tuple[str, ...]:
    """A note for a budget whose upper bound may be more than 1 % above the truth because no finer grid fits."""
    attainable = all(pair.attained() is pair for pair in pairs)
    if lower >= upper * (1 - _LOOSE) - 1e-3 * _LOOSE or not attainable:
        return ()
    if lower == 0:
        return (f"no useful grid of privacy losses fits into {MAX_GRID_POINTS} points: this bound is looser",)
    return (f"the true epsilon is at least {lower:.6g}; no finer grid of privacy losses fits into memory",)


def _pure(accountant: str, merged: Merged) -> Budget:
    """Pure epsilons add up, exactly if all are attained; noise without a pure epsilon makes the sum infinite."""
    bound = pure_bound(merged.all_pairs)
    exact = all(pair.attained() is pair for pair in merged.all_pairs)
    return Budget(
        accountant=accountant,
        method=bound.method,
        delta=0.0,
        lower=bound.epsilon if exact else 0.0,
        estimate=bound.epsilon,
        upper=bound.epsilon,
        assumptions=merged.assumptions,
    )


@dataclass(frozen=True)
class _Bracket:
    lower: float
    upper: float
    step: float
    backward: bool = False
    """Whether the reversed pairs have the larger upper bound."""
    lowered: bool = False
    """Whether the lower bound is from a finer grid than the upper one."""
    span: float = 0.0
    """How far the composed losses reach, which finer grids cover too."""

    @property
    def gap(self) -> float:
        """The bracket's width relative to epsilon; of a very small epsilon, relative to 0.001."""
        return (self.upper - self.lower) / max(self.upper, 1e-3) if math.isfinite(self.upper) else 0.0

    @property
    def method(self) -> str:
        if math.isinf(self.upper):
            return "no privacy-loss distribution: the grid would not fit"
        return f"privacy-loss distribution, grid step {self.step:.3g}"


def _bracket(pairs: Mapping[Pair, int], delta: float, known: Bound, *, lower: bool = True) -> _Bracket:
    """The best bounds of a few grids, each finer than the one before, below a bound that is already known.

    Without `lower`, the upper bound of the first grid that fits.
    """
    if known.epsilon == 0:
        return _Bracket(0.0, 0.0, _LARGEST_STEP)
    if math.isinf(known.epsilon):
        return _Bracket(0.0, math.inf, _LARGEST_STEP)
    many = len(pairs) > MANY_PAIRS
    step, coarsest = _step(pairs, known, _AIM_OF_MANY if many else _AIM), _step(pairs, known, _USELESS)
    best: _Bracket | None = None
    for _ in range(_ATTEMPTS):
        try:
            current = _bracket_at(pairs, delta, known, step, best, lower=lower)
        except GridTooLargeError as error:
            if many and (grouped := _of_groups(pairs, delta, known, step * error.factor, lower=lower)) is not None:
                return grouped
            step *= 1.1 * error.factor
            if step > (coarsest if best is None else 0.7 * best.step):
                break
            continue
        # The first upper bound has an error of about _AIM: it is computed again only if a finer lower one does not do.
        stuck = best is not None and best.lowered and current.gap > best.gap / 2
        best = current if best is None else _better(best, current)
        if stuck or best.gap <= _ENOUGH or many or not lower or not all(pair.attained() is pair for pair in pairs):
            break
        step = best.step / min(10.0, max(2.0, math.sqrt(2 * best.gap / _ENOUGH)))
    if many and lower and best is not None and best.gap > _LOOSE:
        grouped = _of_groups(pairs, delta, known, 0.7 * best.step, lower=True)
        best = best if grouped is None else _better(best, grouped)
    return best or _Bracket(0.0, math.inf, step)


def _of_groups(
    pairs: Mapping[Pair, int], delta: float, known: Bound, coarsest: float, *, lower: bool
) -> _Bracket | None:
    """Bounds for very many different pairs that are met often: for fewer pairs a finer grid fits.

    Groups of similar pairs count as their strongest from above, and as their weakest from below.
    """
    strongest, step = thinned(pairs, max), _step(pairs, known, _AIM)
    for _ in range(_ATTEMPTS):
        if step > coarsest:
            break
        try:
            above = _bracket_at(strongest, delta, known, step, None, lower=False)
            below = _lower(pairs, delta, known, step, backward=above.backward) if lower else 0.0
            return replace(above, lower=below)
        except GridTooLargeError as error:
            step *= 1.1 * error.factor
    return None


def _better(before: _Bracket, current: _Bracket) -> _Bracket:
    lower, upper = max(before.lower, current.lower), min(before.upper, current.upper)
    return replace(current, lower=lower, upper=upper, step=min(before.step, current.step))


def _step(pairs: Mapping[Pair, int], known: Bound, error: float) -> float:
    """The grid step at which the relative error of epsilon is about `error`.

    Rounding adds a variance v(step) to each loss, hence order v / 2 for each to epsilon. A grid that holds all atoms of
    the pure mechanism met most often does not round it at all.
    """
    allowed = 2 * error * known.epsilon / known.order
    spreads = [(count, _spread(pair)) for pair, count in pairs.items()]

    def excess(log_step: float) -> float:
        step = math.exp(log_step)
        added = math.fsum(count * step * spread(step / 6) for count, spread in spreads)
        return math.log(max(added, 1e-300)) - math.log(allowed)

    # At this step the error is as allowed even if all losses lie half-way between grid points.
    least, most = math.sqrt(6 * allowed / sum(pairs.values())), _LARGEST_STEP
    step = min(least, most)
    if step < most:
        step = most if excess(math.log(most)) <= 0 else math.exp(brentq(excess, math.log(step) - 1, math.log(most)))
    pure = [(count, pair.pure_epsilon) for pair, count in pairs.items()]
    _, atom = max((entry for entry in pure if math.isfinite(entry[1])), default=(0, math.inf))
    return atom / math.ceil(atom / step) if math.isfinite(atom) else step


def _spread(pair: Pair) -> Callable[[float], float]:
    """The mean distance of the loss from its usual value, where the grid has a point, cut off at a given distance.

    A loss at distance d from a grid point is split onto its two neighbours, which adds at most d step to the variance,
    and step² / 6 on average. With rare sampling nearly all losses are so close to the usual one that a wide grid does.
    """
    distances = np.geomspace(1e-12, 1e3, 91)
    edges = pair.usual() + np.concatenate([-distances[::-1], distances])
    masses = pair.masses(np.concatenate([[-math.inf], edges, [math.inf]]))[0]
    count = distances.size
    beyond = masses[:count][::-1] + masses[count + 1 :]  # mass farther than each distance but nearer than the next

    def mean(cut: float) -> float:
        outer = np.append(distances[1:], math.inf)
        return float(np.sum(beyond * np.minimum(outer, cut)) + masses[count] * min(float(distances[0]), cut))

    return mean


def _bracket_at(
    pairs: Mapping[Pair, int], delta: float, known: Bound, step: float, before: _Bracket | None, *, lower: bool
) -> _Bracket:
    """Bounds on one grid: from above for both directions of the neighbours, from below for the worse one.

    After a first grid only the bound from below is computed, since its error is the larger one.
    """
    if before is not None and before.span / step > MAX_GRID_POINTS:
        raise GridTooLargeError(before.span / step / MAX_GRID_POINTS)
    if before is not None and not before.lowered:
        below = _lower(pairs, delta, known, step, backward=before.backward)
        return replace(before, lower=below, step=step, lowered=True)
    backward = {pair.reversed(): count for pair, count in pairs.items()}
    above = [_solve(pairs, pessimistic, delta, known, step)]
    # A removal usually costs far more than an addition; then a rough bound on the latter is enough.
    if backward != pairs:
        rough = _solve(thinned(backward, max), pessimistic, delta, known, 3 * step)
        if not rough.epsilon <= above[0].epsilon:
            above.append(_solve(backward, pessimistic, delta, known, step))
    worse = above[0].epsilon < above[-1].epsilon
    below = _lower(pairs, delta, known, step, backward=worse) if lower else 0.0
    return _Bracket(below, max(a.epsilon for a in above), step, worse, span=max(a.span for a in above))


def _lower(pairs: Mapping[Pair, int], delta: float, known: Bound, step: float, *, backward: bool) -> float:
    """A bound from below, by pairs that real data sets attain; 0 where none are known."""
    real: Counter[Pair] = Counter()
    for pair, count in pairs.items():
        if (lower := pair.attained()) is not None:
            real[lower.reversed() if backward else lower] += count
    return _solve(thinned(real, min), optimistic, delta, known, step).epsilon if real else 0.0


@dataclass(frozen=True)
class _Solved:
    epsilon: float
    span: float
    """From the smallest to the largest loss of the composition's window."""


def _solve(
    pairs: Mapping[Pair, int],
    rounding: Callable[[Pair, float, float], Lattice],
    delta: float,
    known: Bound,
    step: float,
) -> _Solved:
    """Epsilon of the rounded losses' composition, under the first tilt that is accurate; every tilt is certified.

    The best Rényi order gives the tilt that centers the losses on RDP's epsilon. A little less keeps the rarest losses,
    which make RDP loose, out of the window.
    """
    tail = _TRUNCATED * delta / sum(pairs.values())
    points = [(high - low) / step for low, high in (pair.reach(tail) for pair in pairs)]
    factor = max(*points, sum(points) / 4) / MAX_GRID_POINTS
    if not factor <= 1:
        raise GridTooLargeError(factor)
    parts = [(rounding(pair, step, tail), count) for pair, count in pairs.items()]
    upper = rounding is pessimistic
    epsilons = []
    for share in _TILTS:
        composition = compose(parts, share * (known.order - 1))
        epsilons.append(composition.epsilon(delta, known.epsilon, upper=upper))
        low, high = composition.delta(min(epsilons[-1], known.epsilon))
        if high - low <= _ACCURATE * delta:
            break
    return _Solved(min(epsilons) if upper else max(epsilons), float(composition.losses[-1] - composition.losses[0]))
