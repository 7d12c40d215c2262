"""`assert_private`: sound trainings pass with the ε of their noise, broken ones fail with the line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from vflpriv.core.budgets import epsilon_of
from vflpriv.testing import assert_private

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()
CLIP, ROUNDS = 0.1, 2
SCRIPTS = Path(__file__).parents[1] / "zoo" / "scripts"


def training(std, *, learns=False):
    """Two parties and a server, whose gradients are clipped and noised by a hook."""

    def protect(gradient):
        clipped = gradient * (CLIP / gradient.norm(dim=1, keepdim=True).clamp(min=1e-9)).clamp(max=1)
        return clipped + std * torch.randn_like(gradient) if std else clipped

    def train(wire):
        bottoms, top = [nn.Linear(3, 2), nn.Linear(3, 2)], nn.Linear(4, 2)
        parameters = [p for model in (*bottoms, *([top] if learns else [])) for p in model.parameters()]
        optimiser = torch.optim.SGD(parameters, lr=0.1)
        wire.watch(bottoms)
        for ids in torch.arange(40).split(40 // ROUNDS):
            wire.batch(ids)
            sent = [bottom(part) for bottom, part in zip(bottoms, X[ids].chunk(2, 1), strict=True)]
            for embedding in sent:
                embedding.register_hook(protect)
            optimiser.zero_grad()
            nn.functional.cross_entropy(top(torch.cat(sent, 1)), Y[ids]).backward()
            optimiser.step()

    return train


def check(train, epsilon=1.0, **options):
    return assert_private(train, labels=Y, devices=2, classes=2, epsilon=epsilon, **options)


def test_a_sound_training_has_the_epsilon_of_its_noise():
    before = Y.clone()
    accounted = check(training(1.0), epsilon=2.0)
    assert accounted == pytest.approx(epsilon_of(2 * CLIP * math.sqrt(2), 1e-5), rel=1e-6)
    assert torch.equal(Y, before)


def test_gradients_without_noise_fail_with_their_line():
    with pytest.raises(AssertionError, match=r"test_private\.py:\d+: embedding-gradient leaves without noise"):
        check(training(0.0))


@pytest.mark.slow
def test_too_little_noise_fails_with_the_noise_that_is_needed():
    with pytest.raises(AssertionError, match=r"(?s)ε <= 1 at δ = 1e-05.*noise of std .* instead of 0\.1"):
        check(training(0.1))


@pytest.mark.slow
def test_a_server_that_learns_from_labels_costs_more():
    frozen, learning = (check(training(1.0, learns=learns), epsilon=50.0) for learns in (False, True))
    assert learning > 2 * frozen


@pytest.mark.slow
def test_scripts_are_asserted_about_by_their_path():
    assert 1 < assert_private(SCRIPTS / "hook_noise.py", epsilon=2.0) < 2
    with pytest.raises(AssertionError, match=r"numpy_labels\.py:28: embedding-gradient leaves without noise"):
        assert_private(str(SCRIPTS / "numpy_labels.py"), epsilon=8.0)
    with pytest.raises(AssertionError, match=r"nothing bounds it: noise_by_loss\.py:25"):
        assert_private(SCRIPTS / "noise_by_loss.py", epsilon=80.0, rounds=1)
