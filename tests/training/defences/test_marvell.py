"""MARVELL: the noise that it finds is the best there is, and hides the classes from norms and directions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from vflpriv.common.random import Stream
from vflpriv.training.defence import Exchange
from vflpriv.training.defences.marvell import Marvell, Moments, noise_variances, symmetric_divergence

CASES = [(0.5, 1.0, 1.0, 4.0), (0.1, 0.3, 0.02, 4.0), (0.8, 0.01, 0.5, 1.0), (0.3, 0.2, 0.1, 0.3)]


@pytest.mark.parametrize(("share", "first", "second", "power"), CASES)
def test_no_other_noise_of_the_same_power_does_better(share, first, second, power):
    width, distance = 6, 1.0
    moments = Moments(
        shares=torch.tensor([[1 - share, share]]),
        variances=torch.tensor([[first, second]]),
        distance=torch.tensor([distance]),
        width=width,
    )
    along, across = noise_variances(moments, torch.tensor([power]))
    found = float(symmetric_divergence(moments, along, across))
    weights = np.array([1 - share, share, (1 - share) * (width - 1), share * (width - 1)])
    spent = float(weights @ np.concatenate((along[0], across[0])))
    assert spent == pytest.approx(power, rel=1e-4)

    def divergence(x: np.ndarray) -> float:
        a, b = torch.tensor(x[None, :2]), torch.tensor(x[None, 2:])
        return float(symmetric_divergence(moments, a, b))

    best = minimize(
        divergence,
        np.full(4, power / weights.sum()),
        bounds=[(0, None)] * 4,
        constraints=[{"type": "ineq", "fun": lambda x: power - weights @ x}],
        method="SLSQP",
    )
    assert found <= best.fun * 1.01


def gradients(replicas: int, rows: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of two classes that norms and directions tell apart."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(replicas, rows, generator=generator) < 0.2).long()
    along = torch.zeros(width).index_fill(0, torch.tensor([0]), 1.0)
    signs = torch.where(labels == 1, -4.0, 1.0).unsqueeze(-1)
    return labels, signs * along + 0.1 * torch.randn(replicas, rows, width, generator=generator)


def auc(scores: torch.Tensor, labels: torch.Tensor) -> float:
    positive, negative = scores[labels == 1], scores[labels == 0]
    wins = (positive[:, None] > negative).double() + 0.5 * (positive[:, None] == negative)
    return float(wins.mean())


def test_it_hides_the_classes_from_norms_and_directions():
    """Margin: the areas are 0.52 and 0.60 of 1,000 records, whose standard error is 0.02."""
    labels, values = gradients(1, 1000, 8)
    guard = Marvell(power=16.0).guard(Stream.of(0, "defence", [0], torch.device("cpu")))
    exchange = Exchange(round=0, party=0, labels=labels, received={})
    noised = guard.protect(values, exchange).values[0]
    assert auc(values[0].norm(dim=-1), labels[0]) == pytest.approx(1.0)
    assert abs(auc(noised.norm(dim=-1), labels[0]) - 0.5) < 0.15
    assert auc(-values[0, :, 0], labels[0]) == pytest.approx(1.0)
    assert auc(-noised[:, 0], labels[0]) < 0.75
    spent = (noised - values[0]).square().sum(-1).mean()
    assert float(spent) == pytest.approx(16.0 * 25.0, rel=0.15), "s times the squared distance of the means"


def test_a_batch_of_one_class_is_sent_as_it_is():
    _, values = gradients(2, 5, 3)
    guard = Marvell().guard(Stream.of(0, "defence", [0, 1], torch.device("cpu")))
    exchange = Exchange(round=0, party=0, labels=torch.ones(2, 5, dtype=torch.int64), received={})
    assert torch.equal(guard.protect(values, exchange).values, values)
