"""Skellam noise on paper: its published bound term by term, its far tail, and how far its losses are listed."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from vflpriv.laws.skellam import Skellam, SkellamMoments, SkellamPair, _debye, _reach

ORDERS = (2.0, 2.25, 3.0, 3.5, 40.0)


def published(a: float, absolute: float, euclidean: float, v: float) -> float:
    """(a - 1) times Corollary 3.6 of "The Skellam Mechanism", at a whole order."""
    correction = min(((2 * a - 1) * euclidean**2 + 6 * absolute) / (4 * v**2), 3 * absolute / (2 * v))
    return (a - 1) * (a * euclidean**2 / (2 * v) + correction)


@pytest.mark.parametrize(("absolute", "euclidean", "v"), [(12.0, 4.0, 9.0), (5.0, 2.0, 0.3), (7.0, 7.0, 50.0)])
def test_moments_are_the_published_ones_and_their_chords(absolute: float, euclidean: float, v: float) -> None:
    pair = SkellamMoments(absolute, euclidean, v)
    expected = []
    for a in ORDERS:
        low, high = (published(whole, absolute, euclidean, v) for whole in (math.floor(a), math.floor(a) + 1))
        expected.append(low + (a - math.floor(a)) * (high - low))
    np.testing.assert_allclose(pair.moments(ORDERS, fast=False), expected, rtol=1e-12)
    assert pair.usual() == pytest.approx(euclidean**2 / (2 * v))


@pytest.mark.parametrize(
    ("law", "sensitivity", "shift", "absolute"),
    [
        (Skellam(3.0), 1.2, 2.0, 2.0),
        (Skellam(3.0, 0.5), 1.2, 3.0, 3.0),
        (Skellam(0.8, 0.5), 2.5, 5.0, 5.0),
        (Skellam(3.0, 0.5), 4.0, 8.0, 8.0),
        (Skellam(3.0, 0.5, 16), 1.2, 6.4, 6.4 * 4),
        (Skellam(3.0, 0.5, 16, rounds=False), 1.2, 2.4, 2.4**2),
        (Skellam(0.8, 0.5, 100), 9.0, 28.0, 280.0),
    ],
    ids=str,
)
def test_the_strength_bounds_the_published_bound(
    law: Skellam, sensitivity: float, shift: float, absolute: float
) -> None:
    """mu² / 2 times a is at least R_a of every whole order, and equal to it at a = 2 where the first term counts."""
    assert law._absolute(sensitivity) == pytest.approx(absolute)
    v, square = law.variance, shift**2
    mu2 = square / v * (1 + 1 / v) + max(0.0, 6 * absolute - square) / (2 * v**2)
    assert law.strength(sensitivity) == pytest.approx(math.sqrt(mu2), rel=1e-12)
    assert all(published(a, absolute, shift, v) <= (a - 1) * a * mu2 / 2 * (1 + 1e-9) for a in range(2, 60))


def test_losses_are_listed_of_one_entry_and_few_steps() -> None:
    assert Skellam(3.0, 0.5).pair(1.2) == SkellamPair(3, 36.0)
    assert Skellam(10_000.0, 0.5).pair(1.2) == SkellamPair(3, 4e8)
    assert Skellam(10_001.0, 0.5).pair(1.2) == SkellamMoments(3.0, 3.0, 20_002.0**2)
    assert Skellam(3.0, 0.5, 2, rounds=False).pair(0.5) == SkellamMoments(1.0, 1.0, 36.0)
    assert Skellam(3.0, 0.5, 9) == Skellam(3.0, 0.5, 9, rounds=True)
    assert (Skellam(3.0).norm, Skellam(3.0).step) == (2, 1.0)
    np.testing.assert_allclose(Skellam(3.0, 0.5).sizes(np.array([0.0, 1.5, -6.0])), [0.0, 0.125, 2.0])


@pytest.mark.parametrize("v", [200.0, 120.0, 500.0])
def test_the_far_tail_is_off_by_the_next_term_of_its_expansion(v: float) -> None:
    """DLMF 10.41.3: what is left out is u₃(t) / k³ (10.41.10)."""
    k = 200
    with mpmath.workdps(40):
        exact = mpmath.log(mpmath.besseli(k, v)) - v
        off = float(exact - mpmath.mpf(float(_debye(np.array([float(k)]), v)[0])))
    t = k / math.hypot(k, v)
    third = (30375 * t**3 - 369603 * t**5 + 765765 * t**7 - 425425 * t**9) / 414720 / k**3
    assert off == pytest.approx(third, rel=0.06, abs=5e-13)


def negligible(k: int, v: float) -> bool:
    return math.hypot(k, v) - v - k * math.asinh(k / v) < -60.0


@pytest.mark.parametrize("v", [1e-40, 0.01, 0.3, 1.0, 2.7, 4.0, 9.3, 33.0, 150.0, 1234.5])
def test_the_reach_is_the_first_that_chernoff_calls_negligible(v: float) -> None:
    reach = _reach(v)
    assert negligible(reach, v)
    assert reach == 1 or not negligible(reach - 1, v)
    for shift in (1, 4):
        losses, upper, lower = SkellamPair(shift, v).atoms()
        assert losses.shape == upper.shape == lower.shape == (3 * reach + shift + 1,)


def test_orders_are_summed_as_far_as_the_list_reaches() -> None:
    reach = _reach(9.0)
    for shift, order, listed in ((1, reach, True), (1, reach + 1, False), (5, reach, False), (5, reach // 5, True)):
        orders = (float(order),)
        (own,) = SkellamPair(shift, 9.0).moments(orders, fast=False)
        (bound,) = SkellamMoments(shift, shift, 9.0).moments(orders, fast=False)
        assert (own < bound) == listed


def test_masses_that_are_no_numbers_are_left_out_of_dp_accounting() -> None:
    pair: Any = SkellamPair(200, 0.5)
    assert pair.atoms()[2].min() == 0.0
    assert pair.in_dp_accounting(1.0).get_epsilon_for_delta(1e-3) > 500
