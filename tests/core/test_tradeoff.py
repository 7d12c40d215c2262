"""Closed forms of the Gaussian curve: oracles, multi-precision, round trips, order."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflpriv.core.budgets import curve, delta_of, epsilon_of, mu_of

MUS, DELTAS = st.floats(1e-3, 200), st.floats(1e-12, 0.4)


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"),
    [(1, 1e-3, 0.388401), (10, 1e-3, 2.462693), (1, 1e-5, 0.268051), (8, 1e-5, 1.666031)],
)
def test_published_values(epsilon, delta, mu):
    assert mu_of(epsilon, delta) == pytest.approx(mu, abs=5e-7)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("deviations", [-1.0, 0.0, 2.0, 6.0])
def test_delta_against_multi_precision(mu, deviations):
    epsilon = max(0.0, mu * mu / 2 + deviations * mu)
    with mpmath.workdps(50):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(-e / m + m / 2) - mpmath.e**e * mpmath.ncdf(-e / m - m / 2)
        assert delta_of(mu, epsilon) == pytest.approx(float(exact), rel=1e-9)


@given(mu=MUS, delta=DELTAS)
def test_epsilon_and_delta_are_inverse(mu, delta):
    epsilon = epsilon_of(mu, delta)
    if epsilon > 0:
        assert delta_of(mu, epsilon) == pytest.approx(delta, rel=1e-6)
        assert mu_of(epsilon, delta) == pytest.approx(mu, rel=1e-6)
    else:
        assert delta_of(mu, 0.0) <= delta


@given(mu=MUS, factor=st.floats(1.01, 3), delta=DELTAS)
def test_epsilon_rises_with_mu_and_falls_with_delta(mu, factor, delta):
    assert epsilon_of(mu, delta) <= epsilon_of(factor * mu, delta)
    assert epsilon_of(mu, min(0.9, factor * delta)) <= epsilon_of(mu, delta)


@given(mu=MUS, epsilon=st.floats(0, 500), more=st.floats(0.01, 10))
def test_delta_is_a_probability_that_falls_with_epsilon(mu, epsilon, more):
    assert 0 <= delta_of(mu, epsilon + more) <= delta_of(mu, epsilon) <= 1


def test_edges():
    assert epsilon_of(0.0, 1e-5) == 0
    assert epsilon_of(math.inf, 1e-5) == math.inf
    assert delta_of(0.0, 1.0) == 0
    assert delta_of(math.inf, 1.0) == 1


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_the_curve_is_the_dual_of_delta(mu):
    """delta(eps) = max over alpha of 1 - G(alpha) - e^eps alpha."""
    alpha = np.linspace(0, 1, 200_001)
    for epsilon in (0.0, 0.5, 2.0):
        assert np.max(1 - curve(mu, alpha) - math.exp(epsilon) * alpha) == pytest.approx(
            delta_of(mu, epsilon), abs=1e-6
        )
