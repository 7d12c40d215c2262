"""The fused passes and the bank against plain autograd, one model at a time."""

from __future__ import annotations

import pytest
import torch

from tests.support import toy_data
from vflpriv.common.random import Stream
from vflpriv.training.models import fused as _fused
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.fused import FusedMlp
from vflpriv.training.models.local_steps import local_steps
from vflpriv.training.models.networks import Mlp, initialise

STREAM = Stream.of(0, "init", range(6), torch.device("cpu"))


def leaves(model):
    return {n: v.clone().requires_grad_() for n, v in initialise(model, STREAM, 0).items()}


@pytest.mark.parametrize("widths", [(5, 3), (5, 40), (7, 50, 4), (7, 6, 50), (7, 40, 36, 33), (7, 5, 4, 3)])
@pytest.mark.parametrize("activate", [False, True])
@pytest.mark.parametrize("cache", [1, 20_000, 1 << 20])
def test_the_fused_passes_are_those_of_autograd(monkeypatch, widths, activate, cache):
    """Narrow and wide layers in every order; one model at a time, two, and all at once."""
    monkeypatch.setattr(_fused, "_CACHE", cache)
    fused, plain = FusedMlp(widths, activate=activate), Mlp(widths, activate=activate)
    inputs = torch.randn(6, 9, widths[0], generator=torch.Generator().manual_seed(1))
    found = []
    for model in (fused, plain):
        own, x = leaves(model), inputs.clone().requires_grad_()
        out = model.apply(own, x)
        weights = torch.linspace(-1, 1, out.numel()).reshape(out.shape)
        found.append((out, *torch.autograd.grad((out * weights).sum(), [x, *own.values()])))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_only_what_is_asked_for_is_computed():
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
    own = leaves(model)
    a, b = torch.randn(6, 4, 5), torch.randn(6, 4, 5)
    first, second = model.apply(own, a), model.apply(own, b)
    kept = first.detach().clone()
    for out, x in ((first, a), (second, b)):
        found = torch.autograd.grad(out.sum(), list(own.values()))
        expected = torch.autograd.grad(plain.apply(own, x).sum(), list(own.values()))
        for g, e in zip(found, expected, strict=True):
            torch.testing.assert_close(g, e, atol=1e-5, rtol=1e-4)
    model.apply(own, b)
    assert torch.equal(first.detach(), kept)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_part_of_a_bank_moves_its_own_devices_and_keeps_their_velocity(momentum):
    data = toy_data()
    models = [FusedMlp((5, w, 4), activate=True) for w in (6, 6, 7, 6)]
    whole = Bank(models, STREAM)
    reference = [{n: v.clone() for n, v in p.items()} for p in whole.parameters]
    velocity = [dict.fromkeys(p, 0.0) for p in reference]
    records, blocks = torch.arange(10), [0, 1, 2, 0]
    data = data.__class__(**{**vars(data), "blocks": tuple(data.blocks[k] for k in blocks)})
    assert whole.groups == [[0, 1, 3], [2]]
    for members in ([0, 3], [2], [1, 2, 3], [0, 1, 2, 3], [3]):
        part = whole.part(members)
        own = part.leaves()
        outputs = part.outputs(part.inputs(data, records), own)
        gradients = part.backward(outputs, own, [torch.ones_like(out) for out in outputs])
        part.descend(gradients, rate=0.1, momentum=momentum, weight_decay=0.01)
        for m in members:
            w = {n: v.clone().requires_grad_() for n, v in reference[m].items()}
            out = Mlp(models[m].widths, activate=True).apply(w, data.blocks[m][records].expand(6, -1, -1))
            for (n, v), g in zip(w.items(), torch.autograd.grad(out.sum(), list(w.values())), strict=True):
                velocity[m][n] = momentum * velocity[m][n] + g + 0.01 * v.detach()
                reference[m][n] = v.detach() - 0.1 * velocity[m][n]
        for found, expected in zip(whole.parameters, reference, strict=True):
            for n, v in expected.items():
                torch.testing.assert_close(found[n], v, atol=1e-5, rtol=1e-4)
    assert whole.part([0, 1, 2, 3]) is whole


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(("cache", "together"), [(1, False), (1, True), (1 << 20, False)])
def test_local_steps_are_those_of_autograd(monkeypatch, momentum, cache, together):
    """One model at a time with all its steps, or all models step by step: the same as a plain model's."""
    monkeypatch.setattr(_fused, "_CACHE", cache)
    inputs = torch.randn(6, 9, 7, generator=torch.Generator().manual_seed(1))
    target = torch.linspace(-1, 1, 6 * 9 * 36).reshape(6, 9, 36)
    found = []
    for kind in (FusedMlp, Mlp):
        model = kind((7, 70, 36), activate=True)
        own = initialise(model, STREAM, 0)
        velocity = {name: torch.zeros_like(value) for name, value in own.items()} if momentum else {}
        local_steps(
            model,
            own,
            velocity,
            inputs,
            lambda rows, step, out: (out - target[rows]) * (1 + step),
            steps=3,
            rate=0.01,
            momentum=momentum,
            weight_decay=0.1,
            together=together,
        )
        found.append((*own.values(), *velocity.values()))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert not torch.equal(found[0][0], initialise(Mlp((7, 70, 36), activate=True), STREAM, 0)["weight0"])
