"""Draws of noised labels in two worlds: they reach the declared ε, and exceed it where there is too little noise."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import binom

from tests.support import make_system, toy_data
from vflpriv.audits.label_draws import epsilon_of_scores, label_draws


def drawn(variant: str, epsilon: float, classes: int = 10, trials: int = 1000) -> float:
    system = make_system(variant, data=toy_data(classes=classes), label_noise=None, label_epsilon=epsilon)
    found = label_draws(system, trials=trials, confidence=0.95)
    assert found is not None
    assert found.draws == 60 * trials
    return found.epsilon_lower


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("variant", ["noise-once", "split-rr", "split-alibi"])
def test_draws_reach_the_declared_epsilon_and_no_more(variant: str, epsilon: float) -> None:
    assert 0.8 * epsilon < drawn(variant, epsilon) <= epsilon


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("draws", [40, 400])
def test_the_bound_covers(epsilon: float, draws: int) -> None:
    """Randomised response of two labels, drawn many times: the bound is above its ε at most as often as it says."""
    generator = torch.Generator().manual_seed(3)
    kept = 1 / (1 + math.exp(-epsilon))
    above, repeated = 0, 1000
    for _ in range(repeated):
        said = [torch.rand(draws, generator=generator) < share for share in (kept, 1 - kept)]
        above += epsilon_of_scores([each.double() for each in said], 0.9) > epsilon
    assert above <= binom.ppf(0.9999, repeated, 0.1)


def test_labels_with_too_little_noise_are_found() -> None:
    system = make_system("noise-once", label_noise=None, label_epsilon=2.0)
    declared = replace(system, settings=system.settings.with_label_epsilon(1.0))
    found = label_draws(system, trials=500, confidence=0.95)
    assert found is not None
    assert found.epsilon_lower > 1.5 > declared.settings.label_epsilon


@pytest.mark.parametrize("variant", ["split-lp-mst", "split-concat"])
def test_labels_that_are_not_noised_before_training_have_no_such_draws(variant: str) -> None:
    assert label_draws(make_system(variant), trials=10, confidence=0.95) is None
