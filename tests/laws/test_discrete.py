"""Discrete Laplace noise: a change that is spread over several entries is no easier to tell than one of one entry."""

from __future__ import annotations

import numpy as np
import pytest

from vflpriv.laws.discrete_laplace import DiscreteLaplacePair


def hockey_stick(losses: np.ndarray, masses: np.ndarray, epsilon: float) -> float:
    return float(np.sum(masses * np.maximum(0.0, -np.expm1(epsilon - losses))))


@pytest.mark.parametrize("rate", [0.05, 0.5, 2.0])
@pytest.mark.parametrize(("one", "other"), [(1, 1), (1, 2), (2, 3), (1, 9), (5, 5)])
def test_a_shift_that_is_spread_is_harder_to_tell(rate: float, one: int, other: int) -> None:
    (losses, masses, _), (more, others, _) = (DiscreteLaplacePair(s, rate).atoms() for s in (one, other))
    spread, product = np.add.outer(losses, more).ravel(), np.multiply.outer(masses, others).ravel()
    whole, whole_masses, _ = DiscreteLaplacePair(one + other, rate).atoms()
    for epsilon in np.linspace(0.0, rate * (one + other), 41):
        assert hockey_stick(spread, product, epsilon) <= hockey_stick(whole, whole_masses, epsilon) + 1e-12
