"""Batched models equal plain torch modules, replica by replica."""

from __future__ import annotations

import torch
from torch import nn

from tests.support import make_system
from vflpriv.common.random import Stream
from vflpriv.training.models.networks import Mlp, ModuleModel, initialise

CPU = torch.device("cpu")


def test_mlp_equals_a_plain_module_for_each_replica():
    model = Mlp([5, 4, 3], activate=True)
    parameters = initialise(model, Stream.of(0, "init", range(3), CPU), 0)
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


def test_any_module_runs_under_vmap():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 2 * 2, 3))
    model = ModuleModel(module)
    parameters = initialise(model, Stream.of(0, "init", range(3), CPU), 0)
    images = torch.randn(5, 1, 4, 4)
    outputs = model.apply(parameters, images)
    for r in range(3):
        with torch.no_grad():
            for name, value in module.named_parameters():
                value.copy_(parameters[name][r])
        torch.testing.assert_close(outputs[r], module(images))
    own = model.apply(parameters, images.expand(3, *images.shape))
    torch.testing.assert_close(own, outputs)


def test_initial_weights_fill_the_range_that_torch_uses():
    model = Mlp([16, 400], activate=False)
    weights = initialise(model, Stream.of(0, "init", [0], CPU), 0)["weight0"]
    assert weights.abs().max() <= 0.25
    assert weights.abs().max() > 0.249
    assert abs(float(weights.mean())) < 0.01


def test_evaluating_some_records_at_a_time_changes_nothing(monkeypatch):
    engine = make_system("split-concat").train((0, 1))
    whole = engine.evaluate()
    monkeypatch.setattr("vflpriv.training.engine._TOGETHER", 7)
    pieces = engine.evaluate()
    torch.testing.assert_close(pieces.loss, whole.loss)
    assert torch.equal(pieces.accuracy, whole.accuracy)
