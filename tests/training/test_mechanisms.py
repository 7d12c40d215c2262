"""Every declared sensitivity, against neighbours that Hypothesis looks for; and that each is reached."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vflpriv.releases import Exact, Gaussian
from vflpriv.training._mechanisms import ClientClip, EmbeddingClip, NoNoise, ScalarMean, VectorMean
from vflpriv.units import Unit

B, WIDTH = 5, 3
CLIPS = st.sampled_from([0.1, 1.0, 10.0])
NUMBERS = st.floats(-1e9, 1e9, allow_subnormal=False)
VECTOR = arrays("float64", (B,), elements=NUMBERS)
MATRIX = arrays("float64", (B, WIDTH), elements=NUMBERS)
RECORDS = st.integers(0, B - 1)


def distance(mechanism, a, b) -> float:
    values = torch.tensor(a).unsqueeze(0), torch.tensor(b).unsqueeze(0)
    return float((mechanism.noiseless(values[0]) - mechanism.noiseless(values[1])).norm())


def within(mechanism, unit, a, b) -> None:
    assert distance(mechanism, a, b) <= mechanism.sensitivity[unit] * (1 + 1e-9)


@given(VECTOR, NUMBERS, RECORDS, CLIPS)
def test_scalar_mean_replacing_a_label_or_record(values, other, record, clip):
    changed = values.copy()
    changed[record] = other
    mechanism = ScalarMean(noise_std=1.0, clip=clip, batch_size=B)
    for unit in (Unit.LABEL, Unit.RECORD, Unit.FEATURES):
        within(mechanism, unit, values, changed)
        assert mechanism.sensitivity[unit] == 2 * clip / B


@given(VECTOR, RECORDS, CLIPS)
def test_scalar_mean_adding_or_removing_a_record(values, record, clip):
    """An absent record adds nothing, and the denominator stays B."""
    mechanism = ScalarMean(noise_std=1.0, clip=clip, batch_size=B)
    present = mechanism.noiseless(torch.tensor(values).unsqueeze(0))
    kept = torch.tensor([v for i, v in enumerate(values) if i != record]).unsqueeze(0)
    absent = mechanism.noiseless(kept)
    assert float((present - absent).abs()) <= mechanism.sensitivity[Unit.ADD_REMOVE] * (1 + 1e-9)
    assert mechanism.sensitivity[Unit.ADD_REMOVE] == clip / B


@given(VECTOR, VECTOR, CLIPS)
def test_scalar_mean_replacing_a_device(values, other, clip):
    mechanism = ScalarMean(noise_std=1.0, clip=clip, batch_size=B)
    for unit in (Unit.CLIENT, Unit.CLIENT_ZERO):
        within(mechanism, unit, values, other)
    assert distance(mechanism, values, other) <= mechanism.span * (1 + 1e-9)


@given(MATRIX, arrays("float64", (WIDTH,), elements=NUMBERS), RECORDS, CLIPS)
def test_vector_mean(values, other, record, clip):
    mechanism = VectorMean(noise_std=1.0, clip=clip, batch_size=B)
    changed, without = values.copy(), values.copy()
    changed[record], without[record] = other, 0.0
    within(mechanism, Unit.RECORD, values, changed)
    within(mechanism, Unit.LABEL, values, changed)
    within(mechanism, Unit.ADD_REMOVE, values, without)
    within(mechanism, Unit.CLIENT, values, changed[::-1].copy())


@given(MATRIX, MATRIX, RECORDS, CLIPS)
def test_frobenius_clip(values, other, record, clip):
    mechanism = ClientClip(noise_std=1.0, clip=clip)
    within(mechanism, Unit.CLIENT, values, other)
    within(mechanism, Unit.CLIENT_ZERO, values, 0 * values)
    changed, without = values.copy(), values.copy()
    changed[record], without[record] = other[record], 0.0
    within(mechanism, Unit.RECORD, values, changed)
    within(mechanism, Unit.FEATURES, values, changed)
    within(mechanism, Unit.ADD_REMOVE, values, without)


@given(MATRIX, MATRIX, RECORDS, CLIPS)
def test_per_record_l2_clip(values, other, record, clip):
    mechanism = EmbeddingClip(noise_std=1.0, clip=clip, batch_size=B)
    within(mechanism, Unit.CLIENT, values, other)
    within(mechanism, Unit.CLIENT_ZERO, values, 0 * values)
    changed, without = values.copy(), values.copy()
    changed[record], without[record] = other[record], 0.0
    within(mechanism, Unit.RECORD, values, changed)
    within(mechanism, Unit.FEATURES, values, changed)
    within(mechanism, Unit.ADD_REMOVE, values, without)


@given(MATRIX, CLIPS)
def test_clipping_leaves_small_inputs_alone(values, clip):
    small = values / (1 + abs(values).sum()) * clip * 0.5
    for mechanism in (ClientClip(noise_std=1.0, clip=clip), EmbeddingClip(noise_std=1.0, clip=clip, batch_size=B)):
        torch.testing.assert_close(mechanism.noiseless(torch.tensor(small)), torch.tensor(small))


@pytest.mark.parametrize("unit", list(Unit))
def test_the_published_clip_has_no_bound(unit):
    """min(δ, C) lets one record move the mean as far as it likes: no declared bound survives."""
    mechanism = ScalarMean(noise_std=1.0, clip=10.0, batch_size=B, two_sided=False)
    assert math.isinf(mechanism.sensitivity[unit])
    assert math.isinf(mechanism.span)
    values = [0.0] * B
    assert distance(mechanism, values, [-1e9, *values[1:]]) > 1e4 * mechanism.declared[unit]


def test_noise_has_the_declared_std_and_a_tenth_more_is_noticed():
    mechanism = ScalarMean(noise_std=2.5, clip=1.0, batch_size=B)
    normals = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    released = mechanism.release(torch.zeros(100_000), normals)
    assert mechanism.noise == Gaussian(2.5)
    assert abs(float(released.std()) - 2.5) < 0.05
    assert abs(1.1 * float(released.std()) - 2.5) > 0.05


def test_no_noise_is_declared_as_none():
    assert ScalarMean(noise_std=0.0, clip=1.0, batch_size=B).noise == Exact()
    exact = NoNoise(depends_on=frozenset({Unit.LABEL}))
    assert exact.noise == Exact()
    assert exact.sensitivity == {Unit.LABEL: math.inf}
