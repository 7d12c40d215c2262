"""Outputs near a point are those of whole passes at the moved point, whatever products they share."""

from __future__ import annotations

import pytest
import torch

from vflpriv.common.random import Stream
from vflpriv.training.models.base import Mlp, initialise
from vflpriv.training.models.directions import Directions
from vflpriv.training.models.heads import Linear, Sum
from vflpriv.training.models.nearby import Change, Shift, nearby

CPU = torch.device("cpu")
REPLICAS, BATCH, STEP = 3, 5, 0.3
MODELS = {
    "linear": Mlp([6, 4], activate=False),
    "activated": Mlp([6, 4], activate=True),
    "wide": Mlp([6, 40], activate=True),
    "deep": Mlp([6, 7, 5, 4], activate=False),
    "deep and wide": Mlp([6, 40, 33, 4], activate=False),
    "deep and activated": Mlp([6, 7, 4], activate=True),
    "without bias": Linear(6, 4),
}
COLUMNS = slice(2, 4)


@pytest.fixture(params=list(MODELS))
def model(request):
    return MODELS[request.param]


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def point(model, *, shared=False, lean=False, law="root-sphere"):
    """Parameters, inputs and a direction."""
    parameters = initialise(model, Stream.of(0, "init", range(REPLICAS), CPU), 0)
    stream = Stream.of(0, "directions", range(REPLICAS), CPU)
    direction = Directions(stream, [model], (0,) * 8, lean=lean, law=law).at(1, 0)
    inputs = normal(BATCH, 6) if shared else normal(REPLICAS, BATCH, 6)
    return parameters, inputs, direction


def moved(model, parameters, inputs, direction, *, shift=0.0, change=None):
    """One whole pass, (R, k, B)."""
    weights = {name: value + shift * direction[name] for name, value in parameters.items()}
    rows = inputs.expand(REPLICAS, BATCH, 6).clone()
    if change is not None:
        rows[..., COLUMNS] += change
    return model.apply(weights, rows).transpose(1, 2)


@pytest.mark.parametrize("law", ["root-sphere", "sphere", "gaussian"])
@pytest.mark.parametrize("lean", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_outputs_along_a_direction(model, shared, lean, law):
    parameters, inputs, direction = point(model, shared=shared, lean=lean, law=law)
    outputs, shift = nearby(model, parameters, inputs), Shift(direction, STEP)
    here, plus, minus = (moved(model, parameters, inputs, direction, shift=s) for s in (0, STEP, -STEP))
    torch.testing.assert_close(outputs.ahead(shift), plus)
    for found, expected in zip(outputs.either_side(shift), (plus, minus), strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(outputs.here(), here)


@pytest.mark.parametrize("shift", [0.0, STEP])
def test_outputs_where_some_columns_and_the_parameters_move(model, shift):
    parameters, inputs, direction = point(model)
    change = normal(REPLICAS, BATCH, 2, seed=1)
    outputs, by = nearby(model, parameters, inputs), Shift(direction, shift) if shift else None
    expected = [moved(model, parameters, inputs, direction, shift=s * shift, change=s * change) for s in (1, -1)]
    torch.testing.assert_close(outputs.ahead(by, Change(COLUMNS, change)), expected[0])
    for found, whole in zip(outputs.either_side(by, Change(COLUMNS, change)), expected, strict=True):
        torch.testing.assert_close(found, whole)
    torch.testing.assert_close(outputs.here(), moved(model, parameters, inputs, direction))


def test_the_gradient_is_that_of_autograd(model):
    parameters, inputs, _ = point(model)
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    model.apply(leaves, inputs).square().sum().backward()
    found = nearby(model, parameters, inputs).gradient(lambda outputs: 2 * outputs)
    assert set(found) == set(leaves)
    for name, leaf in leaves.items():
        torch.testing.assert_close(found[name], leaf.grad)


def test_summed_logits_move_with_one_device():
    model, inputs, change = Sum(8, 2), normal(REPLICAS, BATCH, 8), normal(REPLICAS, BATCH, 2, seed=1)
    outputs = nearby(model, {}, inputs)
    expected = inputs.unflatten(2, (4, 2)).sum(2)
    torch.testing.assert_close(outputs.here().transpose(1, 2), expected)
    torch.testing.assert_close(outputs.ahead(change=Change(COLUMNS, change)).transpose(1, 2), expected + change)


def test_a_point_that_does_not_move_is_refused():
    parameters, inputs, _ = point(MODELS["linear"])
    with pytest.raises(ValueError, match="a shift of the parameters or a change"):
        nearby(MODELS["linear"], parameters, inputs).ahead()
