"""Claims that trials refute are tested on fresh ones: false alarms at the boundary go, and power stays."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from tests.support import make_system
from vflpriv.audits.statistics.bounds import Errors, mu_error_rate, p_value_gdp
from vflpriv.audits.statistics.confirmation import MORE, by_both, suspected, times_as_many
from vflpriv.audits.two_world.audit import TwoWorldAudit
from vflpriv.core.audit import MU, AuditContext, ClaimTest, Finding, Measurement, measured
from vflpriv.core.canaries import TwoWorldSettings
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

CLAIM = Claim.of_mu(1.0, 1e-5, key="c", source="s", where="w", statement="", unit=Unit.RECORD, view="device")
CONTEXT = AuditContext(claims=(CLAIM,), verdict_confidence=0.9)
"""So low a confidence that false alarms can be counted."""
TRIALS = 200


def trial(mu: float, rng: np.random.Generator, trials: int = TRIALS) -> Finding:
    """The test of the claim by trials of a mechanism that is exactly mu-GDP."""
    wrong = [int((rng.normal(mu / 2, 1.0, trials) < 0).sum()) for _ in range(2)]
    errors = Errors(false_positives=wrong[0], negatives=trials, false_negatives=wrong[1], positives=trials)

    def against(claim: Claim) -> ClaimTest:
        return ClaimTest(MU, mu_error_rate(errors, 0.95), p_value_gdp(errors, claim.mu))

    measurement = Measurement(
        unit=Unit.RECORD,
        view=CLAIM.adversary,
        method="likelihood ratio",
        outcome="trials",
        decides=MU,
        mu=mu_error_rate(errors, 0.95),
        p_value=against(CLAIM).p_value,
        trials=trials,
        against=against,
    )
    return measured("two-world", "worst-case", CLAIM, measurement, CONTEXT)


def decided(mu: float, rng: np.random.Generator) -> tuple[bool, bool]:
    """Whether the first trials refute the claim, and whether it is refuted in the end."""
    first = trial(mu, rng)
    if CLAIM.key not in suspected([[first]], CONTEXT):
        return False, False
    fresh = trial(mu, rng, TRIALS * times_as_many([first], CONTEXT))
    return True, by_both(first, fresh).verdict is Verdict.VIOLATED


def test_at_the_boundary_false_alarms_go_and_beyond_it_power_stays() -> None:
    rng = np.random.default_rng(1)
    outcomes = np.array([decided(1.0, rng) for _ in range(3000)])
    once, both = outcomes.mean(axis=0)
    alpha = CONTEXT.verdict_alpha
    # Bounds on μ are at 95 %, so that the first trials alone accuse in up to one of twenty.
    assert 0.02 < once < alpha
    assert both < once / 8
    # What is well beyond the claim is refuted nearly as often as before.
    beyond = np.array([decided(1.6, rng) for _ in range(300)]).mean(axis=0)
    assert beyond[0] > 0.95
    assert beyond[1] > 0.99 * beyond[0]


def test_the_p_value_of_both_is_the_larger_one_for_any_claim() -> None:
    rng = np.random.default_rng(2)
    first, fresh = trial(2.0, rng), trial(1.2, rng)
    both = by_both(first, fresh)
    assert both.p_value == max(first.p_value or 0.0, fresh.p_value or 0.0)
    assert both.figure == fresh.figure, "figures of the first trials were looked at"
    other = replace(CLAIM, mu=0.7)
    assert both.measurement is not None
    assert both.measurement.against is not None
    assert both.measurement.against(other).p_value == max(
        finding.measurement.against(other).p_value  # type: ignore[union-attr, misc]
        for finding in (first, fresh)
    )
    assert both.verdict is fresh.verdict
    assert f"{'confirms' if fresh.verdict is Verdict.VIOLATED else 'does not confirm'} on fresh" in both.sentence
    assert "what 200 others showed (p = " in both.sentence


def test_a_claim_that_two_trainings_or_an_exact_figure_refute_needs_no_more() -> None:
    rng = np.random.default_rng(3)
    first, second, weak = trial(3.0, rng), trial(3.0, rng), trial(0.1, rng)
    assert suspected([[first]], CONTEXT) == {"c"}
    assert suspected([[first], [weak]], CONTEXT) == {"c"}
    assert suspected([[first], [second]], CONTEXT) == frozenset()
    assert suspected([[first]], replace(CONTEXT, refuted=frozenset({"c"}))) == frozenset()
    assert suspected([[weak]], CONTEXT) == frozenset()


def test_what_is_refuted_barely_is_tested_with_more() -> None:
    first = trial(3.0, np.random.default_rng(4))
    barely = replace(first, p_value=0.5 * CONTEXT.verdict_alpha)
    assert (times_as_many([first], CONTEXT), times_as_many([first, barely], CONTEXT)) == (1, MORE)
    assert times_as_many([replace(first, p_value=0.0)], CONTEXT) == 1


@pytest.mark.parametrize("errors", [1.3, 2.0, 3.0, 4.5])
def test_fresh_trials_confirm_what_is_true_however_clear_it_was(errors: float) -> None:
    """Of a statistic whose mean is as far from the claim as the first trials showed, one in a thousand falls short."""
    normal, level = NormalDist(), CONTEXT.verdict_alpha
    first = replace(trial(3.0, np.random.default_rng(4)), p_value=normal.cdf(-errors))
    times = times_as_many([first], CONTEXT)
    missed = normal.cdf(-normal.inv_cdf(level) - errors * math.sqrt(times))
    assert missed < 1e-3 or times == MORE
    assert times == 1 or normal.cdf(-normal.inv_cdf(level) - errors * math.sqrt(times - 1)) > 1e-3


@pytest.mark.parametrize(("share", "verdict"), [(0.5, Verdict.VIOLATED), (1.0, Verdict.CONSISTENT)])
def test_an_audit_confirms_on_replicas_of_its_own(share: float, verdict: Verdict) -> None:
    """A claim of half of what holds falls twice; one of what holds is tested once."""
    system = make_system("dpzv-joint", noise_std=2.0, clip=10.0, rounds=24, activation="round-robin")
    exposure = system.ledger.exposure(Adversary.parse("devices(all)"), Unit.RECORD)
    claim = replace(CLAIM, mu=share * exposure.mu, adversary=Adversary.parse("devices(all)"))
    settings = TwoWorldSettings(canaries=("worst-case",), trials=400, full_trials=32, whole_view=0)
    stages: list[str] = []

    class Stages:
        def stage(self, name: str) -> None:
            stages.append(name)

        def advance(self, number: int) -> None:
            del number

    context = AuditContext(claims=(claim,), settings=settings, progress=Stages())
    (finding,) = TwoWorldAudit().run(system, context)
    confirmed = verdict is Verdict.VIOLATED
    assert finding.verdict is verdict
    assert ("which confirms on fresh trials what 400 others showed" in finding.sentence) is confirmed
    assert any("fresh trials" in stage for stage in stages) is confirmed
    (again,) = TwoWorldAudit().run(system, context)
    assert again.p_value == finding.p_value
