"""Sampled pairs against integrals of their densities: the variance of the likelihood ratio that central limits take."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vflpriv.laws import Gaussian, Laplace
from vflpriv.laws.labels.alibi import Alibi
from vflpriv.laws.sampled import SampledGaussianPair, SampledReplacementPair

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(120)
"""For expectations over a standard normal."""


def expected(values: np.ndarray) -> float:
    return float(np.sum(values * WEIGHTS) / math.sqrt(2 * math.pi))


@pytest.mark.parametrize(("mu", "rate"), [(0.3, 0.7), (1.7, 0.11), (2.3, 0.05)])
def test_the_variance_of_a_sampled_ratio_is_its_integral(mu: float, rate: float) -> None:
    ratio = rate * np.expm1(mu * NODES - mu * mu / 2)
    assert SampledGaussianPair(mu, rate).ratio_variance == pytest.approx(expected(ratio**2) - expected(ratio) ** 2)


@pytest.mark.parametrize(("mu", "rate"), [(0.3, 0.7), (1.7, 0.11), (2.3, 0.05), (5.1, 0.3)])
def test_the_variance_of_a_replaced_ratio_is_its_integral(mu: float, rate: float) -> None:
    """Of q (e^{cx} - e^{-cx}) e^{-c²/2}, with c = μ/2, what replacing a record adds to the ratio to first order."""
    c = mu / 2
    ratio = rate * (np.exp(c * NODES) - np.exp(-c * NODES)) * math.exp(-c * c / 2)
    assert SampledReplacementPair(mu, rate).ratio_variance == pytest.approx(expected(ratio**2) - expected(ratio) ** 2)


@pytest.mark.parametrize("epsilon", [0.3, 1.7, 5.1])
def test_alibi_noise_for_an_epsilon_costs_that_epsilon(epsilon: float) -> None:
    """Two one-hot labels are 2 apart in L1, and Laplace noise of std λ has the scale λ/√2."""
    law = Alibi(Alibi.std_for(epsilon))
    assert law.label_epsilon == pytest.approx(epsilon, rel=1e-8)
    assert law.label_epsilon <= epsilon
    assert law.label_epsilon == pytest.approx(2 / (law.std / math.sqrt(2)))
    assert law.pair(2.0).pure_cost == pytest.approx(epsilon, rel=1e-8)
    assert law.laplace == Laplace(law.std / math.sqrt(2))


@pytest.mark.parametrize(("std", "sensitivity", "count"), [(3.0, 1.7, 5), (0.4, 0.1, 11)])
def test_squares_of_gaussians_are_counts_times_strengths(std: float, sensitivity: float, count: int) -> None:
    assert float(Gaussian(std).square(sensitivity, count)) == pytest.approx(count * (sensitivity / std) ** 2)
