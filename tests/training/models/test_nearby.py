"""Outputs near a point are those of whole passes at the moved point, whatever products they share."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.training.models import encoders
from tests.training.models.builders import bottom
from vflpriv.common.random import Stream
from vflpriv.training.memory import LiveBytes
from vflpriv.training.models import finite_differences
from vflpriv.training.models.base import Mlp, initialise, size_of
from vflpriv.training.models.finite_differences import Change, Directions, Shift, Velocity, move_along, nearby
from vflpriv.training.models.heads import Linear, Sum
from vflpriv.training.models.modules import ModuleModel

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
    "module": ModuleModel(nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 4)), inputs=6, key=()),
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


def test_the_parameters_come_back_and_equal_replicas_stay_equal(model):
    """To the last bits but a few, and by operations that do not depend on who else is computed."""
    start, inputs, _ = point(model, shared=True)
    rows = inputs.expand(REPLICAS, BATCH, 6)
    ends, outputs = [], []
    for replicas in (range(REPLICAS), [1], [1, 1]):
        direction = Directions(Stream.of(0, "directions", replicas, CPU), [model], None, lean=True).at(1, 0)
        parameters = {name: value[list(replicas)].clone() for name, value in start.items()}
        outputs.append(nearby(model, parameters, rows[: len(replicas)]).either_side(Shift(direction, 1e-3)))
        ends.append(parameters)
    for name, value in start.items():
        torch.testing.assert_close(ends[0][name], value, atol=3 * 2.0**-24, rtol=3 * 2.0**-24)
        assert torch.equal(ends[1][name], ends[0][name][1:2])
    for among, alone, twice in zip(*outputs, strict=True):
        torch.testing.assert_close(alone, among[1:2])
        assert torch.equal(twice[0], twice[1])


def _large(kind, folder, monkeypatch):
    """A model beside which a few records' activations are small, and a batch for it."""
    if kind == "mlp":
        return Mlp([64] * 8, activate=True), normal(9, 64)
    if kind == "resnet18":
        return bottom("resnet18", (3, 4, 4), 8, hidden=(8,)), normal(9, 48)
    for name, size in (("WIDTH", 32), ("INNER", 64), ("WORDS", 2000)):
        monkeypatch.setattr(encoders, name, size)
    encoders.checkpoint(folder)
    tokens = torch.randint(1, 2000, (9, 6), generator=torch.Generator().manual_seed(0))
    return bottom("transformer", (6,), 4, encoder=str(folder), encoder_layers=2, vocabulary=2000), tokens


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("kind", ["mlp", "resnet18", "transformer"])
def test_a_lean_step_needs_next_to_no_memory_beside_the_model(kind, momentum, monkeypatch, tmp_path):
    """Nothing of a direction is held, and no parameter is copied: what is alive at once is a piece and activations."""
    model, batch = _large(kind, tmp_path, monkeypatch)
    monkeypatch.setattr(finite_differences, "_PIECE", size_of(model) // 100)
    parameters = initialise(model, Stream.of(0, "init", [0], CPU), 0)
    source, velocity = Directions(Stream.of(0, "directions", [0], CPU), [model], None, lean=True), Velocity()
    with torch.no_grad(), LiveBytes() as tracker:
        for round_ in range(2):
            direction = source.at(round_, 0)
            plus, minus = nearby(model, parameters, batch).either_side(Shift(direction, 1e-3))
            scalar = (plus - minus).mean((1, 2))
            move_along(parameters, direction, scalar, rate=0.1, momentum=momentum, velocity=velocity)
    assert tracker.peak <= 0.15 * 4 * size_of(model)
    assert not velocity.buffers


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
