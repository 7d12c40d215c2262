"""Adam on one vector: the steps of torch's Adam, for each tensor at its own rate."""

from __future__ import annotations

import torch

from vflpriv.attacks.label.trained._adam import Adam, FlatAdam, padding


def test_its_steps_are_those_of_torch():
    # The first one is transposed in memory, as the parameters of narrow layers are.
    start = [torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).T, torch.ones(7)]
    ours, theirs = ([t.clone().requires_grad_() for t in start] for _ in range(2))
    flat = FlatAdam(ours, [0.1, 0.02])
    adam = torch.optim.Adam([{"params": [theirs[0]], "lr": 0.1}, {"params": [theirs[1]], "lr": 0.02}])
    for _ in range(20):
        flat.step(ours[0].pow(4).sum() + ours[1].sin().sum())
        adam.zero_grad()
        (theirs[0].pow(4).sum() + theirs[1].sin().sum()).backward()
        adam.step()
    for a, b, before in zip(ours, theirs, start, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
        assert not torch.allclose(a, before, atol=1e-2)


def test_elements_may_have_rates_of_their_own_and_a_slope_stands_for_a_loss():
    ours, theirs = ([torch.ones(2, 3).requires_grad_()] for _ in range(2))
    flat, slope = FlatAdam(ours, [torch.tensor([[0.1], [0.0]])]), torch.full((2, 3), 0.5)
    same = FlatAdam(theirs, [0.1])
    flat.step(ours[0].square(), slope)
    same.step((theirs[0].square() * slope).sum())
    assert torch.equal(ours[0][0], theirs[0][0])
    assert torch.equal(ours[0][1].detach(), torch.ones(3))


def test_the_tensors_are_views_of_the_vector():
    tensor = torch.ones(3, requires_grad=True)
    flat = FlatAdam([tensor], [0.1])
    flat.values.mul_(2)
    assert torch.equal(tensor.detach(), torch.full((3,), 2.0))
    assert len(flat.values) == 3 + padding(3) == 64


def test_replicas_that_are_kept_go_on_as_before():
    gradients = torch.randn(6, 3, 8, generator=torch.Generator().manual_seed(0))
    all_, some = (Adam(torch.zeros(3, 8), 0.1) for _ in range(2))
    for step, gradient in enumerate(gradients):
        all_.step(gradient)
        some.step(gradient if step < 3 else gradient[[0, 2]])
        if step == 2:
            some.keep(torch.tensor([0, 2]))
    assert torch.equal(some.values, all_.values[[0, 2]])
