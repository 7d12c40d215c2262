"""Trainings of engines under the tracer: the gaps that it sees are those of twin runs, engine by engine."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support import ENGINES, make_system
from vflpriv.audits.flow.audit import FlowAudit, FlowSettings
from vflpriv.audits.flow.engines import engine_program
from vflpriv.audits.flow.observation import Observation, observe
from vflpriv.audits.twins.pairs import TwinCanary, plan_twins, run_twins
from vflpriv.common.registry import available
from vflpriv.core.audit import AuditContext, Finding
from vflpriv.core.budgets import epsilon_of
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

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


def test_every_variant_with_noised_releases_is_compared_with_twin_runs() -> None:
    systems = {name: make_system(name, rounds=ROUNDS) for name in ENGINES}
    noised = {n for n, s in systems.items() if any(r.noise.noised and not r.once for r in s.ledger.releases)}
    assert noised == set(NOISED)
    assert {name for name, _ in ENGINES.values()} >= set(available("engine"))


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
        assert observation.loss.mu == pytest.approx(expected, rel=1e-6)
    if expected == 0 or expected is None:
        assert observation.loss.mu == 0


RESPONSES = [
    ("split-rr", {}, 3.0),
    ("vimadmm-j-rr", {}, 3.0),
    ("zoo-vfl-gaussian", {}, 3.0),
    ("split-alibi", {}, 2 * math.sqrt(2) / 0.5),
    ("vimadmm-alibi", {}, 2 * math.sqrt(2) / 0.5),
    ("noise-once", {}, 3.0),
    ("noise-once", {"label_noise": 0.3}, 0.3),
    ("split-lp-mst", {"rounds": 9}, 3.0),
    ("zoo-vfl-prior", {"rounds": 9, "label_prior": [0.3, 0.3, 0.4]}, 3.0),
]
"""Variants with responses, in settings in which the label of the pair is answered, and the ε of one label."""


@pytest.mark.parametrize(("variant", "changes", "epsilon"), RESPONSES)
def test_responses_cost_what_their_law_says(variant: str, changes: dict[str, Any], epsilon: float) -> None:
    system = make_system(variant, **{"rounds": ROUNDS, **changes})
    observation = followed(system, pair_of(system, Unit.LABEL))
    assert {message.state for message in observation.messages} <= {"clean", "sealed"}
    assert not observation.unknown
    assert observation.loss.mu == 0
    assert observation.loss.epsilon == pytest.approx(epsilon, rel=1e-6)


def test_every_variant_with_responses_is_among_those_with_a_closed_form() -> None:
    responding = {name for name, (_, settings) in ENGINES.items() if "label_protection" in settings}
    assert responding == {variant for variant, _, _ in RESPONSES}


def test_responses_under_the_predictions_of_a_model_cost_no_more_than_the_law_says() -> None:
    for variant in ("zoo-vfl-prior", "split-lp-mst"):
        system = make_system(variant, rounds=9, **({"label_stages": 2} if "mst" in variant else {}))
        observation = followed(system, pair_of(system, Unit.LABEL))
        assert {message.state for message in observation.messages} <= {"clean", "sealed"}
        assert observation.loss.epsilon <= 3.0 + 1e-6


@pytest.mark.parametrize("variant", ["dpzv-joint", "dpzv-sgd"])
def test_the_published_clip_has_the_figure_of_its_pair(variant: str) -> None:
    system = make_system(variant, rounds=ROUNDS, clip_rule="paper")
    canary = pair_of(system, Unit.LABEL)
    observation = followed(system, canary)
    assert observation.loss.mu == pytest.approx(twins_mu(system, canary), rel=1e-6)
    # Nothing bounds terms from below: one label moves the sum by far more than the clip.
    assert observation.loss.mu > 10 * followed(make_system(variant, rounds=ROUNDS), canary).loss.mu


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
    assert below.verdict in (Verdict.VIOLATED, Verdict.UNMEASURED)
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


def test_a_second_observation_is_under_other_draws() -> None:
    system = make_system("dpzv-joint", rounds=ROUNDS)
    canary = pair_of(system, Unit.LABEL)
    first, second = (observe(engine_program(system, canary), "eavesdropper", seed) for seed in (0, 1))
    sent = [next(m for m in o.messages if m.state == "sealed").trail.message.tensors for o in (first, second)]
    assert any(not torch.equal(sent[0][name], sent[1][name]) for name in sent[0])


def test_whoever_holds_the_model_is_sent_it_at_the_end_and_nothing_else() -> None:
    system = make_system("dpzv-joint", rounds=ROUNDS)
    kept = judged(system, claim_of(25.0, view="model"))
    assert kept.verdict is Verdict.CONSISTENT
    assert "1 messages under noise, 0 without private values" in kept.sentence
    # Scalars are not sent to it: what it is sent is made of them, and no figure is known from below.
    assert kept.measurement is None
    assert judged(system, claim_of(0.01, view="model")).verdict is Verdict.UNMEASURED
    # A server that updates without noise keeps every label in its model.
    leaking = judged(make_system("dpzv-sgd", rounds=ROUNDS), claim_of(25.0, view="model"))
    assert leaking.verdict is Verdict.VIOLATED
    assert leaking.subject == "trained-model"


def test_a_model_that_is_trained_for_longer_than_is_followed_is_not_looked_at() -> None:
    system = make_system("dpzv-joint", rounds=ROUNDS)
    settings = FlowSettings(rounds=ROUNDS - 1)
    (finding,) = FlowAudit().run(system, AuditContext(claims=(claim_of(25.0, view="model"),), settings=settings))
    assert finding.is_untested
    assert "there after 3 rounds, and 2 are followed" in finding.sentence


def test_rounds_that_are_not_followed_leave_a_figure_that_is_a_bound() -> None:
    """Margin: both add up the same moves, in single precision: they are 6e-8 of the figure apart, 1e-6 is allowed."""
    system = make_system("dpzv-joint", rounds=12, noise_std=5.0)
    claim = claim_of(100.0, view="eavesdropper")
    (half,) = FlowAudit().run(system, AuditContext(claims=(claim,), settings=FlowSettings(rounds=6)))
    whole = judged(system, claim)
    assert half.measurement is not None
    assert whole.measurement is not None
    assert (half.measurement.exact, whole.measurement.exact) == (False, True)
    # What sits at the clip is added up over the rounds that are not followed, too.
    assert 0 < half.figure <= whole.figure * (1 + 1e-6)


def test_a_claim_of_epsilon_at_a_delta_is_compared_with_that_of_the_exact_figure() -> None:
    system = make_system("dpzv-joint", rounds=12, noise_std=5.0)
    figure = judged(system, claim_of(100.0)).figure
    claim = Claim.of_epsilon(
        epsilon_of(figure, 1e-3), 1e-3, key="c", source="s", where="w", statement="", unit=Unit.LABEL, view="device"
    )
    finding = judged(system, claim)
    assert finding.verdict is Verdict.CONSISTENT
    assert finding.measurement is not None
    assert (finding.measurement.mu, finding.measurement.decides) == (pytest.approx(figure), "ε")
    assert finding.figure == pytest.approx(claim.epsilon)
    pure = replace(claim, unit=Unit.FEATURES, epsilon=1e4, delta=0.0, adversary=Adversary("server"))
    refuted = judged(make_system("split-client", rounds=ROUNDS), pure)
    assert refuted.verdict is Verdict.VIOLATED, "no Gaussian noise keeps a claim of pure ε"


def test_a_response_that_training_reads_is_bounded_from_above_alone() -> None:
    system = make_system("split-rr", rounds=ROUNDS)

    def claim(epsilon: float) -> Claim:
        return Claim.of_epsilon(
            epsilon, 0.0, key="c", source="s", where="w", statement="", unit=Unit.LABEL, view="device"
        )

    assert judged(system, claim(3.0)).verdict is Verdict.CONSISTENT
    assert "ε of this pair is at most 3" in judged(system, claim(3.0)).sentence
    beyond = judged(system, claim(1.5))
    assert beyond.verdict is Verdict.UNMEASURED
    assert "between 0 and 3, and 1.5 is claimed" in beyond.sentence
