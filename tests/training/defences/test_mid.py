"""MID: the server's layer is trained, narrows what passes, and gradients go back through it."""

from __future__ import annotations

import pytest
import torch

from tests.support import make_system
from vflpriv.common.random import Stream
from vflpriv.core.wire import Wire
from vflpriv.training.defence import Exchange
from vflpriv.training.defences.mid import MutualInformation, divergence


def guard(**strengths: float):
    return MutualInformation(**strengths).guard(Stream.of(0, "defence", [0, 1], torch.device("cpu")))


def test_the_divergence_is_that_of_normals():
    mean, deviation = torch.tensor([[[1.0, -2.0], [0.0, 0.5]]]), torch.tensor([[[0.5, 2.0], [1.0, 0.1]]])
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(normal(mean, deviation), normal(0.0, 1.0)).sum((1, 2)) / 2
    torch.testing.assert_close(divergence(mean, deviation), expected)


def test_what_is_sent_is_the_gradient_through_the_layer():
    """Against finite differences of Σ slope · T + weight · KL, with the same noise."""
    values, slope = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0)), torch.ones(2, 5, 3)

    def objective(shifted: torch.Tensor) -> torch.Tensor:
        fresh = guard(weight=0.5)
        outputs = fresh.received(shifted, 7, 1)
        return (outputs * slope).sum((1, 2)) + fresh._passed[1].penalty.detach()

    one = guard(weight=0.5)
    one.received(values, 7, 1)
    exchange = Exchange(round=7, party=1, labels=torch.zeros(2, 5, dtype=torch.int64), received={})
    sent = one.protect(slope, exchange).values
    step = torch.zeros_like(values)
    step[:, 2, 1] = 1e-2
    numeric = (objective(values + step) - objective(values - step)) / 2e-2
    torch.testing.assert_close(sent[:, 2, 1], numeric, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize(("variant", "rounds", "least"), [("split-concat", 250, 0.8), ("vafl-weighted", 12, 0.0)])
def test_the_layer_is_trained_and_predictions_pass_it(variant, rounds, least):
    """VAFL's devices are asked for old records too, which pass the layer without a way back."""
    strengths = {"name": "mid", "weight": 0.0, "rate": 0.2}
    engine = make_system(variant, defence=strengths, rounds=rounds, device_rate=0.2, server_rate=0.2).train([0])
    before = {name: value.clone() for name, value in engine.trained().items() if "defence" in name}
    engine.run(Wire())
    after = engine.trained()
    layers = [name for name in after if name.startswith("server.defence.")]
    assert len(layers) == 3 * 6
    assert all(not torch.equal(after[name], before[name]) for name in before)
    # Margin: all records are classified where 0.8 are asked.
    assert float(engine.evaluate().accuracy) >= least


def test_a_large_weight_lets_nothing_pass():
    penalties = {}
    for weight in (0.0, 0.5):
        strengths = {"name": "mid", "weight": weight, "rate": 0.05}
        engine = make_system("split-sum", defence=strengths, rounds=150, device_rate=0.1).train([0])
        engine.run(Wire())
        layer = engine._at_work._layers[0]
        outputs = engine.bank.predict(engine.data.blocks, 1)[0]
        penalties[weight] = float(divergence(*layer.moments(layer.parameters, outputs)))
    assert penalties[0.5] < 0.05 < penalties[0.0]
