"""The sensitivity search: it catches the published clip, reaches every true bound, and its witnesses replay."""

from __future__ import annotations

import pytest

from vflpriv.audits.sensitivity import SensitivityAudit
from vflpriv.core.units import Unit
from vflpriv.training.mechanisms.base import Mechanism, ScalarMean, VectorMean
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip, Emptied

SOUND: dict[str, Mechanism] = {
    "scalar": ScalarMean(noise_std=1.0, clip=10.0, batch_size=64),
    "vector": VectorMean(noise_std=1.0, clip=2.0, batch_size=16),
    "client": ClientClip(noise_std=1.0, clip=3.0, emptied=Emptied.ZEROS),
    "embedding": EmbeddingClip(noise_std=1.0, clip=3.0, batch_size=32),
}


@pytest.mark.parametrize("name", list(SOUND))
def test_sound_bounds_hold_and_are_reached(name):
    size = getattr(SOUND[name], "batch_size", 32)
    findings = SensitivityAudit().search_all({name: SOUND[name]}, batch_size=size, seed=0)
    assert {f.unit for f in findings} == set(SOUND[name].declared)
    for finding in findings:
        assert finding.holds, finding
        assert finding.observed > 0.99 * finding.declared, finding


@pytest.mark.parametrize("emptied", [Emptied.NON_NEGATIVE, Emptied.ANYTHING])
def test_lemma_6_is_caught_where_models_answer_zeros_with_something_else(emptied):
    mechanism = ClientClip(noise_std=1.0, clip=3.0, emptied=emptied)
    findings = SensitivityAudit().search_all({"embeddings": mechanism}, batch_size=16, seed=0)
    broken = {f.unit: f for f in findings if not f.holds}
    assert set(broken) == {Unit.CLIENT_ZERO}
    bound = mechanism.sensitivity[Unit.CLIENT_ZERO]
    assert 0.99 * bound < broken[Unit.CLIENT_ZERO].observed <= bound * (1 + 1e-9)


def test_the_published_clip_is_caught_for_every_unit():
    mechanism = ScalarMean(noise_std=1.0, clip=10.0, batch_size=64, two_sided=False)
    findings = SensitivityAudit().search_all({"zo-scalar": mechanism}, batch_size=64, seed=0)
    assert {f.unit for f in findings} == set(Unit)
    assert not any(f.holds for f in findings)
    record = next(f for f in findings if f.unit is Unit.RECORD)
    assert record.declared == 20 / 64
    assert record.observed > 100 * record.declared
    assert record.witness.startswith("record 0: ")


@pytest.mark.parametrize("two_sided", [True, False])
def test_witnesses_replay(two_sided):
    mechanism = ScalarMean(noise_std=1.0, clip=10.0, batch_size=64, two_sided=two_sided)
    for finding in SensitivityAudit().search_all({"x": mechanism}, batch_size=64, seed=3):
        gap = mechanism.noiseless(finding.values) - mechanism.noiseless(finding.neighbour)
        assert float(gap.norm()) == pytest.approx(finding.observed)
        if finding.unit.per_record:
            assert int((finding.values != finding.neighbour).sum()) <= 1


def test_a_bound_a_hundredth_too_small_is_caught():
    class TooSmall(ScalarMean):
        @property
        def declared(self):
            return {unit: 0.99 * bound for unit, bound in super().declared.items()}

    mechanism = TooSmall(noise_std=1.0, clip=10.0, batch_size=64)
    assert not any(f.holds for f in SensitivityAudit().search_all({"x": mechanism}, batch_size=64, seed=0))


def test_the_seed_decides():
    mechanism = {"x": ClientClip(noise_std=1.0, clip=3.0)}
    first, again = (SensitivityAudit().search_all(mechanism, batch_size=8, seed=1) for _ in range(2))
    assert [f.observed for f in first] == [f.observed for f in again]
