"""Any noise, rate, count and delta: a valid number, from bounded work, never below a multi-precision reference."""

from __future__ import annotations

import math

import mpmath
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.accountants.exposures import event, expose
from vflpriv.accountants import _composition
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.gdp import GdpAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.core.units import Unit
from vflpriv.laws import Gaussian, RandomizedResponse

# (q, noise multiplier, T, delta) by their logarithms, so that every order of magnitude is met.
RATES = st.floats(-6, 0).map(lambda x: 10**x)
NOISES = st.floats(math.log10(0.05), 4).map(lambda x: 10**x)
COUNTS = st.floats(0, 7).map(lambda x: round(10**x))
DELTAS = st.floats(-12, math.log10(0.5)).map(lambda x: min(10**x, 0.5))
UNITS = st.sampled_from([Unit.ADD_REMOVE, Unit.RECORD])
TWO = [(0.01, 0.8, 1e-5), *(pytest.param(*x, marks=pytest.mark.slow) for x in ((0.2, 2.0, 1e-8), (0.5, 0.5, 1e-3)))]
MOST_POINTS = 4 * _composition.MAX_WORK
"""About 8 s of transforms, and never more than one grid of MAX_GRID_POINTS at a time."""


def exposure_of(q, nu, T, unit=Unit.ADD_REMOVE):
    sensitivity = 1.0 if unit is Unit.ADD_REMOVE else 2.0
    return expose(event(Gaussian(nu), sensitivity, T, q), unit=unit)


@given(q=RATES, nu=NOISES, T=COUNTS, delta=DELTAS, unit=UNITS)
@settings(max_examples=10, deadline=None)
def test_the_whole_range(q, nu, T, delta, unit):
    check_range(q, nu, T, delta, unit)


@pytest.mark.slow
@given(q=RATES, nu=NOISES, T=COUNTS, delta=DELTAS, unit=UNITS)
@example(q=1e-6, nu=0.05, T=10**7, delta=1e-12, unit=Unit.RECORD)
@example(q=1.0, nu=0.05, T=10**7, delta=1e-12, unit=Unit.RECORD)
@example(q=0.999, nu=1e4, T=10**7, delta=0.5, unit=Unit.ADD_REMOVE)
@example(q=0.5, nu=0.05, T=10**7, delta=1e-12, unit=Unit.RECORD)
@settings(max_examples=150, deadline=None)
def test_the_whole_range_and_its_corners(q, nu, T, delta, unit):
    check_range(q, nu, T, delta, unit)


def check_range(q, nu, T, delta, unit):
    points, convolve = [], _composition._convolve
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_composition, "_convolve", lambda parts, n: points.append(n) or convolve(parts, n))
        budget = AutoAccountant().budget(exposure_of(q, nu, T, unit), delta)
    assert 0 <= budget.lower <= budget.upper < math.inf
    if budget.lower < 0.98 * budget.upper - 1e-3:
        assert any("grid of privacy losses" in note for note in budget.assumptions), "a loose bound says so"
    assert sum(points) <= MOST_POINTS
    assert max(points, default=0) <= 1.1 * _composition.MAX_GRID_POINTS
    # Sampling only helps, and a bound that is looser than another one we have is not given.
    always = GdpAccountant().budget(exposure_of(None, nu, T, unit), delta).upper
    assert budget.upper <= always * (1 + 1e-9)
    assert budget.upper <= RdpAccountant().budget(exposure_of(q, nu, T, unit), delta).upper


def single_delta(q, nu, epsilon):
    """delta of one Poisson-sampled Gaussian release, the larger of both directions, in multi-precision."""
    q, mu, e = mpmath.mpf(q), 1 / mpmath.mpf(nu), mpmath.e ** mpmath.mpf(epsilon)

    def tail(x):
        return mpmath.ncdf(-x)

    x = (mpmath.log((e - 1) / q + 1)) / mu + mu / 2
    removed = (1 - q) * tail(x) + q * tail(x - mu) - e * tail(x)
    y = (1 / e - 1) / q + 1
    if y <= 0:
        return removed
    # Added: P = N(0) exceeds e^eps ((1-q) N(0) + q N(mu)) below x.
    x = mpmath.log(y) / mu + mu / 2
    added = mpmath.ncdf(x) * (1 - e * (1 - q)) - e * q * mpmath.ncdf(x - mu)
    return max(removed, added)


@given(q=st.floats(-6, -0.001).map(lambda x: 10**x), nu=NOISES, delta=DELTAS)
@settings(max_examples=25, deadline=None)
def test_one_release_is_never_below_the_reference(q, nu, delta):
    budget = AutoAccountant().budget(exposure_of(q, nu, 1), delta)
    with mpmath.workdps(60):
        assert single_delta(q, nu, budget.upper) <= mpmath.mpf(delta) * (1 + mpmath.mpf(10) ** -9)
        assert budget.lower == 0 or single_delta(q, nu, budget.lower) >= mpmath.mpf(delta) * (1 - mpmath.mpf(10) ** -9)


@pytest.mark.parametrize(
    ("q", "nu", "delta"),
    TWO,
)
def test_two_releases_are_never_below_the_reference(q, nu, delta):
    """delta_2(eps) = E over the first output of delta_1(eps - its loss): one more integral."""
    budget = AutoAccountant().budget(exposure_of(q, nu, 2), delta)
    with mpmath.workdps(20):
        rate, mu = mpmath.mpf(q), 1 / mpmath.mpf(nu)

        def removal(epsilon):
            e = mpmath.e**epsilon
            y = (e - 1) / rate + 1
            if y <= 0:
                return 1 - e
            x = mpmath.log(y) / mu + mu / 2
            return (1 - rate) * mpmath.ncdf(-x) + rate * mpmath.ncdf(mu - x) - e * mpmath.ncdf(-x)

        def integrand(x, epsilon):
            ratio = 1 - rate + rate * mpmath.e ** (mu * x - mu * mu / 2)
            return mpmath.npdf(x) * ratio * removal(epsilon - mpmath.log(ratio))

        nodes = mpmath.linspace(-12, mu + 12, 16)
        at_upper, at_lower = (
            mpmath.quad(lambda x, e=e: integrand(x, e), nodes) for e in map(mpmath.mpf, (budget.upper, budget.lower))
        )
    assert at_upper <= delta * (1 + 1e-6)
    assert at_lower >= delta * (1 - 1e-6)
    assert budget.upper <= 1.002 * budget.lower


@given(nu=NOISES, T=COUNTS, delta=DELTAS)
@settings(max_examples=30, deadline=None)
def test_gaussians_without_sampling_against_the_reference(nu, T, delta):
    epsilon = AutoAccountant().budget(exposure_of(None, nu, T), delta).upper
    with mpmath.workdps(60):
        mu = mpmath.sqrt(T) / mpmath.mpf(nu)

        def exact(e):
            return mpmath.ncdf(-e / mu + mu / 2) - mpmath.e**e * mpmath.ncdf(-e / mu - mu / 2)

        # Root finding leaves the last digits; a relative 1e-9 of epsilon is far below what is printed.
        assert exact(mpmath.mpf(epsilon) * (1 + mpmath.mpf(10) ** -9) + mpmath.mpf(10) ** -9) <= delta


@pytest.mark.parametrize(("epsilon", "count", "delta"), [(0.01, 10_000, 1e-6), (0.5, 300, 1e-9), (3.0, 7, 0.01)])
def test_coins_against_the_reference(epsilon, count, delta):
    budget = AutoAccountant().budget(expose(event(RandomizedResponse(epsilon), 1.0, count), unit=Unit.LABEL), delta)
    with mpmath.workdps(40):
        e = mpmath.mpf(epsilon)
        right = 1 / (1 + mpmath.e**-e)

        def exact(target):
            total, mass = mpmath.mpf(0), (1 - right) ** count
            for k in range(count + 1):
                loss = e * (2 * k - count)
                if loss > target:
                    total += mass * (1 - mpmath.e ** (target - loss))
                mass = mass * (count - k) / (k + 1) * right / (1 - right)
            return total

        assert exact(mpmath.mpf(budget.upper)) <= delta * (1 + 1e-9)
        assert exact(mpmath.mpf(budget.lower)) >= delta * (1 - 1e-6)
