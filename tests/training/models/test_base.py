"""Initial parameters, and torch modules as models with a replica axis."""

from __future__ import annotations

import torch
from torch import nn

from vflpriv.common.random import Stream
from vflpriv.training.models.base import Mlp, initialise
from vflpriv.training.models.modules import ModuleModel

CPU = torch.device("cpu")


def test_a_module_with_a_replica_axis_equals_the_plain_module():
    module = nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 2 * 2, 3)
    )
    model = ModuleModel(module, inputs=16, key=())
    parameters = initialise(model, Stream.of(0, "init", range(3), CPU), 0)
    images = torch.randn(5, 16)
    outputs = model.apply(parameters, images)
    for r in range(3):
        with torch.no_grad():
            for name, value in module.named_parameters():
                value.copy_(parameters[name][r])
        torch.testing.assert_close(outputs[r], module(images))
    separate = model.apply(parameters, images.expand(3, *images.shape))
    torch.testing.assert_close(separate, outputs)


def test_initial_weights_fill_the_range_that_torch_uses():
    model = Mlp([16, 400], activate=False)
    weights = initialise(model, Stream.of(0, "init", [0], CPU), 0)["weight0"]
    assert weights.abs().max() <= 0.25
    assert weights.abs().max() > 0.249
    assert abs(float(weights.mean())) < 0.01
