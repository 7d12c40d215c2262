"""What a budget allows an attack to gain: no mechanism of that budget lets the best test gain more."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflpriv.core.budgets import Budget, delta_of, epsilon_of, most_gain


def budget(epsilon: float, delta: float, mu: float | None = None) -> Budget:
    return Budget(accountant="test", method="", delta=delta, lower=0.0, estimate=epsilon, upper=epsilon, mu=mu)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("labels", [2, 10])
def test_the_best_guess_under_randomised_response_stays_below_and_reaches_it_for_two_labels(epsilon, labels):
    right = math.exp(epsilon) / (math.exp(epsilon) + labels - 1)
    gain = right - 1 / labels
    allowed = most_gain(budget(epsilon, 0.0))
    assert gain <= allowed
    if labels == 2:  # telling the truth is right with e^ε / (e^ε + 1), half of the total variation above a coin
        assert gain == pytest.approx(allowed / 2)


@given(mu=st.floats(0.01, 5.0), delta=st.floats(1e-9, 0.1))
def test_the_gaussian_bound_is_its_total_variation_and_no_looser_than_that_of_epsilon(mu, delta):
    epsilon = epsilon_of(mu, delta)
    exact = most_gain(budget(epsilon, delta, mu))
    assert exact == pytest.approx(delta_of(mu, 0.0), rel=1e-9)
    assert exact <= most_gain(budget(epsilon, delta)) + 1e-12


def test_no_budget_allows_nothing_and_an_infinite_one_everything():
    assert most_gain(budget(0.0, 0.0)) == 0.0
    assert most_gain(budget(math.inf, 1e-5)) == 1.0
