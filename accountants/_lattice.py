"""Privacy losses on a grid: one pair's loss rounded so that the result bounds it from above or from below.

Both roundings keep the masses of P and of Q wherever they can, so that their error is of second order in the grid's
step: a composition of T pairs has an error of about T step², not T step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_banded

from vflpriv.common.numerics import Floats
from vflpriv.core.law import Pair

__all__ = ["Lattice", "grid", "optimistic", "pessimistic"]

_MOST_GIVEN = 0.45
_MOVED = 6
"""How many of the lowest intervals may end elsewhere."""


@dataclass(frozen=True, eq=False)
class Lattice:
    """P's masses on the losses offset + step * (first + j), and the mass that counts as an infinite loss.

    Of a lattice that bounds from below, the masses may add up to less than 1.
    """

    offset: float
    step: float
    first: int
    masses: Floats
    infinite: float

    @property
    def losses(self) -> Floats:
        return grid(self.offset, self.step, self.first, self.first + self.masses.size)


def grid(offset: float, step: float, first: int, end: int) -> Floats:
    """The losses offset + step * j for first <= j < end."""
    return offset + step * np.arange(first, end, dtype=np.float64)


def pessimistic(pair: Pair, step: float, tail: float) -> Lattice:
    """A loss that dominates the pair's: connect the dots (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022).

    Each interval's outcomes are split onto its two ends so that the masses of P and of Q both stay; delta(eps) becomes
    the chord of the true curve between grid points. Mass below the grid moves up to its start, mass above to infinity.
    """
    low, high = pair.reach(tail)
    offset = _anchor(pair, step)
    first, last = math.floor((low - offset) / step) - 1, math.ceil((high - offset) / step) + 1
    losses = grid(offset, step, first, last + 1)
    upper, lower = pair.masses(np.concatenate([[-math.inf], losses, [math.inf]]))
    inner = upper[1:-1]
    # u + v = P and u e^{-l} + v e^{-l-step} = Q, for the masses u and v on the two ends.
    top = np.clip((inner - _times_exp(lower[1:-1], losses[:-1])) / -math.expm1(-step), 0.0, inner)
    masses = np.zeros(losses.size)
    masses[:-1] += inner - top
    masses[1:] += top
    masses[0] += upper[0]
    return Lattice(offset, step, first, masses, float(upper[-1]))


def optimistic(pair: Pair, step: float, tail: float) -> Lattice:
    """A loss that the pair's loss dominates, by merging outcomes (post-processing) and by lowering losses.

    Outcomes within about half a step of a grid point become one outcome. Where its loss is slightly off the grid point,
    part of the neighbouring outcome is merged in until it is not; where that would take too much, the loss is lowered
    to the next grid point. Mass beyond the reach is dropped.
    """
    low, high = pair.reach(tail)
    centre = _anchor(pair, step)
    first, last = math.floor((low - centre) / step) - 1, math.ceil((high - centre) / step) + 1
    edges = _edges(pair, grid(centre, step, first, last + 1), step) - centre
    # The grid is placed once more, so that what the edges make of the most likely outcomes needs no rounding either.
    offset = _anchor(pair, step, centre, edges[-first : 2 - first])
    losses = grid(offset, step, first, last + 1)
    upper, lower = _settled(pair, edges + offset, losses)
    kept, given_up, given_down = _exchange(upper, lower, losses)
    masses = np.zeros(losses.size + 1)
    masses[1:] += np.where(kept, upper * (1 - given_up - given_down), 0.0)
    masses[:-1] += np.where(kept, 0.0, upper * (1 - given_up - given_down))
    masses[2:] += (upper * given_up)[:-1]
    masses[1:-1] += (upper * given_down)[1:]
    return Lattice(offset, step, first - 1, masses, 0.0)


def _edges(pair: Pair, losses: Floats, step: float) -> Floats:
    """Interval ends about half-way between grid points, moved towards where the density falls.

    So outcomes lie a little on the far side of their point and are corrected by a share of the heavier neighbour.
    """
    edges = np.append(losses, losses[-1] + step) - step / 2
    mass = np.maximum(pair.masses(edges)[0], 1e-300)
    fall = np.zeros(edges.size)
    fall[1:-1] = np.clip(0.15 * np.log(mass[:-1] / mass[1:]), -0.4, 0.4)
    return np.asarray(edges + step * fall)


def _settled(pair: Pair, edges: Floats, losses: Floats) -> tuple[Floats, Floats]:
    """The masses of P and Q on the intervals, the lowest of which end where they need no rounding.

    The lowest interval has no neighbour below to share with. Where its loss is above its grid point, it would be
    lowered, at the cost of that difference in every release; a bounded loss has much mass at that end. So it ends
    earlier, and so on upwards until an interval finds what it needs with its neighbours.
    """
    upper, lower = pair.masses(edges)
    lowest, ends = int(np.argmax(upper > 0)), edges.copy()
    if _loss(upper[lowest], lower[lowest]) <= losses[lowest]:
        return upper, lower
    for here in range(lowest, min(lowest + _MOVED, upper.size - 2)):
        ends[here + 1] = _edge_at(pair, ends[here], ends[here + 2], losses[here])
        if ends[here + 1] == ends[here + 2]:
            break
        masses, others = pair.masses(ends[here : here + 4])
        below, needed, above = masses - others * math.exp(losses[here + 1])
        if -_MOST_GIVEN * above <= needed <= _MOST_GIVEN * -below:
            part = slice(lowest, here + 2)
            upper[part], lower[part] = pair.masses(ends[lowest : here + 3])
            break
    return upper, lower


def _edge_at(pair: Pair, start: float, end: float, loss: float) -> float:
    """The largest end, up to the one given, of an interval from `start` on whose outcomes together have at most a loss.

    It is the start, and the interval empty, if all its outcomes have more.
    """
    low, high = start, end
    for _ in range(50):
        middle = (low + high) / 2
        (upper,), (lower,) = pair.masses(np.array([start, middle]))
        low, high = (middle, high) if _loss(upper, lower) <= loss else (low, middle)
    return end if high == end else low


def _loss(upper: float, lower: float) -> float:
    return math.log(upper) - math.log(lower) if upper > 0 and lower > 0 else -math.inf


def _exchange(upper: Floats, lower: Floats, losses: Floats) -> tuple[Floats, Floats, Floats]:
    """Which outcomes end on their grid point, and what share each gives to the neighbour above and below.

    With a_j = P_j - e^{l_j} Q_j: an outcome with a_j < 0 needs the share t_j = (1 - f_j) s_j of its upper neighbour,
    s_j = -a_j / (P_{j+1} - e^{l_j} Q_{j+1}), and one with a_j > 0 likewise of its lower one; f_j is what it gives away
    itself. The system is tridiagonal, and diagonally dominant when every s_j is below 1/2.
    """
    excess = upper - _times_exp(lower, losses)
    above = np.append(upper[1:] - _times_exp(lower[1:], losses[:-1]), 0.0)
    below = np.append(0.0, _times_exp(lower[:-1], losses[1:]) - upper[:-1])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.where(excess < 0, -excess / above, excess / below)
    exact = (np.abs(excess) <= 1e-14 * upper) | (upper == 0)
    share = np.where(exact, 0.0, share)
    # Where the mass of Q underflows, the loss is not known.
    known = (lower > 1e-290) | (upper == 0)
    share = np.where((share >= 0) & (share <= _MOST_GIVEN) & known, share, 0.0)
    kept = known & (exact | (share > 0) | (excess > 0))
    lifted, lowered = np.where(excess < 0, share, 0.0), np.where(excess > 0, share, 0.0)
    # Row j: t_j + s_j (t_{j-1} [j-1 is lifted] + t_{j+1} [j+1 is lowered]) = s_j.
    bands = np.ones((3, share.size))
    bands[0, 1:] = share[:-1] * (lowered[1:] > 0)
    bands[2, :-1] = share[1:] * (lifted[:-1] > 0)
    taken = solve_banded((1, 1), bands, share)
    given_down = np.append(0.0, np.where(lifted[:-1] > 0, taken[:-1], 0.0))
    given_up = np.append(np.where(lowered[1:] > 0, taken[1:], 0.0), 0.0)
    return kept, given_up, given_down


def _anchor(pair: Pair, step: float, start: float | None = None, around: Floats | None = None) -> float:
    """The offset of the grid: the loss of the most likely outcomes, so that a heavy one needs no rounding.

    These are the outcomes in the interval `around` the offset, by default of half a step to each side.
    """
    offset = pair.usual() if start is None else start
    ends = np.array([-step / 2, step / 2]) if around is None else around
    for _ in range(12):
        upper, lower = pair.masses(offset + ends)
        if upper[0] < 0.2 or lower[0] <= 0:
            break
        before, offset = offset, float(np.log(upper[0]) - np.log(lower[0]))
        if abs(offset - before) < 1e-9 * step:
            break
    return offset


def _times_exp(masses: Floats, exponent: Floats) -> Floats:
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(np.exp(np.log(masses) + exponent))
