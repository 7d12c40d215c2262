"""Passes and the steps that follow them: those of MLPs equal autograd, in every order of models and steps."""

from __future__ import annotations

import pytest
import torch

from vflpriv.common.random import Stream
from vflpriv.training.models import layers
from vflpriv.training.models.base import Mlp, initialise
from vflpriv.training.models.mlp import FusedMlp
from vflpriv.training.models.passes import Sgd, constant, start

STREAM = Stream.of(0, "init", range(6), torch.device("cpu"))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("cache", "together"), [(1, False), (1, True), (1 << 20, False)])
def test_local_steps_equal_those_of_autograd(monkeypatch, momentum, cache, together):
    """One model at a time with all its steps, or all models step by step: the same as a plain model's."""
    monkeypatch.setattr(layers, "_CACHE", cache)
    inputs = torch.randn(6, 9, 7, generator=torch.Generator().manual_seed(1))
    target = torch.linspace(-1, 1, 6 * 9 * 36).reshape(6, 9, 36)
    results = []
    for kind in (FusedMlp, Mlp):
        model = kind((7, 70, 36), activate=True)
        parameters = initialise(model, STREAM, 0)
        velocity = {name: torch.zeros_like(value) for name, value in parameters.items()} if momentum else {}
        own = start(model, parameters, inputs)
        sent = own.outputs.clone()
        sgd = Sgd(rate=0.01, momentum=momentum, weight_decay=0.1)
        own.descend(
            lambda rows, step, out: (out - target[rows]) * (1 + step), velocity, sgd, steps=3, together=together
        )
        if kind is FusedMlp:
            assert torch.equal(own.outputs, sent), "what was sent is not overwritten by later steps"
        results.append((*parameters.values(), *velocity.values()))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert not torch.equal(results[0][0], initialise(Mlp((7, 70, 36), activate=True), STREAM, 0)["weight0"])


@pytest.mark.parametrize("widths", [(7, 3), (7, 40, 10)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_returns_the_gradient_of_the_inputs_before_it(widths, momentum):
    inputs, generator = torch.randn(6, 9, 7), torch.Generator().manual_seed(2)
    gradients = [torch.randn(6, 9, widths[-1], generator=generator) for _ in range(2)]
    results = []
    for kind in (FusedMlp, Mlp):
        model = kind(widths, activate=False)
        parameters, velocity, found = initialise(model, STREAM, 0), {}, []
        for gradient in gradients:
            own = start(model, parameters, inputs, fixed=False)
            found.append(own.descend_and_return(gradient, velocity, Sgd(rate=0.1, momentum=momentum)))
        after = start(model, parameters, inputs, learn=False, fixed=False)
        found.append(after.by_inputs(gradients[0]))
        assert bool(velocity) == bool(momentum)
        results.append((*found, *parameters.values(), *velocity.values()))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_a_constant_slope_is_that_of_the_models_asked_for():
    gradient = torch.randn(6, 4, 3)
    assert torch.equal(constant(gradient)(slice(2, 5), 1, torch.zeros(3, 4, 3)), gradient[2:5])
