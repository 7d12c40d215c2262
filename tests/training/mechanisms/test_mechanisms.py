"""Every declared sensitivity, against neighbours that Hypothesis looks for; and that each is reached."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.support import make_system
from vflpriv.core.units import Unit
from vflpriv.laws import Exact, Gaussian
from vflpriv.training.mechanisms.base import NoNoise, OuterMean, ScalarMean, VectorMean
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip, Emptied
from vflpriv.training.models.architectures import Stem

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
    """A pair moves no further than its bound, which it may reach: double precision is far within what is allowed."""
    assert distance(mechanism, a, b) <= mechanism.sensitivity[unit] * (1 + 1e-9)


def clipped(kind, clip, emptied):
    size = {"batch_size": B} if kind is EmbeddingClip else {}
    return kind(noise_std=1.0, clip=clip, emptied=emptied, **size)


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


@pytest.mark.parametrize("kind", [VectorMean, OuterMean])
@given(values=MATRIX, other=arrays("float64", (WIDTH,), elements=NUMBERS), record=RECORDS, clip=CLIPS)
def test_vector_mean(kind, values, other, record, clip):
    """Margin: a pair may reach its bound; double precision is off by 1e-15 of it for each record, 1e-9 is allowed."""
    mechanism = kind(noise_std=1.0, clip=clip, batch_size=B)
    changed, without = values.copy(), values.copy()
    changed[record], without[record] = other, 0.0
    within(mechanism, Unit.RECORD, values, changed)
    within(mechanism, Unit.LABEL, values, changed)
    within(mechanism, Unit.ADD_REMOVE, values, without)
    within(mechanism, Unit.CLIENT, values, changed[::-1].copy())


def test_the_outer_mean_is_the_mean_of_clipped_gradients_written_down():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2, B, 7, generator=generator, dtype=torch.float64)
    rows, slopes = values[..., :4], values[..., 4:]
    gradients = torch.einsum("rbi,rbj->rbij", rows, slopes).flatten(2)
    outer = OuterMean(noise_std=1.0, clip=1.5, batch_size=B, slopes=3)
    torch.testing.assert_close(
        outer.noiseless(values), VectorMean(noise_std=1.0, clip=1.5, batch_size=B).noiseless(gradients)
    )
    assert (gradients.norm(dim=2) > 1.5).any()
    assert (gradients.norm(dim=2) < 1.5).any()


@given(MATRIX, MATRIX, RECORDS, CLIPS)
def test_frobenius_clip(values, other, record, clip):
    """Margin: a pair may reach its bound; double precision is off by 1e-15 of it for each record, 1e-9 is allowed."""
    mechanism = ClientClip(noise_std=1.0, clip=clip)
    within(mechanism, Unit.CLIENT, values, other)
    changed, without = values.copy(), values.copy()
    changed[record], without[record] = other[record], 0.0
    within(mechanism, Unit.RECORD, values, changed)
    within(mechanism, Unit.FEATURES, values, changed)
    within(mechanism, Unit.ADD_REMOVE, values, without)


@given(MATRIX, MATRIX, RECORDS, CLIPS)
def test_per_record_l2_clip(values, other, record, clip):
    """Margin: a pair may reach its bound; double precision is off by 1e-15 of it for each record, 1e-9 is allowed."""
    mechanism = EmbeddingClip(noise_std=1.0, clip=clip, batch_size=B)
    within(mechanism, Unit.CLIENT, values, other)
    changed, without = values.copy(), values.copy()
    changed[record], without[record] = other[record], 0.0
    within(mechanism, Unit.RECORD, values, changed)
    within(mechanism, Unit.FEATURES, values, changed)
    within(mechanism, Unit.ADD_REMOVE, values, without)


@pytest.mark.parametrize("kind", [ClientClip, EmbeddingClip])
@pytest.mark.parametrize(
    ("emptied", "factor"), [(Emptied.ZEROS, 1.0), (Emptied.NON_NEGATIVE, math.sqrt(2)), (Emptied.ANYTHING, 2.0)]
)
@given(values=MATRIX, other=MATRIX, clip=CLIPS)
def test_a_device_with_zeros_for_data(kind, emptied, factor, values, other, clip):
    """Against what its model makes of zeros: zeros themselves, something non-negative, or anything.

    Margin: a pair may reach its bound; double precision is off by 1e-15 of it for each record, 1e-9 is allowed.
    """
    mechanism = clipped(kind, clip, emptied)
    first, second = {
        Emptied.ZEROS: (values, 0 * values),
        Emptied.NON_NEGATIVE: (abs(values), abs(other)),
        Emptied.ANYTHING: (values, other),
    }[emptied]
    within(mechanism, Unit.CLIENT_ZERO, first, second)
    rows = B if kind is EmbeddingClip else 1
    assert mechanism.sensitivity[Unit.CLIENT_ZERO] == pytest.approx(factor * clip * math.sqrt(rows))


@pytest.mark.parametrize("kind", [ClientClip, EmbeddingClip])
def test_the_bound_for_zeros_breaks_where_models_have_biases(kind):
    """Each of the smaller two bounds is too small for the next case, so that none of the three is idle."""
    even = [[9.0, 0.0, 0.0]] * B
    odd = [[0.0, 9.0, 0.0]] * B
    zeros, positive, anything = (clipped(kind, 1.0, e).sensitivity[Unit.CLIENT_ZERO] for e in Emptied)
    mechanism = clipped(kind, 1.0, Emptied.ANYTHING)
    assert zeros < distance(mechanism, even, odd) == pytest.approx(positive)
    assert positive < distance(mechanism, even, [[-9.0, 0.0, 0.0]] * B) == pytest.approx(anything)


def test_the_paper_declares_the_clip_for_a_device_with_zeros_for_data():
    """vimadmm.txt Lemma 6, which is sound for models that send zeros for zeros."""
    for emptied in Emptied:
        mechanism = ClientClip(noise_std=1.0, clip=3.0, emptied=emptied)
        assert mechanism.declared[Unit.CLIENT_ZERO] == 3.0
        assert (mechanism.declared == mechanism.sensitivity) == (emptied is Emptied.ZEROS)


@pytest.mark.parametrize(
    ("variant", "changes", "expected"),
    [
        ("linear-admm-client", {}, Emptied.ZEROS),
        ("vimadmm-client", {}, Emptied.NON_NEGATIVE),
        ("vimadmm-j-client", {}, Emptied.ANYTHING),
        ("fdml-client", {}, Emptied.ANYTHING),
        ("split-client", {"aggregation": "concat"}, Emptied.NON_NEGATIVE),
        ("split-client", {"aggregation": "sum"}, Emptied.ANYTHING),
        ("zoo-vfl-embedding", {}, Emptied.NON_NEGATIVE),
        ("czofo-embedding", {"aggregation": "sum"}, Emptied.ANYTHING),
    ],
)
def test_engines_know_what_their_models_make_of_zeros(variant, changes, expected):
    system = make_system(variant, **changes)
    (mechanism,) = system.engine.mechanisms(system.settings, system.schedule).values()
    assert mechanism.emptied is expected
    engine = system.train([0])
    for m, model in enumerate(engine.bank.models):
        noisy = {
            n: v + torch.randn(v.shape, generator=torch.Generator().manual_seed(m))
            for n, v in engine.bank.parameters[m].items()
        }
        block = engine.data.blocks[m][:50].flatten(1)
        blank, sent = model.apply(noisy, 0 * block), model.apply(noisy, block)
        assert bool((blank == 0).all()) == (expected is Emptied.ZEROS)
        assert bool((torch.stack((blank, sent)) >= 0).all()) == (expected is Emptied.NON_NEGATIVE)


def test_the_first_convolution_of_a_resnet_makes_zeros_of_zeros():
    assert Emptied.by("resnet18-stem", logits=False) is Emptied.ZEROS
    assert Emptied.by("transformer-embedding", logits=False) is Emptied.ANYTHING
    stem = Stem((1, 4, 4), 3)
    assert not stem(torch.zeros(2, 16)).any()
    assert (stem(torch.randn(2, 16, generator=torch.Generator().manual_seed(0))) < 0).any()


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
