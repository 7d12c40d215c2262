"""Curves of one pair of worlds: they equal closed forms, and sampled losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vflpriv.audits.flow.curve import PairCurve, of_choices, of_epsilon, of_pair
from vflpriv.audits.flow.tracer.events import Choice
from vflpriv.core.budgets import delta_of, epsilon_of
from vflpriv.laws import Laplace


def response(epsilon: float, classes: int = 2) -> Choice:
    """Randomised response of a label that is 0 in one world and 1 in the other; a second record has the same."""
    odds = torch.ones(classes, dtype=torch.float64)
    rows = [torch.where(torch.arange(classes) == label, math.exp(epsilon), odds) for label in (0, 1)]
    first, second = (row / row.sum() for row in rows)
    weights = torch.stack([first, first]), torch.stack([second, first])
    return Choice(weights=weights, columns=torch.arange(2), taint=frozenset({0}), where="", kind="multinomial")


def curve(mu: float, *choices: Choice) -> PairCurve:
    made = PairCurve.of(mu, of_choices(choices))
    assert made is not None
    return made


def test_noise_alone_is_the_gaussian_curve() -> None:
    assert curve(0.7).delta(0.5) == pytest.approx(delta_of(0.7, 0.5), rel=1e-12)
    assert curve(0.7).epsilon(1e-5) == epsilon_of(0.7, 1e-5)
    assert curve(0.7).least_mu() == 0.7


@pytest.mark.parametrize("classes", [2, 5])
def test_randomised_response_has_its_closed_form(classes: int) -> None:
    epsilon, kept = 1.0, math.e / (math.e + classes - 1)
    made = curve(0.0, response(epsilon, classes))
    for at in (0.0, 0.3, 0.9):
        assert made.delta(at) == pytest.approx(kept - math.exp(at) * kept / math.e, rel=1e-9)
    assert made.epsilon(0.0) == pytest.approx(epsilon)
    assert 0 < made.epsilon(0.1) < epsilon
    assert made.epsilon(0.9) == 0.0


def test_responses_that_are_drawn_again_add_up() -> None:
    """Two responses: both right, or both wrong, or one of each, which says nothing."""
    right = math.e / (1 + math.e)
    expected = right**2 * (1 - math.exp(0.5 - 2))
    assert curve(0.0, response(1.0), response(1.0)).delta(0.5) == pytest.approx(expected, rel=1e-9)


def test_noise_and_a_response_together_are_those_of_sampled_losses() -> None:
    rng, mu, epsilon, at = np.random.default_rng(0), 0.8, 1.0, 0.7
    right = math.e / (1 + math.e)
    losses = np.where(rng.random(400_000) < right, epsilon, -epsilon) + rng.normal(mu**2 / 2, mu, 400_000)
    sampled = np.maximum(0.0, -np.expm1(at - losses))
    assert curve(mu, response(epsilon)).delta(at) == pytest.approx(sampled.mean(), abs=5 * sampled.std() / 400_000**0.5)
    assert curve(mu, response(epsilon)).least_mu() > mu


def test_a_curve_in_bins_lies_below_that_of_the_law_and_near_it() -> None:
    law, at = Laplace(1.0), 0.4
    made = PairCurve.of(0.0, [of_pair(law.pair(1.0))])
    assert made is not None
    exact = 1 - math.exp((at - 1) / 2)
    assert exact * 0.99 < made.delta(at) <= exact * (1 + 1e-9)
    worst = PairCurve.of(0.0, [of_epsilon(1.0)])
    assert worst is not None
    assert worst.delta(at) > exact


def test_an_outcome_of_one_world_alone_has_no_finite_epsilon() -> None:
    weights = torch.tensor([[0.9, 0.1, 0.0]], dtype=torch.float64), torch.tensor([[0.9, 0.0, 0.1]], dtype=torch.float64)
    choice = Choice(weights=weights, columns=torch.arange(1), taint=frozenset({0}), where="", kind="multinomial")
    assert curve(0.0, choice).epsilon(0.01) == math.inf
    assert curve(0.0, choice).epsilon(0.2) == 0.0
