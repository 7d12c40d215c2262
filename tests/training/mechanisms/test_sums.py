"""Clipped sums as numbers: their values, their bounds, their grid, and what a release point does with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vflpriv.common.random import Stream
from vflpriv.core.engine import Contributions
from vflpriv.core.releases import StateLeak
from vflpriv.core.units import Unit
from vflpriv.laws import CorrelatedGaussian, Exact, Gaussian, Laplace
from vflpriv.laws.correlated import tree_encoder
from vflpriv.training.mechanisms import base
from vflpriv.training.mechanisms.base import (
    Mechanism,
    NoiseSource,
    NoNoise,
    OuterMean,
    ReleasePoint,
    ScalarMean,
    VectorMean,
    shared,
)
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip, Emptied, Unclipped

CPU = torch.device("cpu")
RECORD_UNITS = (Unit.LABEL, Unit.RECORD, Unit.FEATURES)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stream(replicas: int = 2) -> Stream:
    return Stream.of(7, "noise", list(range(replicas)), CPU)


# Bounds -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("largest", "whole"), [(None, 1.4), (4, 1.4), (5, 1.4), (9, 1.4 * 9 / 5)])
@pytest.mark.parametrize("kind", [ScalarMean, VectorMean, OuterMean])
def test_a_mean_moves_by_its_clip_over_its_denominator(kind: Any, largest: int | None, whole: float) -> None:
    """A device moves every record: twice the clip, and more where a batch is larger than the denominator."""
    mechanism = kind(noise_std=2.0, clip=0.7, batch_size=5, largest=largest)
    expected = {**dict.fromkeys(RECORD_UNITS, 0.28), Unit.ADD_REMOVE: 0.14}
    expected |= {Unit.CLIENT_ZERO: whole, Unit.CLIENT: whole}
    assert mechanism.sensitivity == pytest.approx(expected, rel=1e-12)
    assert mechanism.declared == pytest.approx(expected, rel=1e-12)
    assert mechanism.additive
    if kind is ScalarMean:
        assert mechanism.span == pytest.approx(whole)
        published = ScalarMean(noise_std=2.0, clip=0.7, batch_size=5, largest=largest, two_sided=False)
        assert published.declared == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("emptied", "factor"), [(Emptied.ZEROS, 1.0), (Emptied.NON_NEGATIVE, math.sqrt(2)), (Emptied.ANYTHING, 2.0)]
)
def test_bounds_of_what_devices_send(emptied: Emptied, factor: float) -> None:
    matrix = ClientClip(noise_std=1.0, clip=0.7, emptied=emptied)
    expected = {Unit.RECORD: 1.4, Unit.FEATURES: 1.4, Unit.ADD_REMOVE: 0.7 * math.sqrt(2), Unit.CLIENT: 1.4}
    assert matrix.sensitivity == pytest.approx({**expected, Unit.CLIENT_ZERO: 0.7 * factor})
    assert matrix.declared == pytest.approx({**expected, Unit.CLIENT_ZERO: 0.7})
    rows = EmbeddingClip(noise_std=1.0, clip=0.7, batch_size=9, emptied=emptied)
    expected = {Unit.RECORD: 1.4, Unit.FEATURES: 1.4, Unit.ADD_REMOVE: 0.7, Unit.CLIENT: 4.2}
    assert rows.sensitivity == pytest.approx({**expected, Unit.CLIENT_ZERO: 2.1 * factor})
    assert not matrix.additive
    assert not rows.additive


def test_nothing_bounds_what_is_not_clipped() -> None:
    units = set(Unit) - {Unit.LABEL}
    plain, published = (Unclipped(noise_std=1.0, clip=0.7, batch_size=9, assumed=a) for a in (False, True))
    assert plain.sensitivity == plain.declared == published.sensitivity == dict.fromkeys(units, math.inf)
    assert published.declared == {**dict.fromkeys(units, math.inf), Unit.FEATURES: 1.4}
    assert not Unclipped(noise_std=1.0, clip=0.7, batch_size=9).declared[Unit.FEATURES] < math.inf
    values = random(1, 3, 2)
    assert plain.noiseless(values) is values
    assert plain.pulled_back(values, 3 * values).equal(3 * values)


def test_what_a_model_makes_of_zeros() -> None:
    assert Emptied.by("mlp", logits=True) is Emptied.ANYTHING
    assert Emptied.by("mlp", logits=False) is Emptied.NON_NEGATIVE
    assert Emptied.by("resnet18-stem", logits=True) is Emptied.ANYTHING
    assert Emptied.by("resnet18-stem", logits=False) is Emptied.ZEROS
    assert Emptied.by("transformer-embedding", logits=False) is Emptied.ANYTHING
    values = torch.tensor([[-1.0, 2.0]])
    made = {Emptied.ZEROS: [0.0, 0.0], Emptied.NON_NEGATIVE: [1.0, 2.0], Emptied.ANYTHING: [-1.0, 2.0]}
    for emptied, zeros in made.items():
        mechanism = ClientClip(noise_std=1.0, clip=1.0, emptied=emptied)
        assert mechanism.blank(values).tolist() == [zeros]
        assert mechanism.neighbour(Unit.CLIENT_ZERO, 7 * values, values).tolist() == [zeros]
        outputs = [1.0, 2.0] if emptied is Emptied.NON_NEGATIVE else [-1.0, 2.0]
        assert mechanism.admissible(Unit.CLIENT_ZERO, values).tolist() == [outputs]
        assert mechanism.admissible(Unit.CLIENT, values) is values
    assert ClientClip(noise_std=1.0, clip=1.0).emptied is Emptied.ANYTHING


# Values -------------------------------------------------------------------------------------------------------------


def test_a_scalar_mean_clips_each_number() -> None:
    values = torch.tensor([[-3.0, -0.2, 0.5, 0.7, 2.0], [0.1, 0.2, 0.3, -9.0, 0.0]])
    mechanism = ScalarMean(noise_std=1.0, clip=0.7, batch_size=4)
    torch.testing.assert_close(mechanism.noiseless(values), torch.tensor([1.0 / 4, -0.1 / 4]))
    published = ScalarMean(noise_std=1.0, clip=0.7, batch_size=4, two_sided=False)
    torch.testing.assert_close(published.noiseless(values), torch.tensor([-1.3 / 4, -8.4 / 4]))


def scaled(values: Tensor, clip: float) -> Tensor:
    """Each vector of the last axis, scaled into the ball."""
    rows = [row * min(1.0, clip / float(row.norm())) if row.any() else row for row in values.flatten(0, -2)]
    return torch.stack(rows).reshape(values.shape)


def test_vectors_are_scaled_into_the_ball() -> None:
    values = random(2, 6, 3) * torch.tensor([0.1, 0.3, 1.0, 3.0, 0.0, 10.0]).unsqueeze(-1)
    means = VectorMean(noise_std=1.0, clip=0.8, batch_size=4)
    torch.testing.assert_close(means.noiseless(values), scaled(values, 0.8).sum(1) / 4)
    rows = EmbeddingClip(noise_std=1.0, clip=0.8, batch_size=4)
    torch.testing.assert_close(rows.noiseless(values), scaled(values, 0.8))
    for factor in (0.01, 10.0):
        whole = ClientClip(noise_std=1.0, clip=0.8).noiseless(factor * values)
        torch.testing.assert_close(whole.flatten(1), scaled(factor * values.flatten(1), 0.8))
    assert not ClientClip(noise_std=1.0, clip=0.8).noiseless(0 * values).any()


def test_replicas_that_are_one_in_memory_are_computed_once() -> None:
    one = random(1, 6, 3)
    together, apart = one.expand(4, 6, 3), one.repeat(4, 1, 1)
    assert (shared(together), shared(together[:2]), shared(apart), shared(one)) == (True, True, False, False)
    means = VectorMean(noise_std=1.0, clip=0.8, batch_size=4)
    torch.testing.assert_close(means.noiseless(together), means.noiseless(apart))
    assert shared(means.noiseless(together))


def test_an_outer_mean_of_few_or_many_slopes_is_that_of_gradients_written_down() -> None:
    values = random(2, 6, 7) * torch.tensor([0.1, 0.3, 1.0, 3.0, 0.0, 10.0]).unsqueeze(-1)
    for slopes in (1, 3):
        gradients = torch.einsum("rbi,rbj->rbij", values[..., :-slopes], values[..., -slopes:]).flatten(2)
        mechanism = OuterMean(noise_std=1.0, clip=0.8, batch_size=4, slopes=slopes)
        torch.testing.assert_close(mechanism.noiseless(values), scaled(gradients, 0.8).sum(1) / 4)
    torch.testing.assert_close(
        OuterMean(noise_std=1.0, clip=0.8, batch_size=4).noiseless(values),
        OuterMean(noise_std=1.0, clip=0.8, batch_size=4, slopes=1).noiseless(values),
    )


class _Rows:
    """Features of a batch, with their lengths."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.lengths = rows, rows.norm(dim=-1, keepdim=True)

    def outer(self, slopes: Tensor) -> Tensor:
        return torch.einsum("rbi,rbj->rij", self.rows, slopes).flatten(1)


def test_rows_beside_their_slopes_make_the_same_value() -> None:
    rows, slopes = random(2, 6, 4), random(2, 6, 3, seed=1)
    mechanism = OuterMean(noise_std=1.0, clip=0.8, batch_size=4, slopes=3)
    point = ReleasePoint("gradient", mechanism, NoiseSource(stream()))
    beside: Any = _Rows(rows)
    contributions = Contributions(round=0, party=0, records=torch.arange(6), values=slopes, rows=beside)
    expected = mechanism.noiseless(torch.cat((rows, slopes), -1))
    torch.testing.assert_close(point.noiseless(contributions), expected)
    clipped = Contributions(round=0, party=0, records=torch.arange(6), values=slopes, clipped=True)
    assert point.noiseless(clipped) is slopes


@pytest.mark.parametrize("size", [1e-30, 1e-20, 0.5e-15, 2e-15, 1.0, 0.5e15, 2e15, 1e20, 1e30])
def test_no_size_of_a_row_breaks_the_clip(size: float) -> None:
    """Squares of the smallest and largest entries leave single precision: the length is then at least the true one."""
    rows, slopes = random(1, 1, 4).float() * size, random(1, 1, 3, seed=1).float() / size
    mechanism = OuterMean(noise_std=1.0, clip=0.8, batch_size=1, slopes=3)
    released = mechanism.noiseless(torch.cat((rows, slopes), -1))
    true = float(rows.double().norm() * slopes.double().norm())
    least = 0.8 / math.sqrt(12) if 2e-15 < size < 0.5e15 or true > 1 else 0.0
    assert 0.99 * least <= float(released.double().norm()) <= 0.8 * (1 + 1e-5)
    ordinary = float(rows.abs().max()) > 1e-15 and float(rows.abs().max()) < 1e15
    if ordinary and 1e-15 < float(slopes.abs().max()) < 1e15:
        assert float(released.double().norm()) == pytest.approx(min(0.8, true), rel=1e-5)


def test_the_length_of_a_row_is_exact_in_the_middle_and_a_bound_outside() -> None:
    rows = torch.tensor([[3e-14, 4e-14], [3e14, 4e14], [3e-16, 4e-16], [3e16, 4e16], [1.1e-15, 0.0], [0.9e15, 0.0]])
    expected = [5e-14, 5e14, 4e-16 * math.sqrt(2), 4e16 * math.sqrt(2), 1.1e-15, 0.9e15]
    torch.testing.assert_close(base._length(rows)[:, 0], torch.tensor(expected), rtol=1e-5, atol=0.0)


def test_gradients_are_pulled_back_through_the_clip() -> None:
    """Of a mean: 1/B of the gradient within the clip, and nothing outside, where the value is constant."""
    mechanism = ScalarMean(noise_std=1.0, clip=0.7, batch_size=4)
    values = torch.tensor([[-3.0, -0.2, 0.5]])
    assert mechanism.pulled_back(values, torch.tensor([2.0])).tolist() == [[0.0, 0.5, 0.5]]
    exact = NoNoise(depends_on=frozenset({Unit.LABEL}))
    assert exact.noiseless(values) is values
    assert exact.pulled_back(values, 2 * values).equal(2 * values)


def test_neighbours_differ_in_what_the_unit_says() -> None:
    mechanism = ScalarMean(noise_std=1.0, clip=0.7, batch_size=4)
    values, other = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), -torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    for unit in RECORD_UNITS:
        assert mechanism.neighbour(unit, values, other).tolist() == [[-1.0, 2.0, 3.0], [-4.0, 5.0, 6.0]]
    assert mechanism.neighbour(Unit.ADD_REMOVE, values, other).tolist() == [[0.0, 2.0, 3.0], [0.0, 5.0, 6.0]]
    for unit in (Unit.CLIENT, Unit.CLIENT_ZERO):
        assert mechanism.neighbour(unit, values, other) is other
        assert mechanism.admissible(unit, values) is values


# Noise --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Bounded(Mechanism):
    """A value as it is, with bounds that are given."""

    bounds: tuple[float, ...]

    def noiseless(self, values: Tensor) -> Tensor:
        return values

    @property
    def sensitivity(self) -> Mapping[Unit, float]:
        return dict(zip(Unit, self.bounds, strict=False))


def test_the_grid_is_that_of_the_least_bound_and_the_most_entries() -> None:
    law = Gaussian(2.0)
    assert ScalarMean(noise_std=2.0, clip=0.7, batch_size=5).on_grid == law.on_grid(0.14, 1)
    assert VectorMean(noise_std=2.0, clip=0.7, batch_size=5).on_grid == law.on_grid(0.14, 1 << 24)
    for bounds, distance in (((0.0, 3.0, math.inf), 3.0), ((math.inf, 0.0), math.inf), ((0.25, 3.0), 0.25)):
        assert _Bounded(noise_std=2.0, bounds=bounds).on_grid == law.on_grid(distance, 1 << 24)
    other = _Bounded(noise_std=2.0, law=Laplace(3.0), bounds=(1.0,))
    assert (other.noise, other.on_grid) == (Laplace(3.0), Laplace(3.0).on_grid(1.0, 1 << 24))
    assert (_Bounded(bounds=(1.0,)).noise, _Bounded(noise_std=1e-9, bounds=(1.0,)).noise) == (Exact(), Gaussian(1e-9))
    draws = random(1, 3)
    assert other.release(torch.zeros(1, 3), draws).equal(other.on_grid.release(torch.zeros(1, 3), draws))


def test_larger_releases_than_the_grid_counts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_MOST_ENTRIES", 6)
    mechanism = _Bounded(noise_std=2.0, bounds=(1.0,))
    for shape in ((5, 6), (5, 2, 3)):
        mechanism.release(torch.zeros(shape), torch.zeros(shape))
    with pytest.raises(ValueError, match="at most 6 entries"):
        mechanism.release(torch.zeros(1, 7), torch.zeros(1, 7))


def test_the_entry_of_the_ledger_says_what_the_mechanism_does() -> None:
    mechanism, rounds = ScalarMean(noise_std=2.0, clip=0.7, batch_size=5), np.array([True, False])
    plain = mechanism.describe(kind="loss", what="a loss", rounds=rounds, seen_by=frozenset({"server"}))
    assert (plain.kind, plain.what, plain.noise, plain.sensitivity) == (
        "loss", "a loss", mechanism.on_grid, mechanism.sensitivity,
    )  # fmt: skip
    assert plain.rounds is rounds
    assert (plain.seen_by, plain.reaches_all, plain.carried, plain.additive, plain.fresh, plain.leak) == (
        {"server"}, False, False, True, False, None,
    )  # fmt: skip
    leak = StateLeak(carrier="a table", sensitivity={Unit.LABEL: 1.0})
    full = ClientClip(noise_std=2.0, clip=0.7).describe(
        kind="matrix",
        what="x",
        rounds=rounds,
        seen_by=frozenset(),
        reaches_all=True,
        carried=True,
        fresh=True,
        leak=leak,
    )
    assert (full.reaches_all, full.carried, full.additive, full.fresh, full.leak) == (True, True, False, True, leak)


def test_trained_models_leave_as_they_are_after_the_last_round() -> None:
    class _Three:
        last_round = np.array([False, False, True])

    schedule: Any = _Three()
    release = NoNoise(depends_on=frozenset({Unit.LABEL, Unit.RECORD})).describe_models("gradients", schedule)
    assert (release.kind, release.what) == ("models", "the trained models, moved by gradients")
    assert (release.seen_by, release.noise, release.rounds.tolist()) == ({"model"}, Exact(), [False, False, True])
    assert release.sensitivity == {Unit.LABEL: math.inf, Unit.RECORD: math.inf}


def test_every_round_party_and_replica_has_noise_of_its_own() -> None:
    source = NoiseSource(stream())
    draws = [source.tensor((3, 2), round_, party) for round_ in (0, 1) for party in (0, 1, 2)]
    assert all(drawn.shape == (2, 3, 2) for drawn in draws)
    assert len(torch.stack(draws).unique()) == 6 * 12
    assert source.tensor((3, 2), 0, 1).equal(draws[1])
    # One number of a round is drawn under a path that no party has.
    assert not any(bool((source.tensor((1,), 0, party) == source.scalar(0)[:, None]).any()) for party in range(3))
    again = source.redrawn(8, [0])
    assert (again.name, again.tensor((2,), 0, 0).shape) == ("noise", (1, 2))
    assert not again.tensor((2,), 0, 0).equal(source.tensor((2,), 0, 0)[:1])
    named = NoiseSource(Stream.of(7, "server-noise", [0, 1], CPU), name="server-noise", law=Laplace(2.0))
    assert named.redrawn(7, [0, 1]).tensor((4,), 3, 1).equal(named.tensor((4,), 3, 1))


def test_noise_that_depends_between_rounds_is_drawn_round_by_round() -> None:
    """The third output of a tree of two rounds is in both: their noise is correlated, whatever the order."""
    law = CorrelatedGaussian(1.0, tree_encoder(2))
    source = NoiseSource(Stream.of(7, "noise", list(range(4000)), CPU), law=law)
    first, second = source.scalar(0).clone(), source.scalar(1).clone()
    expected = np.linalg.pinv(np.array(law.encoder))
    found = np.cov(torch.stack((first, second)).numpy())
    np.testing.assert_allclose(found, expected @ expected.T, atol=0.05)
    assert source.scalar(0).equal(first)
    assert not (source.tensor((1,), 0, 0)[:, 0] == first).any(), "the first party's own draws are others"


# Release points -----------------------------------------------------------------------------------------------------


class _Probe:
    """Adds one to each noiseless value and ten to what leaves."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def noiseless(self, point: ReleasePoint, contributions: Contributions) -> Tensor:
        return point.noiseless(contributions) + 1

    def released(
        self, point: ReleasePoint, contributions: Contributions, noiseless: Tensor, released: Tensor
    ) -> Tensor:
        self.seen += [noiseless, released]
        return released + 10


def contribution(values: Tensor, round_: int = 3, party: int = 1) -> Contributions:
    return Contributions(round=round_, party=party, records=torch.arange(values.shape[1]), values=values)


def test_a_release_point_adds_the_noise_of_its_round_and_party() -> None:
    mechanism = ScalarMean(noise_std=2.0, clip=0.7, batch_size=4)
    point = ReleasePoint("loss", mechanism, NoiseSource(stream()))
    values = random(2, 5)
    expected = mechanism.release(mechanism.noiseless(values), NoiseSource(stream()).scalar(3))
    assert point.scalar(contribution(values)).equal(expected)
    vectors = VectorMean(noise_std=2.0, clip=0.7, batch_size=4)
    point = ReleasePoint("gradient", vectors, NoiseSource(stream()))
    matrix = random(2, 5, 3)
    expected = vectors.release(vectors.noiseless(matrix), NoiseSource(stream()).tensor((3,), 3, 1))
    assert point.vector(contribution(matrix), 3).equal(expected)
    assert (point.kind, point.internal, point.probe) == ("gradient", False, None)


def test_a_probe_is_asked_where_there_is_noise() -> None:
    mechanism, values, normals = ScalarMean(noise_std=2.0, clip=0.7, batch_size=4), random(2, 5), random(2)
    point = ReleasePoint("loss", mechanism, NoiseSource(stream()), internal=True)
    probe: Any = _Probe()
    point.probe = probe
    noiseless = mechanism.noiseless(values)
    released = mechanism.release(noiseless + 1, normals)
    assert point.release(contribution(values), normals).equal(released + 10)
    assert [seen.tolist() for seen in probe.seen] == [(noiseless + 1).tolist(), released.tolist()]
    other = point.for_replicas(8, [0])
    assert (other.probe, other.internal, other.kind, other.mechanism) == (None, True, "loss", mechanism)
    assert point.probe is probe
    assert other.noise.scalar(0).shape == (1,)
    exact = ReleasePoint("loss", NoNoise(depends_on=frozenset()), NoiseSource(stream()))
    exact.probe = probe
    assert exact.release(contribution(values), random(2, 5)).equal(values)


def test_rows_of_several_tensors_have_noise_of_their_own() -> None:
    mechanism = EmbeddingClip(noise_std=2.0, clip=0.7, batch_size=4)
    point = ReleasePoint("embedding", mechanism, NoiseSource(stream()))
    clipped = {"plus": random(2, 4, 3), "minus": random(2, 4, 3, seed=1)}
    sent = point.rows(3, 1, torch.arange(4), clipped)
    normals = NoiseSource(stream()).tensor((2, 4, 3), 3, 1)
    assert sent["plus"].equal(mechanism.release(clipped["plus"], normals[:, 0]))
    assert sent["minus"].equal(mechanism.release(clipped["minus"], normals[:, 1]))
    alone = point.rows(3, 1, torch.arange(4), {"plus": clipped["plus"]})
    assert alone["plus"].equal(mechanism.release(clipped["plus"], NoiseSource(stream()).tensor((4, 3), 3, 1)))
    exact = ReleasePoint("embedding", EmbeddingClip(clip=0.7, batch_size=4), NoiseSource(stream()))
    assert exact.rows(3, 1, torch.arange(4), clipped) == clipped
