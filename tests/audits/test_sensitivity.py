"""The sensitivity search: it catches the published clip, reaches every true bound, and its witnesses replay."""

from __future__ import annotations

import math

import pytest

from tests.support import make_system
from vflpriv.audits.sensitivity import SensitivityAudit
from vflpriv.audits.server_state import StateAudit
from vflpriv.core.audit import AuditContext
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.units import Unit
from vflpriv.training.mechanisms.base import Mechanism, OuterMean, ScalarMean, VectorMean
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip, Emptied

SOUND: dict[str, Mechanism] = {
    "scalar": ScalarMean(noise_std=1.0, clip=10.0, batch_size=64),
    "vector": VectorMean(noise_std=1.0, clip=2.0, batch_size=16),
    "outer": OuterMean(noise_std=1.0, clip=2.0, batch_size=16, slopes=3),
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


@pytest.mark.parametrize(("batch_size", "seed"), [(5, 1), (20, 1), (20, 3), (20, 10)])
def test_rows_of_zeros_have_no_gradient_and_break_nothing(batch_size, seed):
    mechanism = EmbeddingClip(noise_std=1.0, clip=1.0, batch_size=batch_size)
    for pair in SensitivityAudit().search_all({"x": mechanism}, batch_size=batch_size, seed=seed):
        assert pair.holds, pair
        assert math.isfinite(pair.observed)


@pytest.mark.parametrize("clip", [1e-200, 1e200])
@pytest.mark.parametrize("mechanism", [ClientClip, EmbeddingClip, VectorMean])
def test_absurd_clips_are_not_called_broken(mechanism, clip):
    sizes = {} if mechanism is ClientClip else {"batch_size": 8}
    pairs = SensitivityAudit().search_all({"x": mechanism(noise_std=1.0, clip=clip, **sizes)}, batch_size=8, seed=1)
    proven = [pair for pair in pairs if not pair.published]
    assert proven
    assert all(pair.holds for pair in proven), proven


def test_a_release_that_is_not_finite_is_a_finding():
    class Divides(EmbeddingClip):
        def noiseless(self, values):
            return self.clip * values / values.norm(dim=-1, keepdim=True)

    mechanism = Divides(noise_std=1.0, clip=1.0, batch_size=8)
    pair = next(iter(SensitivityAudit().search_all({"x": mechanism}, batch_size=8, seed=0)))
    assert not pair.holds
    assert pair.observed == math.inf
    assert pair.values.isfinite().all()
    assert "releases a value that is not finite for a finite input" in pair.sentence


def own_claim(unit: Unit = Unit.CLIENT_ZERO) -> Claim:
    return Claim.of_mu(9.0, 1e-5, key="own", source="", where="", statement="", unit=unit, view="server")


@pytest.mark.parametrize("audit", [SensitivityAudit, StateAudit])
def test_a_published_bound_is_a_premise_of_published_claims_alone(audit):
    system = make_system("vimadmm-client", clip=0.5)
    (paper,), own = system.claims, own_claim()
    findings = audit().run(system, AuditContext(claims=(paper, own)))
    broken = [f for f in findings if f.verdict is Verdict.VIOLATED]
    assert broken
    assert all(f.bears_on(paper) and not f.bears_on(own) for f in broken)
    assert any(f.bears_on(own) and f.verdict is Verdict.CONSISTENT for f in findings)


@pytest.mark.parametrize("audit", [SensitivityAudit, StateAudit])
def test_no_published_bound_is_checked_where_no_published_claim_is(audit):
    findings = audit().run(make_system("vimadmm-client", clip=0.5), AuditContext(claims=(own_claim(),)))
    assert any(f.bears_on(own_claim()) for f in findings)
    assert not any(f.verdict is Verdict.VIOLATED for f in findings)


def test_a_clip_that_proves_nothing_breaks_a_users_claim_too():
    own = own_claim(Unit.RECORD)
    findings = SensitivityAudit().run(make_system("dpzv-joint", clip_rule="paper"), AuditContext(claims=(own,)))
    assert any(f.verdict is Verdict.VIOLATED and f.bears_on(own) for f in findings)


@pytest.mark.parametrize(("declared", "observed", "climbed"), [(0.05, 7.0, 0), (20.0, 7.0, 3), (0.05, 4.0, 3)])
def test_a_search_ends_where_a_bound_is_broken_a_hundred_times(declared, observed, climbed, monkeypatch):
    """At a bound of 0.05 a difference of 7 is beyond doubt, at one of 20 it is none."""
    mechanism = ScalarMean(noise_std=1.0, clip=1.0, batch_size=8)
    monkeypatch.setattr(type(mechanism), "declared", property(lambda self: {Unit.LABEL: declared}))
    search, climbs = SensitivityAudit(climbs=3), []
    uphill = SensitivityAudit._uphill

    def counted(self, *arguments):
        climbs.append(1)
        return uphill(self, *arguments)

    monkeypatch.setattr(SensitivityAudit, "_uphill", counted)
    monkeypatch.setattr(SensitivityAudit, "_best", lambda self, mechanism, unit, pairs: (pairs[:, 0], observed))
    search.search("scalar", mechanism, Unit.LABEL, batch_size=8, seed=0)
    assert len(climbs) == climbed
