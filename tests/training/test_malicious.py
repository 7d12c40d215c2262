"""The malicious optimiser: enlarged steps, and momentum that stays that of the honest optimiser."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from tests.support import make_system
from vflpriv.core.attack import Conduct
from vflpriv.core.wire import Wire
from vflpriv.training.malicious import (
    Amplifier,
    CompoundingAmplifier,
    MomentumLosingAmplifier,
    amplifier_of,
)
from vflpriv.training.models.base import descend

MALICIOUS = Conduct(name="malicious-optimiser", gain=1.0)
COMPOUNDING = Conduct(name="compounding-optimiser", gain=1.0, momentum="compounding")
LOSING = Conduct(name="losing-optimiser", gain=1.0, momentum="lost")


def steps(count: int, momentum: float, rate: float = 0.5, conduct: Conduct = MALICIOUS) -> list[float]:
    """The steps, divided by the learning rate, when every gradient is one."""
    parameters, velocity = {"w": torch.zeros(1, 1, dtype=torch.float64)}, {}
    amplifier, lengths = amplifier_of(conduct, rate, momentum), []
    for _ in range(count):
        before = parameters["w"].clone()
        amplifier.before(parameters)
        gradient = {"w": torch.ones(1, 1, dtype=torch.float64)}
        descend(parameters, gradient, rate=rate, momentum=momentum, velocity=velocity)
        amplifier.after(parameters)
        lengths.append(float(before - parameters["w"]) / rate)
    return lengths


class AliasingSgd(torch.optim.Optimizer):
    """A plain reference of the authors' algorithm: the scaled momentum buffer is both the gradient and `last`."""

    def __init__(self, params, *, lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                p.grad.add_(p, alpha=group["weight_decay"])
                if group["momentum"]:
                    if "buffer" in state:
                        state["buffer"].mul_(group["momentum"]).add_(p.grad)
                    else:
                        state["buffer"] = p.grad.clone()
                    p.grad.data = state["buffer"]
                if "last" in state:
                    p.grad.mul_((1 + p.grad / (state["last"] + 1e-7)).clamp(1.0, 5.0))
                state["last"] = p.grad.clone()
                p.sub_(p.grad, alpha=group["lr"])


def slopes_at(w: torch.Tensor, t: int) -> torch.Tensor:
    """Gradients that depend on the parameters and change their signs."""
    return torch.cos(3 * w + t) + 0.1 * w


def by_reference(count: int, *, to_none: bool, **settings: float) -> list[torch.Tensor]:
    """The parameters after each step of the reference on `slopes_at`; gradients are dropped or overwritten by zeros."""
    w = torch.linspace(-1, 1, 7, dtype=torch.float64).requires_grad_()
    optimiser, path = AliasingSgd([w], **settings), []
    for t in range(count):
        optimiser.zero_grad(set_to_none=to_none)
        (w * slopes_at(w.detach(), t)).sum().backward()
        optimiser.step()
        path.append(w.detach().clone())
    return path


def by_amplifier(count: int, amplifier: Amplifier, *, lr: float, momentum: float, weight_decay: float):
    """The parameters after each step of an honest optimiser on `slopes_at` with this amplifier around it."""
    parameters = {"w": torch.linspace(-1, 1, 7, dtype=torch.float64).unsqueeze(0)}
    velocity, path = {}, []
    for t in range(count):
        gradient = {"w": slopes_at(parameters["w"], t)}
        amplifier.before(parameters)
        descend(parameters, gradient, rate=lr, momentum=momentum, velocity=velocity, weight_decay=weight_decay)
        amplifier.after(parameters)
        path.append(parameters["w"][0].clone())
    return path


def test_the_scale_does_not_enter_the_momentum():
    """v = 1, 1.9, 2.71, 3.439; r = 1, 2.9, 1 + 2.71/1.9, …. With an aliased buffer it would be 1, 5.5, 12.4, 24.1."""
    v = [1.0, 1.9, 2.71, 3.439]
    expected = [1.0] + [b * (1 + b / a) for a, b in pairwise(v)]
    assert steps(4, 0.9) == pytest.approx(expected, rel=1e-5)


def test_the_scale_lies_between_one_and_five():
    amplifier, w = Amplifier(1.0, 1.0), {"w": torch.zeros(3)}
    for target in (torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-101.0, 0.0, -1.5])):
        amplifier.before(w)
        w["w"].copy_(target)
        amplifier.after(w)
    # Steps of 100, -1 and 0.5 after steps of 1: five times, once, and one and a half times as long.
    assert torch.allclose(w["w"], torch.tensor([-1 - 500.0, 0.0, -1 - 0.75]), rtol=1e-4)


@pytest.mark.parametrize("variant", ["split-concat", "fedbcd", "vafl-concat", "vimadmm", "zoo-vfl"])
def test_a_malicious_device_moves_farther_in_every_kind_of_engine(variant):
    honest, malicious = make_system(variant).train([0]), make_system(variant).train([0], conducts={0: MALICIOUS})
    start = [malicious.belongings(m).initial for m in range(3)]
    for engine in (honest, malicious):
        engine.run(Wire())
    distances = [
        sum(float((e.bank.parameters[0][n] - v).norm()) for n, v in start[0].items()) for e in (honest, malicious)
    ]
    assert distances[1] > distances[0]
    assert malicious.belongings(0).conduct == "malicious-optimiser"
    assert malicious.belongings(1).conduct == "honest"


def test_the_first_step_is_honest():
    systems = [make_system("split-concat", rounds=1).train([0], conducts=c) for c in (None, {0: MALICIOUS})]
    for engine in systems:
        engine.run(Wire())
    for name, value in systems[0].bank.parameters[0].items():
        assert torch.equal(value, systems[1].bank.parameters[0][name])


SETTINGS = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}


def test_with_the_authors_code_the_scale_compounds():
    assert steps(6, 0.9, conduct=COMPOUNDING) == pytest.approx([1.0, 5.51, 12.404, 24.091, 44.037, 78.125], rel=1e-3)


@pytest.mark.parametrize(("momentum", "grows"), [(0.9, True), (0.62, True), (0.61, False), (0.5, False)])
def test_whether_compounding_steps_outgrow_all_gradients_depends_on_the_momentum(momentum, grows):
    """m (1 + γ m) is by how much the buffer grows in a step where the gradient is zero."""
    amplifier, w = CompoundingAmplifier(1.0, 1.0, momentum), {"w": torch.zeros(1, dtype=torch.float64)}
    velocity, lengths = {}, []
    for gradient in [1.0, 1.0] + 20 * [0.0]:
        before = w["w"].clone()
        amplifier.before(w)
        descend(w, {"w": torch.full_like(before, gradient)}, rate=1.0, momentum=momentum, velocity=velocity)
        amplifier.after(w)
        lengths.append(float(before - w["w"]))
    assert (lengths[-1] > lengths[-10]) == grows
    assert lengths[3] / lengths[2] == pytest.approx(momentum * (1 + momentum), rel=1e-4)


@pytest.mark.parametrize("momentum", [0.9, 0.0])
@pytest.mark.parametrize("to_none", [True, False], ids=["PyTorch 2.0", "PyTorch 1.7"])
def test_steps_are_those_of_the_authors_algorithm(to_none, momentum):
    settings = {**SETTINGS, "momentum": momentum}
    expected = by_reference(12, to_none=to_none, **settings)
    kind = CompoundingAmplifier if to_none else MomentumLosingAmplifier
    found = by_amplifier(12, kind(1.0, settings["lr"], momentum), **settings)
    formula = by_amplifier(12, Amplifier(1.0, settings["lr"]), **settings)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-9)
    assert not torch.allclose(formula[-1], expected[-1], rtol=1e-2)


def test_engines_train_with_each_conduct():
    engines = [
        make_system("split-concat", momentum=0.9, device_rate=0.01).train([0, 1], conducts=conducts)
        for conducts in (None, {0: MALICIOUS}, {0: COMPOUNDING}, {0: LOSING})
    ]
    start = {name: value.clone() for name, value in engines[0].bank.parameters[0].items()}
    for engine in engines:
        engine.run(Wire())
    moved = [sum(float((v - start[n]).norm()) for n, v in e.bank.parameters[0].items()) for e in engines]
    assert moved[0] < moved[1] < moved[2]
    assert moved[0] != moved[3] != moved[1]
    assert engines[2].belongings(0).conduct == "compounding-optimiser"
