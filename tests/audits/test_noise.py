"""The noise audit: every released value has a declared draw of its own on it, in all rounds; what has none is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.mutations.dpzv import Point, dpzv_case
from tests.mutations.noise import _engine
from tests.support import ENGINES, make_system
from vflpriv.audits.noise import FreshDraws, NoiseAudit, noise_of_kinds, smallest_noise
from vflpriv.audits.twins.probes import Released
from vflpriv.common.random import Drawn
from vflpriv.core.audit import AuditContext
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.units import Unit
from vflpriv.laws import Exact, Gaussian

LATE = 104
"""A round that the flow audit does not follow."""


class _Scaled(Point):
    share = 1.0

    def drawn(self, contributions, normals):
        return self.share * normals


class _Half(_Scaled):
    share = 0.5


class _Larger(_Scaled):
    share = 1.5


class _Again(Point):
    """The draws of a hundred rounds before return."""

    def drawn(self, contributions, normals):
        return self.noise.scalar(contributions.round % LATE)


class _Quiet(Point):
    def drawn(self, contributions, normals):
        return 0 * normals if contributions.round == LATE else normals


class _Own(Point):
    """Noise of the right law, from a generator of its own."""

    def drawn(self, contributions, normals):
        return torch.randn(normals.shape)


class _Seeded(Point):
    """Noise of the right law, which follows from the seed that the engine is configured with."""

    def drawn(self, contributions, normals):
        generator = torch.Generator().manual_seed(self.engine.seed + contributions.round)
        return torch.randn(normals.shape, generator=generator)


def system_with(point, *, rounds=12):
    case = dpzv_case(_engine("noised", point), rounds=rounds)
    return case.system(1)


def claim(unit=Unit.RECORD, view="devices(all)"):
    return Claim.of_epsilon(1.0, 1e-5, key=view, source="", where="", statement="", unit=unit, view=view)


def audited(point, *claims, **options):
    return NoiseAudit().run(system_with(point, **options), AuditContext(claims=claims))


@pytest.mark.parametrize("variant", sorted(ENGINES))
def test_every_engine_draws_as_it_declares(variant):
    for kind in noise_of_kinds(make_system(variant)):
        assert kind.holds, kind.sentence
        assert kind.values > 0


@pytest.mark.parametrize("point", [_Again, _Quiet])
def test_what_goes_wrong_after_the_rounds_that_are_followed_leaves_claims_unmeasured(point):
    finding, unmeasured = audited(point, claim(), rounds=LATE + 2)
    assert finding.evidence.without[0] == LATE
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert (unmeasured.verdict, unmeasured.claim) == (Verdict.UNMEASURED, "devices(all)")
    assert f"first in round {LATE}" in unmeasured.sentence


def test_claims_that_no_trace_speaks_of_rest_on_all_rounds():
    findings = audited(_Own, claim(), claim(Unit.RECORD, "outsider"), claim(Unit.ADD_REMOVE, "eavesdropper"))
    assert [f.claim for f in findings if f.verdict is Verdict.UNMEASURED] == ["outsider", "eavesdropper"]


def test_less_noise_than_declared_is_accounted_for():
    system = system_with(_Half)
    (finding,) = NoiseAudit().run(system, AuditContext(claims=(claim(),)))
    assert finding.verdict is Verdict.UNSUPPORTED
    (declared,) = (r.noise for r in system.ledger.releases if r.kind == finding.subject)
    assert [r.noise.deviation for r in finding.undeclared] == [pytest.approx(0.5 * declared.deviation, rel=1e-3)]


@pytest.mark.parametrize("point", [_Larger, _Own])
def test_noise_that_is_there_in_another_way_is_a_note(point):
    (finding,) = audited(point, claim())
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert len(finding.evidence.without) == 12
    assert not finding.undeclared


def test_noise_that_follows_from_a_public_seed_is_none():
    (finding,) = audited(_Seeded, claim())
    assert finding.verdict is Verdict.UNSUPPORTED
    assert [r.noise for r in finding.undeclared] == [Exact()]


def test_the_smallest_noise_is_that_of_seals():
    system = system_with(_Larger)
    (declared,) = (r.noise for r in system.ledger.releases if r.kind == "zo-scalar")
    sizes = smallest_noise(system, [claim()], ["zo-scalar"])
    assert sizes == {"zo-scalar": pytest.approx(1.5 * declared.deviation, rel=1e-3)}
    assert smallest_noise(system, [claim(Unit.RECORD, "outsider")], ["zo-scalar"]) == {}


def value(noise, signal=0.0):
    noiseless = torch.full((1, len(noise)), signal)
    return Released(kind="x", std=2.0, party=0, noiseless=noiseless, released=noiseless + 2.0 * torch.tensor([noise]))


def told(*numbers, law="gaussian"):
    return Drawn(torch.tensor([numbers], dtype=torch.float64), law, ())


def test_a_draw_is_on_one_value():
    draws, law = FreshDraws(), Gaussian(2.0)
    draws(told(0.3, -1.2, 0.7))
    assert draws.on(value([-1.2, 0.7], signal=100.0), law)
    assert not draws.on(value([-1.2]), law)
    assert not draws.on(value([-1.2, 0.7]), law)
    assert not draws.on(value([0.3, -1.2]), law)
    assert draws.on(value([0.3]), law)


def test_draws_for_later_rounds_are_kept_and_those_of_one_round_are_not():
    draws, law = FreshDraws(), Gaussian(2.0)
    draws(told(0.3, -1.2))
    draws(told(0.9, 0.8))
    assert draws.on(value([0.3]), law)
    draws.end_round()
    assert draws.on(value([-1.2]), law)
    assert not draws.on(value([0.9, 0.8]), law)


def test_only_noise_counts_as_a_draw():
    draws = FreshDraws()
    draws(told(0.3, law="uniform"))
    assert not draws.on(value([0.3]), Gaussian(2.0))
    draws(told(0.3))
    assert not draws.on(replace(value([0.3]), released=torch.tensor([[0.61]])), Gaussian(2.0))
