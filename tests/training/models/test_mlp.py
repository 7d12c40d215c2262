"""MLPs with a replica axis equal plain torch modules, and fused passes equal autograd."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vflpriv.common.random import Stream
from vflpriv.training.models import layers
from vflpriv.training.models.base import Mlp, initialise
from vflpriv.training.models.mlp import FusedMlp

STREAM = Stream.of(0, "init", range(6), torch.device("cpu"))


def test_mlp_equals_a_plain_module_for_each_replica():
    model = Mlp([5, 4, 3], activate=True)
    parameters = initialise(model, Stream.of(0, "init", range(3), torch.device("cpu")), 0)
    for inputs in (torch.randn(6, 5), torch.randn(3, 6, 5)):
        outputs = model.apply(parameters, inputs)
        for r in range(3):
            plain = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU())
            with torch.no_grad():
                for i, layer in enumerate((plain[0], plain[2])):
                    layer.weight.copy_(parameters[f"weight{i}"][r].T)
                    layer.bias.copy_(parameters[f"bias{i}"][r])
            batch = inputs if inputs.dim() == 2 else inputs[r]
            torch.testing.assert_close(outputs[r], plain(batch))


def leaves(model):
    return {n: v.clone().requires_grad_() for n, v in initialise(model, STREAM, 0).items()}


@pytest.mark.parametrize("widths", [(5, 3), (5, 40), (7, 50, 4), (7, 6, 50), (7, 40, 36, 33), (7, 5, 4, 3)])
@pytest.mark.parametrize("activate", [False, True])
@pytest.mark.parametrize("cache", [1, 20_000, 1 << 20])
def test_fused_passes_equal_autograd(monkeypatch, widths, activate, cache):
    """Narrow and wide layers in every order; one model at a time, two, and all at once."""
    monkeypatch.setattr(layers, "_CACHE", cache)
    fused, plain = FusedMlp(widths, activate=activate), Mlp(widths, activate=activate)
    inputs = torch.randn(6, 9, widths[0], generator=torch.Generator().manual_seed(1))
    results = []
    for model in (fused, plain):
        parameters, x = leaves(model), inputs.clone().requires_grad_()
        out = model.apply(parameters, x)
        weights = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
        results.append((out, *torch.autograd.grad((out * weights).sum(), [x, *parameters.values()])))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_only_the_needed_gradients_are_computed():
    model = FusedMlp((5, 40, 3), activate=False)
    fixed = {n: v.detach() for n, v in leaves(model).items()}
    x = torch.randn(6, 4, 5).requires_grad_()
    (gradient,) = torch.autograd.grad(model.apply(fixed, x).sum(), [x])
    (expected,) = torch.autograd.grad(Mlp((5, 40, 3), activate=False).apply(fixed, x).sum(), [x])
    torch.testing.assert_close(gradient, expected)
    with torch.no_grad():
        assert model.apply(fixed, x).grad_fn is None


def test_two_passes_at_once_do_not_share_memory_and_outputs_are_never_overwritten():
    model, plain = FusedMlp((5, 40, 36), activate=True), Mlp((5, 40, 36), activate=True)
    parameters = leaves(model)
    a, b = torch.randn(6, 4, 5), torch.randn(6, 4, 5)
    first, second = model.apply(parameters, a), model.apply(parameters, b)
    kept = first.detach().clone()
    for out, x in ((first, a), (second, b)):
        gradients = torch.autograd.grad(out.sum(), list(parameters.values()))
        expected = torch.autograd.grad(plain.apply(parameters, x).sum(), list(parameters.values()))
        for g, e in zip(gradients, expected, strict=True):
            torch.testing.assert_close(g, e, atol=1e-5, rtol=1e-4)
    model.apply(parameters, b)
    assert torch.equal(first.detach(), kept)
