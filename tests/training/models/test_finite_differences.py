"""Directions lie on the √d-sphere over all parameters, whether they are kept in memory or regenerated."""

from __future__ import annotations

import math

import pytest
import torch

from tests.launches import Launches, NoCopies
from tests.training.models.builders import bottom
from vflpriv.common import philox
from vflpriv.common.random import Stream
from vflpriv.training.models import finite_differences as module
from vflpriv.training.models.base import Mlp, size_of
from vflpriv.training.models.finite_differences import Directions, Shifted, Velocity, move_along

CPU = torch.device("cpu")
MODELS = [Mlp([5, 7, 3], activate=True), Mlp([4, 2], activate=True), Mlp([6, 3], activate=False)]


def directions(*, lean: bool, replicas=(0, 1, 2), turns=(0, 1, 0, 1)) -> Directions:
    return Directions(Stream.of(1, "directions", replicas, CPU), MODELS, turns, lean=lean)


def flat(direction) -> torch.Tensor:
    return torch.cat([part.flatten(1) for part in direction.values()], dim=1)


def test_the_norm_over_all_parameters_together_is_root_d():
    for party, turn in ((0, 2), (1, 1), (2, 3)):
        u = flat(directions(lean=False).at(turn, party))
        assert u.shape[1] == size_of(MODELS[party])
        torch.testing.assert_close(u.norm(dim=1), torch.full((3,), math.sqrt(size_of(MODELS[party]))))
    layers = directions(lean=False).at(0, 0)
    norms = layers["weight0"].flatten(1).norm(dim=1) / math.sqrt(35)
    assert (norms - 1).abs().max() > 1e-3, "single layers must not be normalised"


def test_regenerated_and_kept_directions_are_equal():
    lean, held = directions(lean=True), directions(lean=False)
    for turn, party in enumerate((0, 1, 0, 1)):
        torch.testing.assert_close(flat(lean.at(turn, party)), flat(held.at(turn, party)))
        torch.testing.assert_close(flat(lean.at(turn, 2)), flat(held.at(turn, 2)))


@pytest.mark.parametrize("piece", [1, 8, 20])
def test_a_direction_drawn_in_pieces_is_the_same(piece, monkeypatch):
    monkeypatch.setattr(module, "_PIECE", piece)
    lean, held = directions(lean=True).at(0, 0), directions(lean=False).at(0, 0)
    assert [rows.stop - rows.start for rows in lean.rows("bias0")] == ([7] if piece > 7 else [4, 3])
    for name in held:
        parts = [lean.normals(name, rows) for rows in lean.rows(name)]
        assert torch.equal(torch.cat(parts, dim=1), held.normals(name))
    torch.testing.assert_close(flat(lean), flat(held))


@pytest.mark.parametrize(("momentum", "remembered"), [(0.0, 0), (0.5, 24), (0.8, 75)])
def test_momentum_from_past_directions_is_momentum_from_a_buffer(momentum, remembered):
    """Over more steps than are remembered, with rates that change."""
    turns, ends = (0,) * 80, []
    for lean in (False, True):
        source, velocity = directions(lean=lean, turns=turns), Velocity()
        value = {name: torch.zeros(3, *shape) for name, shape in MODELS[0].shapes.items()}
        for turn in range(80):
            scalar = torch.tensor([1.0, -2.0, 0.5]) * math.cos(turn)
            direction = source.at(turn, 0)
            move_along(value, direction, scalar, rate=0.1 + turn / 100, momentum=momentum, velocity=velocity)
        ends.append(flat(value))
        assert bool(velocity.buffers) is (momentum > 0 and not lean)
        assert len(velocity.steps) == (remembered if lean else 0)
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)


def test_norms_leave_out_numbers_that_belong_to_no_parameter():
    """Parameters begin at blocks of four, and the longest party of a chunk draws for all: both leave gaps."""
    source = directions(lean=False, turns=(0, 1, 1, 0))
    for turn, party in enumerate((0, 1, 1, 0)):
        torch.testing.assert_close(
            flat(source.at(turn, party)).norm(dim=1), torch.full((3,), math.sqrt(size_of(MODELS[party])))
        )


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_move_along_is_a_heavy_ball_step_down_the_scalar_times_the_direction(momentum):
    source, scalar, velocity = directions(lean=False, turns=(0, 0)), torch.tensor([1.0, -2.0, 0.5]), Velocity()
    value = {name: torch.zeros(3, *shape) for name, shape in MODELS[0].shapes.items()}
    expected, speed = torch.zeros(3, size_of(MODELS[0])), torch.zeros(3, size_of(MODELS[0]))
    for turn in range(2):
        move_along(value, source.at(turn, 0), scalar, rate=0.1, momentum=momentum, velocity=velocity)
        speed = momentum * speed + scalar.unsqueeze(1) * flat(source.at(turn, 0))
        expected = expected - 0.1 * speed
    torch.testing.assert_close(flat(value), expected)


def test_directions_of_different_rounds_are_uncorrelated():
    source = directions(lean=False, turns=(0, 0, 0, 0))
    a, b = flat(source.at(0, 0)), flat(source.at(1, 0))
    cosine = (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))
    assert cosine.abs().max() < 0.6


def test_directions_are_uniform_on_the_sphere():
    """E[u uᵀ] is the identity on the √d-sphere."""
    source = Directions(Stream.of(5, "directions", range(4000), CPU), [Mlp([2, 2], activate=True)], (0,), lean=False)
    u = flat(source.at(0, 0))
    torch.testing.assert_close(u.T @ u / len(u), torch.eye(u.shape[1]), atol=0.12, rtol=0)
    torch.testing.assert_close(u.mean(0), torch.zeros(u.shape[1]), atol=0.1, rtol=0)


def test_shifted_is_parameters_plus_step_times_direction():
    direction = directions(lean=True).at(0, 0)
    parameters = {name: torch.ones(3, *shape) for name, shape in MODELS[0].shapes.items()}
    shifted = Shifted(parameters, direction, 0.5)
    for name in parameters:
        torch.testing.assert_close(shifted[name], 1 + 0.5 * direction[name])


def test_a_direction_of_resnet_18_is_few_launches_on_an_accelerator(monkeypatch):
    """One draw for all of its parameters, then a norm for each of them."""
    monkeypatch.delitem(philox._WAYS, "meta")
    model = bottom("resnet18", (3, 32, 32), 10)
    assert size_of(model) > 11e6
    stream = Stream(torch.empty(2, 2, dtype=torch.int64, device="meta"))
    with Launches() as launches, NoCopies():
        Directions(stream, [model], None).at(3, 0)
    assert 100 < launches.count <= 190 + 2 * len(model.shapes)
