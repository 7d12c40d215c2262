"""Local steps of a device: fused passes equal autograd, in every order of models and steps."""

from __future__ import annotations

import pytest
import torch

from vflpriv.common.random import Stream
from vflpriv.training.models import mlp
from vflpriv.training.models.base import Mlp, initialise
from vflpriv.training.models.local_steps import local_steps
from vflpriv.training.models.mlp import FusedMlp

STREAM = Stream.of(0, "init", range(6), torch.device("cpu"))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("cache", "together"), [(1, False), (1, True), (1 << 20, False)])
def test_local_steps_equal_those_of_autograd(monkeypatch, momentum, cache, together):
    """One model at a time with all its steps, or all models step by step: the same as a plain model's."""
    monkeypatch.setattr(mlp, "_CACHE", cache)
    inputs = torch.randn(6, 9, 7, generator=torch.Generator().manual_seed(1))
    target = torch.linspace(-1, 1, 6 * 9 * 36).reshape(6, 9, 36)
    results = []
    for kind in (FusedMlp, Mlp):
        model = kind((7, 70, 36), activate=True)
        parameters = initialise(model, STREAM, 0)
        velocity = {name: torch.zeros_like(value) for name, value in parameters.items()} if momentum else {}
        local_steps(
            model,
            parameters,
            velocity,
            inputs,
            lambda rows, step, out: (out - target[rows]) * (1 + step),
            steps=3,
            rate=0.01,
            momentum=momentum,
            weight_decay=0.1,
            together=together,
        )
        results.append((*parameters.values(), *velocity.values()))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert not torch.equal(results[0][0], initialise(Mlp((7, 70, 36), activate=True), STREAM, 0)["weight0"])
