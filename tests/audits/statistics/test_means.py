"""Bounds on means against the capitals of their bets written out, and p-values against bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from vflpriv.audits.statistics.means import mean_bounds, p_value_mean

VALUES = ([0.31, 0.42, 0.97], [0.9] * 8, [0.0, 1.0, 1.0, 1.0, 1.0, 1.0], [0.62], [0.08, 0.11, 0.05, 0.4, 0.07])


def one_over_capital(values: list[float], bound: float) -> float:
    """One over the average of what each stake makes of a capital of 1."""
    capitals = [math.prod(1 - stake + stake * x / bound for x in values) for stake in (0.2, 0.6, 1.0)]
    return min(1.0, 1 / (sum(capitals) / 3))


@pytest.mark.parametrize("values", VALUES)
def test_the_p_value_is_one_over_the_average_capital(values: list[float]) -> None:
    for bound in (0.03, 0.2, 0.55, 0.9, 1.0):
        assert p_value_mean(values, bound) == pytest.approx(one_over_capital(values, bound), rel=1e-9)


@pytest.mark.parametrize("confidence", [0.95, 0.7])
@pytest.mark.parametrize("values", VALUES)
def test_the_ends_are_where_the_p_values_are_half_the_level(values: list[float], confidence: float) -> None:
    half = (1 - confidence) / 2

    def lower(values: list[float]) -> float:
        if one_over_capital(values, 1e-12) > half:
            return 0.0
        return brentq(lambda bound: one_over_capital(values, bound) - half, 1e-12, 1.0, xtol=1e-14)

    expected = lower(values), 1 - lower([1 - x for x in values])
    assert mean_bounds(values, confidence) == pytest.approx(expected, abs=1e-9)


def test_values_beyond_what_a_double_holds_of_their_capital_are_no_trouble() -> None:
    assert p_value_mean([1.0] * 400, 1e-3) == 0.0
    assert mean_bounds([1.0] * 400, 0.95)[0] == pytest.approx((0.025 / 3) ** (1 / 400), abs=1e-3)


@pytest.mark.parametrize("values", [[], [-0.1, 0.5], [0.2, 1.1], [math.nan]])
def test_what_is_no_share_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="Expected values between 0 and 1"):
        p_value_mean(values, 0.5)
    with pytest.raises(ValueError, match="Expected values between 0 and 1"):
        mean_bounds(values, 0.95)


@pytest.mark.parametrize("bound", [-0.1, 1.1, math.nan])
def test_bounds_that_are_no_share_are_refused(bound: float) -> None:
    with pytest.raises(ValueError, match="Expected a bound"):
        p_value_mean([0.5], bound)
    assert p_value_mean([0.5, 0.1], 1.0) == 1.0
    assert (p_value_mean([0.0, 0.1], 0.0), p_value_mean([0.0], 0.0)) == (0.0, 1.0)
    assert np.isclose(p_value_mean([0.2], 0.1), one_over_capital([0.2], 0.1))
