"""How bounds are bracketed: which grids are tried, in which order, with which steps and tilts, and what is kept.

Grids are stood in for by answers that are given, so that every decision is met in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants import prv
from vflpriv.accountants._composition import MAX_GRID_POINTS, GridTooLargeError
from vflpriv.accountants._lattice import optimistic, pessimistic
from vflpriv.accountants.prv import PrvAccountant, _Bracket, _Solved
from vflpriv.accountants.rdp import Bound
from vflpriv.core.law import Pair
from vflpriv.laws import DiscreteGaussian, Gaussian, Laplace
from vflpriv.laws.gaussian import GaussianPair
from vflpriv.laws.laplace import LaplacePair
from vflpriv.laws.pairs import Diluted, PurePair, thinned
from vflpriv.laws.sampled import SampledGaussianPair, WithoutReplacementPair

KNOWN = Bound(2.0, 5.0)
PAIRS: dict[Pair, int] = {SampledGaussianPair(1.0, 0.1): 30}
MANY: dict[Pair, int] = {SampledGaussianPair(1.0 + k / 1000, 0.1): 3 for k in range(257)}
Answer = _Bracket | float
"""Of one attempt: a bracket, or how many times too large the grid is."""


def scripted(
    monkeypatch: pytest.MonkeyPatch, *answers: Answer, first: float = 1e-3, coarsest: float = 1.0
) -> list[Any]:
    """Let `_bracket_at` give these answers; what it was asked is returned: step, bracket before, and whether both."""
    asked: list[Any] = []
    waiting = list(answers)

    def bracket_at(pairs: Any, delta: float, known: Bound, step: float, before: Any, *, lower: bool) -> _Bracket:
        asked.append((step, before, lower, len(pairs)))
        answer = waiting.pop(0)
        if isinstance(answer, float):
            raise GridTooLargeError(answer)
        return answer

    def step_for(pairs: Any, known: Bound, error: float) -> float:
        return {1e-4: first, 5e-4: 3 * first, 0.1: coarsest}[error]

    monkeypatch.setattr(prv, "_bracket_at", bracket_at)
    monkeypatch.setattr(prv, "_step", step_for)
    return asked


def bracket(gap: float, step: float = 1e-3, upper: float = 1.0, **more: Any) -> _Bracket:
    return _Bracket(upper * (1 - gap), upper, step, **more)


# A bracket ----------------------------------------------------------------------------------------------------------


def test_a_bracket_says_how_wide_and_how_good_it_is() -> None:
    assert _Bracket(0.5, 2.0, 0.1).gap == 0.75
    assert _Bracket(0.5e-3, 0.8e-3, 0.1).gap == pytest.approx(0.3)
    assert _Bracket(0.5, math.inf, 0.1).gap == 0.0
    assert _Bracket(0.5, 2.0, 0.0123456).method == "privacy-loss distribution, grid step 0.0123"
    assert "would not fit" in _Bracket(0.0, math.inf, 0.1).method
    plain = _Bracket(0.5, 2.0, 0.1)
    assert (plain.backward, plain.lowered, plain.span) == (False, False, 0.0)
    both = prv._better(_Bracket(0.5, 2.0, 0.1), _Bracket(0.4, 1.5, 0.2, lowered=True, span=3.0))
    assert both == _Bracket(0.5, 1.5, 0.1, lowered=True, span=3.0)
    assert prv._better(_Bracket(0.3, 1.0, 0.4), _Bracket(0.4, 1.5, 0.2)) == _Bracket(0.4, 1.0, 0.2)


def test_a_loose_budget_says_so() -> None:
    """More than one percent, and of a tiny epsilon more than a hundredth of 0.001."""
    attained, bound = {GaussianPair(1.0): 1}, {GaussianPair(1.0, bound=True): 1}
    assert prv._looseness(attained, 1.979995, 2.0) == ()
    assert prv._looseness(attained, 2.0 * 0.99 - 1e-5, 2.0) == ()
    (note,) = prv._looseness(attained, 1.97998, 2.0)
    assert note == "the true epsilon is at least 1.97998; no finer grid of privacy losses fits into memory"
    (note,) = prv._looseness(attained, 0.0, 1e-4)
    assert note == f"no useful grid of privacy losses fits into {MAX_GRID_POINTS} points: this bound is looser"
    assert prv._looseness(attained, 0.0, 1.0e-5) == ()
    assert prv._looseness({**attained, **bound}, 0.5, 2.0) == ()
    assert prv._looseness(attained, 1.0, 2.0) == (
        "the true epsilon is at least 1; no finer grid of privacy losses fits into memory",
    )


def test_a_pure_budget_is_exact_where_every_pair_is_attained() -> None:
    exact = PrvAccountant().budget(expose(event(Laplace(2.0), 1.0, 3)), 0.0)
    assert (exact.lower, exact.estimate, exact.upper, exact.delta) == (1.5, 1.5, 1.5, 0.0)
    for pairs, lower in (({PurePair(0.5): 3}, 1.5), ({PurePair(0.5): 1, PurePair(0.5, bound=True): 2}, 0.0)):
        merged: Any = type("Merged", (), {"all_pairs": pairs, "assumptions": ("a",)})
        budget = prv._pure("prv", merged)
        assert (budget.lower, budget.upper, budget.assumptions, budget.delta) == (lower, 1.5, ("a",), 0.0)


# Attempts -----------------------------------------------------------------------------------------------------------


def test_without_a_finite_bound_or_any_cost_no_grid_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = scripted(monkeypatch)
    assert prv._bracket(PAIRS, 1e-5, Bound(0.0, 2.0)) == _Bracket(0.0, 0.0, 0.05)
    assert prv._bracket(PAIRS, 1e-5, Bound(math.inf, 2.0)) == _Bracket(0.0, math.inf, 0.05)
    assert asked == []


@pytest.mark.parametrize(
    ("gap", "finer"), [(0.004, math.sqrt(8)), (0.5, 10.0), (0.0015, 2.0), (0.0011, 2.0), (0.003, math.sqrt(6))]
)
def test_a_wide_bracket_is_worth_a_finer_grid(monkeypatch: pytest.MonkeyPatch, gap: float, finer: float) -> None:
    """Errors fall with the square of the step: it is cut so that half of what is enough is met, by 2 to 10."""
    first, second = bracket(gap), bracket(0.0005, 1e-4, lowered=True)
    asked = scripted(monkeypatch, first, second)
    assert prv._bracket(PAIRS, 1e-5, KNOWN) == prv._better(first, second)
    assert asked == [(1e-3, None, True, 1), (pytest.approx(1e-3 / finer), first, True, 1)]


def test_a_narrow_bracket_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    for gap in (0.0009, 0.0005):
        asked = scripted(monkeypatch, bracket(gap))
        assert prv._bracket(PAIRS, 1e-5, KNOWN) == bracket(gap)
        assert len(asked) == 1


def test_nothing_finer_where_there_is_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """For an upper bound alone, and where some pair is not known to be attained."""
    asked = scripted(monkeypatch, bracket(0.5))
    assert prv._bracket(PAIRS, 1e-5, KNOWN, lower=False) == bracket(0.5)
    assert asked == [(1e-3, None, False, 1)]
    for pairs in ({WithoutReplacementPair(1.0, 0.1): 3}, {**PAIRS, WithoutReplacementPair(1.0, 0.1): 3}):
        asked = scripted(monkeypatch, bracket(0.5))
        assert prv._bracket(pairs, 1e-5, KNOWN) == bracket(0.5)
        assert len(asked) == 1


@pytest.mark.parametrize(("third", "calls"), [(0.21, 3), (0.19, 4)])
def test_a_finer_lower_bound_that_gains_too_little_is_the_last_one(
    monkeypatch: pytest.MonkeyPatch, third: float, calls: int
) -> None:
    answers = [bracket(0.5), bracket(0.4, 1e-4, lowered=True), bracket(third, 1e-5), bracket(0.1, 1e-6)]
    asked = scripted(monkeypatch, *answers)
    found = prv._bracket(PAIRS, 1e-5, KNOWN)
    assert len(asked) == calls
    assert found.gap == pytest.approx(third if calls == 3 else 0.1)


def test_four_attempts_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [bracket(0.5 / k, 1e-3 / k) for k in range(1, 6)]
    asked = scripted(monkeypatch, *answers)
    assert prv._bracket(PAIRS, 1e-5, KNOWN) == answers[3]
    assert len(asked) == 4


def test_a_grid_that_is_too_large_is_made_coarser_as_long_as_it_is_useful(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = scripted(monkeypatch, 3.0, bracket(0.0005))
    assert prv._bracket(PAIRS, 1e-5, KNOWN) == bracket(0.0005)
    assert [call[0] for call in asked] == pytest.approx([1e-3, 3.3e-3])
    for coarsest, calls in ((3.2e-3, 1), (3.4e-3, 2)):
        asked = scripted(monkeypatch, 3.0, bracket(0.0005), coarsest=coarsest)
        found = prv._bracket(PAIRS, 1e-5, KNOWN)
        assert len(asked) == calls
        assert found == (_Bracket(0.0, math.inf, pytest.approx(3.3e-3)) if calls == 1 else bracket(0.0005))


@pytest.mark.parametrize(("factor", "calls"), [(6.0, 3), (6.9, 2)])
def test_a_finer_grid_has_to_be_finer_by_a_third(monkeypatch: pytest.MonkeyPatch, factor: float, calls: int) -> None:
    """A tenth of the step, too large by the factor: 0.66 and 0.76 of the step that fits."""
    asked = scripted(monkeypatch, bracket(0.5), factor, bracket(0.0005, 6e-4, lowered=True))
    found = prv._bracket(PAIRS, 1e-5, KNOWN)
    assert len(asked) == calls
    assert found.gap == pytest.approx(0.5 if calls == 2 else 0.0005)


# Very many pairs ----------------------------------------------------------------------------------------------------


def grouped(monkeypatch: pytest.MonkeyPatch, answer: _Bracket | None) -> list[Any]:
    asked: list[Any] = []

    def of_groups(pairs: Any, delta: float, known: Bound, coarsest: float, *, lower: bool) -> _Bracket | None:
        asked.append((coarsest, lower))
        return answer

    monkeypatch.setattr(prv, "_of_groups", of_groups)
    return asked


def test_of_very_many_pairs_one_grid_is_computed_with_a_larger_aim(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, groups = scripted(monkeypatch, bracket(0.009)), grouped(monkeypatch, None)
    assert prv._bracket(MANY, 1e-5, KNOWN) == bracket(0.009)
    assert asked == [(pytest.approx(3e-3), None, True, 257)]
    assert groups == []
    few = dict(list(MANY.items())[:256])
    asked = scripted(monkeypatch, bracket(0.0005))
    prv._bracket(few, 1e-5, KNOWN)
    assert asked[0][0] == 1e-3


def test_groups_are_tried_where_the_grid_is_wide_or_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    better = _Bracket(0.95, 0.98, 5e-4)
    for answer, expected in ((better, prv._better(bracket(0.02), better)), (None, bracket(0.02))):
        scripted(monkeypatch, bracket(0.02))
        groups = grouped(monkeypatch, answer)
        assert prv._bracket(MANY, 1e-5, KNOWN) == expected
        assert groups == [(pytest.approx(0.7e-3), True)]
    scripted(monkeypatch, bracket(0.02))
    groups = grouped(monkeypatch, better)
    assert prv._bracket(MANY, 1e-5, KNOWN, lower=False) == bracket(0.02)
    assert groups == []
    for answer, calls in ((better, 1), (None, 2)):
        asked = scripted(monkeypatch, 2.0, bracket(0.001))
        groups = grouped(monkeypatch, answer)
        assert prv._bracket(MANY, 1e-5, KNOWN, lower=False) == (answer or bracket(0.001))
        assert groups[0] == (pytest.approx(6e-3), False)
        assert len(asked) == calls
    asked, groups = scripted(monkeypatch, 2.0, bracket(0.02)), grouped(monkeypatch, better)
    prv._bracket(PAIRS, 1e-5, KNOWN, lower=False)
    assert groups == []


def test_groups_count_as_their_strongest_from_above_and_as_they_are_from_below(monkeypatch: pytest.MonkeyPatch) -> None:
    above = bracket(0.5, 2e-3, backward=True)
    lowers: list[Any] = []

    def lower(pairs: Any, delta: float, known: Bound, step: float, *, backward: bool) -> float:
        lowers.append((len(pairs), step, backward))
        return 0.77

    monkeypatch.setattr(prv, "_lower", lower)
    asked = scripted(monkeypatch, 2.0, above)
    found = prv._of_groups(MANY, 1e-5, KNOWN, 1.0, lower=True)
    assert found == _Bracket(0.77, 1.0, 2e-3, backward=True)
    size = len(thinned(MANY, max))
    assert [(call[0], *call[1:]) for call in asked] == [
        (1e-3, None, False, size),
        (pytest.approx(2.2e-3), None, False, size),
    ]
    assert lowers == [(257, pytest.approx(2.2e-3), True)]
    scripted(monkeypatch, above)
    found = prv._of_groups(MANY, 1e-5, KNOWN, 1.0, lower=False)
    assert found is not None
    assert found.lower == 0.0
    for coarsest, answer in ((2.1e-3, None), (2.3e-3, 0.0)):
        scripted(monkeypatch, 2.0, above)
        found = prv._of_groups(MANY, 1e-5, KNOWN, coarsest, lower=False)
        assert (None if found is None else found.lower) == answer
    asked = scripted(monkeypatch, *[1.0] * 9)
    assert prv._of_groups(MANY, 1e-5, KNOWN, 1.0, lower=False) is None
    assert len(asked) == 4


# One grid -----------------------------------------------------------------------------------------------------------


def solving(monkeypatch: pytest.MonkeyPatch, answer: Callable[[Any, Any, float], tuple[float, float]]) -> list[Any]:
    asked: list[Any] = []

    def solve(pairs: Any, rounding: Any, delta: float, known: Bound, step: float) -> _Solved:
        asked.append((dict(pairs), rounding, step))
        return _Solved(*answer(pairs, rounding, step))

    monkeypatch.setattr(prv, "_solve", solve)
    return asked


def added(pairs: Any) -> bool:
    return next(iter(pairs)).added


@pytest.mark.parametrize(("removal", "addition", "worse"), [(1.5, 1.2, False), (1.2, 1.5, True), (1.2, 1.2, False)])
def test_both_directions_are_bounded_and_the_worse_one_from_below(
    monkeypatch: pytest.MonkeyPatch, removal: float, addition: float, worse: bool
) -> None:
    """The addition roughly first, on a grid three times as coarse: no finer one if it is cheaper anyway."""

    def answer(pairs: Any, rounding: Any, step: float) -> tuple[float, float]:
        if rounding is optimistic:
            return (1.0, 9.0)
        return (addition, 7.0) if added(pairs) else (removal, 5.0)

    asked = solving(monkeypatch, answer)
    found = prv._bracket_at(PAIRS, 1e-5, KNOWN, 1e-3, None, lower=True)
    span = 7.0 if worse else 5.0
    assert found == _Bracket(1.0, max(removal, addition), 1e-3, worse, span=span)
    backward = {pair.reversed(): n for pair, n in PAIRS.items()}
    expected = [(PAIRS, pessimistic, 1e-3), (backward, pessimistic, pytest.approx(3e-3))]
    expected += [(backward, pessimistic, 1e-3), (backward, optimistic, 1e-3)] if worse else [(PAIRS, optimistic, 1e-3)]
    assert asked == expected
    asked = solving(monkeypatch, answer)
    assert prv._bracket_at(PAIRS, 1e-5, KNOWN, 1e-3, None, lower=False).lower == 0.0
    assert all(call[1] is pessimistic for call in asked)


def test_pairs_that_are_their_own_reverse_are_bounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = solving(monkeypatch, lambda pairs, rounding, step: (1.0, 5.0))
    found = prv._bracket_at({LaplacePair(0.5): 3}, 1e-5, KNOWN, 1e-3, None, lower=True)
    assert (found.backward, found.span) == (False, 5.0)
    assert [call[1] for call in asked] == [pessimistic, optimistic]


def test_after_a_first_grid_the_lower_bound_alone_is_finer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = solving(monkeypatch, lambda pairs, rounding, step: (0.9, 5.0))
    before = _Bracket(0.5, 1.5, 1e-3, True, span=20.0)
    assert prv._bracket_at(PAIRS, 1e-5, KNOWN, 1e-4, before, lower=True) == _Bracket(
        0.9, 1.5, 1e-4, True, lowered=True, span=20.0
    )
    assert [(added(call[0]), call[1]) for call in asked] == [(True, optimistic)]
    asked = solving(monkeypatch, lambda pairs, rounding, step: (0.9, 5.0))
    again = _Bracket(0.5, 1.5, 1e-3, True, lowered=True, span=20.0)
    assert not prv._bracket_at(PAIRS, 1e-5, KNOWN, 1e-4, again, lower=True).lowered
    assert asked[0][1] is pessimistic
    # A span that is known says beforehand that a grid is too large.
    step = 20.0 / MAX_GRID_POINTS
    with pytest.raises(GridTooLargeError) as error:
        prv._bracket_at(PAIRS, 1e-5, KNOWN, step / 1.5, before, lower=True)
    assert error.value.factor == pytest.approx(1.5)
    prv._bracket_at(PAIRS, 1e-5, KNOWN, step, before, lower=True)


def test_only_pairs_that_are_attained_bound_from_below(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = solving(monkeypatch, lambda pairs, rounding, step: (0.9, 5.0))
    pairs: dict[Pair, int] = {
        WithoutReplacementPair(1.0, 0.1): 3,
        SampledGaussianPair(1.0, 0.1): 4,
        PurePair(1.0, bound=True): 5,
    }
    assert prv._lower(pairs, 1e-5, KNOWN, 1e-3, backward=False) == 0.9
    assert prv._lower(pairs, 1e-5, KNOWN, 1e-3, backward=True) == 0.9
    sampled = SampledGaussianPair(1.0, 0.1)
    assert [call[0] for call in asked] == [{sampled: 7}, {sampled.reversed(): 7}]
    assert prv._lower({PurePair(1.0, bound=True): 5}, 1e-5, KNOWN, 1e-3, backward=False) == 0.0
    prv._lower(MANY, 1e-5, KNOWN, 1e-3, backward=False)
    assert asked[-1][0] == thinned(MANY, min) != thinned(MANY, max)


class _Sum:
    """A composition with the epsilons and errors that are given, by its tilt."""

    losses = np.array([-3.0, 1.0, 4.0])

    def __init__(self, epsilon: float, width: float) -> None:
        self.value, self.width = epsilon, width

    def epsilon(self, delta: float, high: float, *, upper: bool) -> float:
        assert (delta, high) == (1e-5, 2.0)
        return self.value

    def delta(self, epsilon: float) -> tuple[float, float]:
        self.asked = epsilon
        return 1e-6, 1e-6 + self.width


@pytest.mark.parametrize(
    ("sums", "rounding", "tilts", "epsilon"),
    [
        ([(1.5, 0.9e-8)], pessimistic, [2.8], 1.5),
        ([(1.5, 1.1e-8), (1.6, 0.9e-8)], pessimistic, [2.8, 4.0], 1.5),
        ([(1.5, 1.1e-8), (1.6, 0.9e-8)], optimistic, [2.8, 4.0], 1.6),
        ([(math.inf, 1.0), (1.6, 1.0), (1.7, 1.0)], pessimistic, [2.8, 4.0, 0.0], 1.6),
        ([(0.0, 1.0), (1.6, 1.0), (1.7, 1.0)], optimistic, [2.8, 4.0, 0.0], 1.7),
    ],
)
def test_tilts_are_tried_until_one_is_accurate(
    monkeypatch: pytest.MonkeyPatch, sums: Any, rounding: Any, tilts: list[float], epsilon: float
) -> None:
    """Seven tenths of the best order's, all of it, and none: to a thousandth of delta."""
    asked, waiting = [], [_Sum(*given) for given in sums]
    every = list(waiting)

    def compose(parts: Any, tilt: float) -> Any:
        asked.append((tilt, [(lattice.step, count) for lattice, count in parts]))
        return waiting.pop(0)

    monkeypatch.setattr(prv, "compose", compose)
    found = prv._solve(PAIRS, rounding, 1e-5, KNOWN, 0.02)
    assert found == _Solved(epsilon, 7.0)
    assert [tilt for tilt, _ in asked] == pytest.approx(tilts)
    assert all(parts == [(0.02, 30)] for _, parts in asked)
    assert every[0].asked == min(every[0].value, 2.0)


def test_losses_that_reach_too_far_are_refused_before_they_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The farthest pair must fit, and a quarter of all together; tails hold 1e-7 of delta over all releases."""
    reaches: list[float] = []

    class Far(GaussianPair):
        def reach(self, tail: float) -> tuple[float, float]:
            reaches.append(tail)
            return -3.0, 5.0

    step = 8.0 / MAX_GRID_POINTS
    monkeypatch.setattr(prv, "compose", lambda parts, tilt: _Sum(1.0, 0.0))
    rounding: Any = lambda pair, step, tail: reaches.append(tail)  # noqa: E731
    prv._solve({Far(1.0): 20}, rounding, 1e-5, KNOWN, step)
    assert reaches == pytest.approx([1e-12 / 20] * 2)
    for pairs, factor in (({Far(1.0): 3}, 1.5), ({Far(1.0 + k): 1 for k in range(8)}, 3.0)):
        with pytest.raises(GridTooLargeError) as error:
            prv._solve(pairs, rounding, 1e-5, KNOWN, step / 1.5)
        assert error.value.factor == pytest.approx(factor)


# Steps --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [GaussianPair(0.7), SampledGaussianPair(1.3, 0.2), Diluted(LaplacePair(0.5), 0.4)])
@pytest.mark.parametrize("cut", [1e-13, 0.02, 0.4, 3.0, 5000.0])
def test_the_spread_is_the_mean_distance_of_the_loss_cut_off(pair: Any, cut: float) -> None:
    """Distances are rounded up to the next of 91, each half as large again as the one before."""
    edges = np.linspace(-8.0, 8.0, 160_001)
    masses = pair.masses(edges)[0]
    exact = float(np.sum(masses * np.minimum(np.abs((edges[1:] + edges[:-1]) / 2 - pair.usual()), cut)))
    found = prv._spread(pair)(cut)
    assert 0.99 * exact <= found <= 1.5 * exact + 1e-4 * min(cut, 1.0)
    assert found <= cut * (1 + 1e-12)


def test_mass_at_the_usual_loss_itself_has_no_distance() -> None:
    spread = prv._spread(Diluted(LaplacePair(0.5), 0.1))
    assert spread(1e-13) == pytest.approx(1e-13, rel=1e-9, abs=0.0)
    assert spread(1e-3) == pytest.approx(0.1 * 1e-3, rel=1e-3)


@pytest.mark.parametrize(("error", "count"), [(1e-4, 100), (1e-3, 40), (1e-5, 3000)])
def test_a_step_adds_as_much_variance_as_is_allowed(error: float, count: int) -> None:
    """order/2 of the variance for each unit of epsilon: 2 · error · epsilon / order in all."""
    pairs: dict[Pair, int] = {SampledGaussianPair(1.3, 0.01): count, GaussianPair(0.2): 7}
    step = prv._step(pairs, KNOWN, error)
    assert variance(pairs, step) == pytest.approx(2 * error * 2.0 / 5.0, rel=1e-6)


def variance(pairs: dict[Pair, int], step: float) -> float:
    """What rounding to a step adds over all releases."""
    return sum(count * step * prv._spread(pair)(step / 6) for pair, count in pairs.items())


@pytest.mark.parametrize("step", [1e-4, 0.003, 0.03, 0.049])
@pytest.mark.parametrize("pair", [GaussianPair(0.2), SampledGaussianPair(1.3, 1e-3)], ids=str)
def test_a_step_is_found_again_from_what_it_adds(pair: Any, step: float) -> None:
    error = variance({pair: 9}, step) * 5.0 / (2 * 2.0)
    assert prv._step({pair: 9}, KNOWN, error) == pytest.approx(step, rel=1e-6)


def test_a_step_is_no_larger_than_the_largest_and_falls_on_the_atoms_met_most_often() -> None:
    assert prv._step({GaussianPair(0.2): 1}, KNOWN, 1.0) == 0.05
    for count in (3, 1000):
        assert prv._step({SampledGaussianPair(1.3, 1e-5): count}, KNOWN, 1e-2) == 0.05
    atomic: dict[Pair, int] = {LaplacePair(0.31): 40}
    step = prv._step(atomic, KNOWN, 1e-3)
    assert variance(atomic, step) <= 2e-3 * 0.4 < variance(atomic, 0.31 / (round(0.31 / step) - 1))
    pairs: dict[Pair, int] = {PurePair(0.77): 5, LaplacePair(0.31): 40, GaussianPair(0.2): 90}
    plain = prv._step({GaussianPair(0.770001): 5, GaussianPair(0.31): 40, GaussianPair(0.2): 90}, KNOWN, 1e-3)
    step = prv._step(pairs, KNOWN, 1e-3)
    parts = 0.31 / step
    assert parts == pytest.approx(round(parts), rel=1e-12)
    assert step <= 0.05
    assert 0.2 * plain < step < 5 * plain
    least = math.sqrt(6 * 2e-3 * 0.4 / 135)
    assert step > least * 0.5


# What the accountant says -------------------------------------------------------------------------------------------

SAMPLED = expose(event(Gaussian(1.0), 0.7, 30, rate=0.1), assumptions=("a",))


@pytest.mark.parametrize(
    ("given", "known", "expected", "method"),
    [
        (_Bracket(1.0, 1.2, 0.01), 1.5, (1.0, 1.1, 1.2), "privacy-loss distribution, grid step 0.01"),
        (_Bracket(1.0, 1.7, 0.01), 1.5, (1.0, 1.25, 1.5), "by orders; privacy-loss distribution, grid step 0.01"),
        (_Bracket(1.6, 1.7, 0.01), 1.5, (1.5, 1.5, 1.5), "by orders; privacy-loss distribution, grid step 0.01"),
    ],
)
def test_a_budget_is_the_least_upper_and_a_lower_bound_below_it(
    monkeypatch: pytest.MonkeyPatch, given: _Bracket, known: float, expected: tuple[float, ...], method: str
) -> None:
    monkeypatch.setattr(prv, "_bounds", lambda pairs, delta: (Bound(known, 5.0), "by orders", given))
    budget = PrvAccountant().budget(SAMPLED, 1e-5)
    assert (budget.lower, budget.estimate, budget.upper) == pytest.approx(expected)
    assert (budget.method, budget.delta, budget.assumptions[0]) == (method, 1e-5, "a")
    assert any("true epsilon is at least" in note for note in budget.assumptions) == (expected[0] < 0.99 * expected[2])
    lowers: list[bool] = []
    monkeypatch.setattr(prv, "_bracket", lambda pairs, delta, own, *, lower: lowers.append(lower) or given)
    monkeypatch.setattr(prv, "_known", lambda pairs, delta: (Bound(known, 5.0), "by orders"))
    assert PrvAccountant().upper(SAMPLED, 1e-5) == expected[2]
    assert lowers == [False]


def test_the_bound_without_a_grid_is_the_least_of_three() -> None:
    sampled: dict[Pair, int] = {SampledGaussianPair(1.0, 0.5): 3}
    bound, method = prv._known(sampled, 1e-5)
    assert "Rényi divergence of order" in method
    assert math.isfinite(bound.order)
    seldom: dict[Pair, int] = {SampledGaussianPair(1.0, 0.999): 30}
    bound, method = prv._known(seldom, 1e-5)
    assert method == "exact composition of Gaussians, as if nothing were sampled"
    pure: dict[Pair, int] = {LaplacePair(0.1): 2}
    bound, method = prv._known(pure, 1e-12)
    assert (method, bound.epsilon) == ("addition of pure epsilons", pytest.approx(0.2))
    assert math.isfinite(bound.order)


def test_noise_of_which_moments_alone_are_known_is_not_supported() -> None:
    accountant = PrvAccountant()
    spread = expose(event(Gaussian(1.0), 0.7, 30, rate=0.1), event(DiscreteGaussian(3.0, 0.5, 16)))
    assert accountant.supports(spread) == "there is noise of which only Rényi moments are known"
    assert accountant.supports(expose(event(DiscreteGaussian(3.0, 0.5)), event(Laplace(2.0)))) is None
    assert accountant.supports(expose(not_applicable="nothing")) == "not applicable: nothing"


def test_exact_and_pure_exposures_need_no_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prv, "_bounds", None)
    monkeypatch.setattr(prv, "_bracket", None)
    accountant = PrvAccountant()
    exact = expose(event(Gaussian(1.0), 0.7, 30))
    assert accountant.upper(exact, 1e-5) == accountant.budget(exact, 1e-5).upper == accountant.budget(exact, 1e-5).lower
    leaking = expose(event(Gaussian(1.0), 0.7, 30, rate=0.1), unprotected=("x",))
    assert accountant.upper(leaking, 1e-5) == accountant.budget(leaking, 1e-5).upper == math.inf
    pure = expose(event(Laplace(2.0), 1.0, 3))
    assert accountant.upper(pure, 0.0) == accountant.budget(pure, 0.0).upper == 1.5
