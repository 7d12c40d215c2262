"""Trainings of engines under the tracer: the gaps that it sees are those of twin runs, engine by engine."""

from __future__ import annotations

import math

import pytest

from tests.support import ENGINES, make_system
from vflpriv.audits.flow.audit import FlowAudit
from vflpriv.audits.flow.engines import engine_program
from vflpriv.audits.flow.observation import Observation, observe
from vflpriv.audits.twins.pairs import TwinCanary, plan_twins, run_twins
from vflpriv.core.audit import AuditContext, Finding
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.systems import System
from vflpriv.core.units import Unit

ROUNDS = 3


def twins_mu(system: System, canary: TwinCanary) -> float | None:
    """μ of a pair by twin runs; None of an engine without noise."""
    values = [pair for twins in run_twins(system, [canary]) for pair in zip(*twins.values, strict=True)]
    if not values:
        return None
    gaps = ((own.noiseless.double() - other.noiseless.double()) / own.std for own, other in values)
    return math.sqrt(sum(float(gap.square().sum()) for gap in gaps))


def followed(system: System, canary: TwinCanary) -> Observation:
    return observe(engine_program(system, canary), "eavesdropper", 0)


def pair_of(system: System, unit: Unit) -> TwinCanary:
    return next(canary for canary in plan_twins(system, [unit]) if canary.unit is unit)


NOISED = [
    name
    for name, (_, settings) in ENGINES.items()
    if {"noise_std", "protection", "server_noise_std"} & settings.keys() and settings.get("protection") != "none"
]


def protected_unit(variant: str) -> Unit:
    """What the variant's noise is on."""
    return Unit.FEATURES if "protection" in ENGINES[variant][1] else Unit.LABEL


CASES = [
    pytest.param(name, unit, marks=[] if unit is protected_unit(name) else [pytest.mark.slow])
    for name in NOISED
    for unit in (Unit.LABEL, Unit.FEATURES)
]


@pytest.mark.parametrize(("variant", "unit"), CASES)
def test_the_figure_of_a_pair_is_that_of_twin_runs(variant: str, unit: Unit) -> None:
    system = make_system(variant, rounds=ROUNDS)
    canary = pair_of(system, unit)
    expected, observation = twins_mu(system, canary), followed(system, canary)
    states = {message.state for message in observation.messages}
    assert observation.messages
    if expected and "bare" not in states:
        # Where everything that differs is under noise, both see the same gaps.
        assert observation.loss.mu == pytest.approx(expected, rel=1e-4)
    if expected == 0 or expected is None:
        assert observation.loss.mu == 0


def test_responses_cost_what_their_law_says() -> None:
    for variant, epsilon in (("split-rr", 3.0), ("split-alibi", 2 * math.sqrt(2) / 0.5)):
        system = make_system(variant, rounds=ROUNDS)
        observation = followed(system, pair_of(system, Unit.LABEL))
        assert {message.state for message in observation.messages} <= {"clean", "sealed"}
        # ALIBI's noise lies on a grid: its scale is read off quantiles.
        assert observation.loss.epsilon == pytest.approx(epsilon, rel=1e-5)


def judged(system: System, claim: Claim) -> Finding:
    (finding,) = FlowAudit().run(system, AuditContext(claims=(claim,)))
    return finding


def claim_of(mu: float, *, unit: Unit = Unit.LABEL, view: str = "device") -> Claim:
    return Claim.of_mu(mu, 1e-5, key="c", source="s", where="w", statement="", unit=unit, view=view)


def test_a_claim_is_kept_at_the_exact_figure_and_refuted_below_it() -> None:
    system = make_system("dpzv-joint", rounds=12, noise_std=5.0)
    kept = judged(system, claim_of(100.0))
    assert kept.verdict is Verdict.CONSISTENT
    assert kept.measurement is not None
    assert kept.measurement.exact
    figure = kept.figure
    assert figure > 0
    assert judged(system, claim_of(figure)).verdict is Verdict.CONSISTENT
    below = judged(system, claim_of(figure * 0.99))
    # A gap that depends on what was sent refutes nothing by one transcript.
    assert below.verdict in (Verdict.VIOLATED, Verdict.NOT_APPLICABLE)
    assert below.verdict is Verdict.VIOLATED or "along another" in below.sentence


def test_exact_gradients_are_bare_and_name_their_line() -> None:
    system = make_system("split-sum", rounds=ROUNDS)
    finding = judged(system, claim_of(1.0))
    assert finding.verdict is Verdict.VIOLATED
    assert "without noise" in finding.sentence
    assert ".py:" in finding.note


def test_who_holds_the_private_values_is_not_asked_to_tell_them() -> None:
    system = make_system("split-sum", rounds=ROUNDS)
    finding = judged(system, claim_of(1.0, view="server"))
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert "does not hold itself" in finding.sentence
