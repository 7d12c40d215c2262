"""Losses on a grid against the pairs they bound: equal at every grid point from above, and never more from below."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from vflpriv.accountants._lattice import (
    Lattice,
    _anchor,
    _edge_at,
    _edges,
    _exchange,
    _loss,
    _settled,
    _times_exp,
    grid,
    optimistic,
    pessimistic,
)
from vflpriv.core.law import Pair
from vflpriv.laws.discrete_laplace import DiscreteLaplacePair
from vflpriv.laws.gaussian import GaussianPair
from vflpriv.laws.laplace import LaplacePair
from vflpriv.laws.pairs import Diluted, PurePair
from vflpriv.laws.sampled import SampledGaussianPair, SampledReplacementPair

SMOOTH: list[Any] = [
    GaussianPair(0.6),
    GaussianPair(2.0),
    SampledGaussianPair(1.25, 0.01),
    SampledGaussianPair(0.8, 0.3),
    SampledGaussianPair(0.8, 0.3, added=True),
    SampledReplacementPair(2.0, 0.05),
]
ATOMIC: list[Any] = [
    PurePair(1.3),
    LaplacePair(0.7),
    Diluted(LaplacePair(0.9), 0.2),
    DiscreteLaplacePair(3, 0.21),
    Diluted(PurePair(0.33), 0.6),
]
PAIRS = [*SMOOTH, *ATOMIC]
TAIL = 1e-12


def beyond(pair: Pair, epsilons: np.ndarray) -> np.ndarray:
    """delta of the pair at each epsilon: P - e^epsilon Q of all that has a larger loss."""
    upper, lower = pair.masses(np.append(epsilons, math.inf))
    above = [np.cumsum(masses[::-1])[::-1] for masses in (upper, lower)]
    return np.asarray(above[0] - np.exp(epsilons) * above[1])


def on_grid(lattice: Lattice, epsilons: np.ndarray) -> np.ndarray:
    gains = np.maximum(0.0, -np.expm1(np.subtract.outer(epsilons, lattice.losses)))
    return np.asarray(gains @ lattice.masses + lattice.infinite)


def mean(lattice: Lattice) -> float:
    return float(np.sum(lattice.masses * lattice.losses))


# From above ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("step", [0.05, 0.013])
def test_from_above_delta_is_exact_at_every_grid_point_and_a_chord_between(pair: Any, step: float) -> None:
    lattice = pessimistic(pair, step, TAIL)
    low, high = pair.reach(TAIL)
    assert lattice.losses[0] <= low
    assert lattice.losses[-1] >= high
    assert (high - low) / step <= lattice.losses.size <= (high - low) / step + 5
    assert lattice.masses.min() >= 0.0
    assert lattice.masses.sum() + lattice.infinite == pytest.approx(1.0, abs=1e-14)
    truth = beyond(pair, lattice.losses)
    np.testing.assert_allclose(on_grid(lattice, lattice.losses), truth, rtol=1e-8, atol=2 * TAIL)
    # What lies below the grid counts as its first loss, what lies above as an infinite one.
    upper, lower = pair.masses(np.array([-math.inf, lattice.losses[0], lattice.losses[-1], math.inf]))
    assert lattice.infinite == pytest.approx(upper[2], abs=1e-300)
    kept = float(np.sum(lattice.masses * np.exp(-lattice.losses)))
    assert kept == pytest.approx(lower[1] + upper[0] * math.exp(-lattice.losses[0]), rel=1e-9)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_grid_holds_the_loss_of_the_most_likely_outcomes(pair: Any) -> None:
    step = 0.03
    anchor = _anchor(pair, step)
    upper, lower = pair.masses(anchor + np.array([-step / 2, step / 2]))
    if upper[0] >= 0.2:
        assert anchor == pytest.approx(math.log(upper[0] / lower[0]), abs=1e-9)
    else:
        assert anchor == pair.usual()
    assert pessimistic(pair, step, TAIL).offset == anchor


@dataclass(frozen=True)
class _Falling(Pair):
    """P's losses have the density λ e^{-λ l} from 0 on, and Q's e^{-l} times as much."""

    described = "test"
    rate: float

    def masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        places, more = np.maximum(edges, 0.0), self.rate + 1
        return -np.diff(np.exp(-self.rate * places)), -np.diff(np.exp(-more * places)) * self.rate / more

    def reach(self, tail: float) -> tuple[float, float]:
        return 0.0, -math.log(tail) / self.rate

    def usual(self) -> float:
        return 0.01

    def moments(self, orders: tuple[float, ...], *, fast: bool) -> np.ndarray:
        raise NotImplementedError


def test_an_anchor_is_sought_among_what_is_heavy() -> None:
    """Around the place that is given, or half a step to each side of the usual loss."""
    pair, around = SampledGaussianPair(1.25, 1e-3), np.array([-0.001, 0.003])
    found = _anchor(pair, 0.05, -0.0005, around)
    upper, lower = pair.masses(found + around)
    assert found == pytest.approx(math.log(upper[0] / lower[0]), abs=1e-10)
    # Less than a fifth is not heavy: 1 - e^{-λ 0.035} of the mass lies within half a step of 0.01.
    edge = -math.log(0.8) / 0.035
    for factor, moved in ((1.001, True), (0.999, False)):
        assert (_anchor(_Falling(edge * factor), 0.05) != 0.01) is moved
    assert _anchor(_Falling(2.0), 0.05, 0.5) == 0.5
    # Of outcomes that Q never has the loss is not known.
    assert _anchor(PurePair(800.0), 0.05) == 800.0


# From below ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("step", [0.05, 0.013])
def test_from_below_delta_is_never_above_the_truth_at_any_epsilon(pair: Any, step: float) -> None:
    lattice = optimistic(pair, step, TAIL)
    assert lattice.masses.min() >= 0.0
    assert lattice.infinite == 0.0
    assert 1 - 4 * TAIL <= lattice.masses.sum() <= 1 + 1e-14
    epsilons = np.arange(-1.5, 3.0, step / 7)
    assert np.all(on_grid(lattice, epsilons) <= beyond(pair, epsilons) + 1e-13)
    low, high = pair.reach(TAIL)
    assert lattice.losses[0] <= low
    assert lattice.losses[-1] >= high
    assert lattice.losses.size <= (high - low) / step + 6


@pytest.mark.parametrize("pair", SMOOTH, ids=str)
def test_both_roundings_err_by_the_square_of_the_step(pair: Any) -> None:
    """From above the variance grows by a sixth of a squared step at most, and the mean by half of that."""
    step = 0.01 if pair.reach(1e-3)[1] > 0.3 else 0.002
    exact = mean(pessimistic(pair, step / 40, TAIL))
    above, below = mean(pessimistic(pair, step, TAIL)) - exact, exact - mean(optimistic(pair, step, TAIL))
    assert 0 <= above <= step**2 / 12 * 1.02
    assert -1e-12 <= below <= step**2 / 12 * 1.6


@pytest.mark.parametrize("pair", ATOMIC, ids=str)
def test_a_heavy_outcome_needs_no_rounding(pair: Any) -> None:
    for rounding in (pessimistic, optimistic):
        lattice = rounding(pair, 0.0317, TAIL)
        upper, _ = pair.masses(np.array([-math.inf, *(pair.usual() + np.array([-1e-9, 1e-9])), math.inf]))
        near = np.abs(lattice.losses - pair.usual()) < 1.1 * 0.0317
        assert lattice.masses[near].sum() >= 0.98 * upper[1]


def test_atoms_that_lie_on_the_grid_stay_as_they_are() -> None:
    pair = DiscreteLaplacePair(3, 0.21)
    losses, upper, _ = pair.atoms()
    for rounding in (pessimistic, optimistic):
        lattice = rounding(pair, 0.21, TAIL)
        held = lattice.masses > 1e-9
        np.testing.assert_allclose(lattice.losses[held], losses, atol=1e-9)
        np.testing.assert_allclose(lattice.masses[held], upper, rtol=1e-9)


def shared_out(upper: np.ndarray, lower: np.ndarray, up: np.ndarray, down: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The masses of P and Q after each outcome gave these shares to its neighbours."""
    found = []
    for masses in (upper, lower):
        own = masses * (1 - up - down)
        own[1:] += (masses * up)[:-1]
        own[:-1] += (masses * down)[1:]
        found.append(own)
    return found[0], found[1]


@pytest.mark.parametrize("pair", [*SMOOTH, Diluted(LaplacePair(0.9), 0.2)], ids=str)
@pytest.mark.parametrize("moved", [-0.1, 0.0, 0.15])
def test_outcomes_that_share_end_exactly_on_their_grid_points(pair: Any, moved: float) -> None:
    """With edges moved to either side, so that outcomes need a share of the upper or of the lower neighbour."""
    step = 0.02
    low, high = pair.reach(1e-6)
    losses = grid(_anchor(pair, step), step, math.floor((low - pair.usual()) / step) - 2, math.ceil(high / step) + 2)
    edges = np.append(losses, losses[-1] + step) - step / 2 + moved * step
    upper, lower = pair.masses(edges)
    kept, up, down = _exchange(upper, lower, losses)
    assert min(up.min(), down.min()) >= 0.0
    assert (up + down).max() <= 0.9
    p, q = shared_out(upper, lower, up, down)
    excess = p - np.exp(losses) * q
    # The lowest ones have nobody below to take what is too much: they stay a little stronger than they have to be.
    assert excess[kept].min() >= -1e-13
    lowest = int(np.argmax(upper > 0))
    assert np.flatnonzero(kept & (np.abs(excess) > 1e-13)).max(initial=0) <= lowest + 4
    # What does not end on its grid point is lowered to the next one, which its loss exceeds.
    lowered = ~kept & (p > 1e-12)
    assert np.all(p[lowered] >= (np.exp(losses - step) * q)[lowered])
    middle = slice(lowest + 6, int(np.flatnonzero(upper > 0)[-1]) - 6)
    assert kept[middle].all()
    assert (up + down)[[0, -1]].max() <= 0.45


def test_an_exchange_of_three_outcomes_is_the_solution_on_paper() -> None:
    """Excess -0.015 and 0.015 of outcomes at the losses 0, 0.1 and 0.2; none needs more than half of a neighbour."""
    losses, lower = np.array([0.0, 0.1, 0.2]), np.array([0.3, 0.4, 0.3])
    upper = lower * np.exp(losses) + np.array([-0.015, 0.0, 0.0])
    kept, up, down = _exchange(upper, lower, losses)
    share = 0.015 / (upper[1] - lower[1])
    assert kept.tolist() == [True, True, True]
    # The middle outcome has lost a share of what has its own loss, and needs nothing in return.
    assert down == pytest.approx([0.0, share, 0.0])
    assert up.tolist() == [0.0, 0.0, 0.0]
    upper = lower * np.exp(losses) + np.array([0.0, 0.0, 0.015])
    kept, up, down = _exchange(upper, lower, losses)
    assert up == pytest.approx([0.0, 0.015 / (lower[1] * math.exp(0.2) - upper[1]), 0.0])
    assert down.tolist() == [0.0, 0.0, 0.0]
    # Too little loss with nobody above: it is lowered; too much with nobody below: it stays, a little stronger.
    upper = lower * np.exp(losses) + np.array([0.03, 0.0, -0.015])
    kept, up, down = _exchange(upper, lower, losses)
    assert kept.tolist() == [True, True, False]
    assert max(up.max(), down.max()) == 0.0
    # An outcome that Q never has, and one that nobody has.
    kept, up, down = _exchange(np.array([0.0, 0.5, 0.2]), np.array([0.0, 0.5 * math.exp(-0.1), 0.0]), losses)
    assert kept.tolist() == [True, True, False]
    # More than 45 % of the neighbour is not taken.
    for part, takes in ((0.44, True), (0.46, False)):
        upper = lower * np.exp(losses)
        upper[0] -= part * (upper[1] - lower[1])
        kept, up, down = _exchange(upper, lower, losses)
        assert (bool(kept[0]), down[1] > 0) == (takes, takes)


def test_edges_are_moved_towards_where_the_density_falls() -> None:
    """By 0.15 of a step for each factor e, and by 0.4 at most; the outermost ones stay half-way."""
    losses = 0.5 + 0.1 * np.arange(6)
    half_way = 0.45 + 0.1 * np.arange(7)
    for rate, share in ((1.0, 0.015), (20.0, 0.3), (26.0, 0.39), (50.0, 0.4)):
        found = (_edges(_Falling(rate), losses, 0.1) - half_way) / 0.1
        assert found == pytest.approx([0.0, *[share] * 5, 0.0], abs=1e-9)


def test_the_lowest_outcomes_end_where_they_need_no_rounding() -> None:
    """A bounded loss that is heavy at its lower end: there nobody below could take what is too much."""
    pair, step = _Falling(30.0), 0.02
    losses = grid(0.003, step, -2, 20)
    edges = _edges(pair, losses, step)
    upper, lower = _settled(pair, edges, losses)
    plain, others = pair.masses(edges)
    lowest = int(np.argmax(plain > 0))
    assert _loss(plain[lowest], others[lowest]) > losses[lowest]
    assert (upper.sum(), lower.sum()) == (pytest.approx(plain.sum()), pytest.approx(others.sum()))
    assert _loss(upper[lowest], lower[lowest]) == pytest.approx(losses[lowest], abs=1e-9)
    changed = np.flatnonzero(np.abs(upper - plain) > 1e-15)
    assert changed[0] == lowest
    assert changed[-1] <= lowest + 7
    kept, _, _ = _exchange(upper, lower, losses)
    assert upper[~kept].sum() < 1e-6
    # Where the lowest outcomes have no more loss than their grid point, nothing is moved.
    shifted = grid(0.009, step, -2, 20)
    edges = _edges(pair, shifted, step)
    plain, others = pair.masses(edges)
    if _loss(plain[int(np.argmax(plain > 0))], others[int(np.argmax(plain > 0))]) <= shifted[int(np.argmax(plain > 0))]:
        np.testing.assert_array_equal(_settled(pair, edges, shifted)[0], plain)


@pytest.mark.parametrize("rate", [3.0, 12.0])
@pytest.mark.parametrize("start", [0.0005, 0.0065, 0.0125, 0.0185])
def test_wherever_the_lowest_grid_point_lies_no_outcome_is_lowered(rate: float, start: float) -> None:
    pair, losses = _Falling(rate), grid(start, 0.02, -2, 20)
    upper, lower = _settled(pair, _edges(pair, losses, 0.02), losses)
    kept, up, down = _exchange(upper, lower, losses)
    p, q = shared_out(upper, lower, up, down)
    inside = slice(int(np.argmax(upper > 0)), 15)
    assert kept[inside].all()
    np.testing.assert_allclose((p - np.exp(losses) * q)[inside], 0.0, atol=1e-13)


def test_an_interval_ends_where_its_outcomes_together_have_a_loss() -> None:
    pair = _Falling(3.0)
    for loss in (0.11, 0.2, 0.33):
        end = _edge_at(pair, 0.1, 0.9, loss)
        (upper,), (lower,) = pair.masses(np.array([0.1, end]))
        assert _loss(upper, lower) == pytest.approx(loss, abs=1e-9)
    assert _edge_at(pair, 0.1, 0.9, 0.34) == 0.9
    assert _edge_at(pair, 0.1, 0.9, 0.05) == pytest.approx(0.1, abs=1e-12)


def test_losses_of_outcomes_that_cannot_happen() -> None:
    assert _loss(0.3, 0.1) == pytest.approx(math.log(3.0))
    assert (_loss(0.0, 0.1), _loss(0.1, 0.0), _loss(0.0, 0.0)) == (-math.inf, -math.inf, -math.inf)
    found = _times_exp(np.array([0.0, 1e-300, 2.0]), np.array([800.0, 700.0, 0.5]))
    assert found == pytest.approx([0.0, math.exp(700 + math.log(1e-300)), 2 * math.exp(0.5)])
