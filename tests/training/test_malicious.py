"""The malicious optimiser: enlarged steps, and momentum that stays that of the honest optimiser."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from tests.support import make_system
from vflpriv.core.attack import Conduct
from vflpriv.core.wire import Wire
from vflpriv.training.malicious import Amplifier
from vflpriv.training.models.base import descend

MALICIOUS = Conduct(name="malicious-optimiser", gain=1.0)


def steps(count: int, momentum: float, rate: float = 0.5) -> list[float]:
    """The steps, divided by the learning rate, when every gradient is one."""
    parameters, velocity = {"w": torch.zeros(1, 1, dtype=torch.float64)}, {}
    amplifier, lengths = Amplifier(1.0, rate), []
    for _ in range(count):
        before = parameters["w"].clone()
        amplifier.before(parameters)
        gradient = {"w": torch.ones(1, 1, dtype=torch.float64)}
        descend(parameters, gradient, rate=rate, momentum=momentum, velocity=velocity)
        amplifier.after(parameters)
        lengths.append(float(before - parameters["w"]) / rate)
    return lengths


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
