"""Trials test a claim as it is stated: μ-GDP as a whole trade-off curve, (ε, δ) as nothing more than (ε, δ)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.audits.statistics.mechanisms import allowed
from vflpriv.audits.one_run import OneRun
from vflpriv.audits.statistics.bounds import p_value_rectangle
from vflpriv.audits.statistics.one_run import Guesses
from vflpriv.audits.statistics.sequential import look_times
from vflpriv.audits.two_world.findings import trial_finding
from vflpriv.audits.two_world.trials import Trials
from vflpriv.audits.verdict import Accounted, SystemEvidence, decide
from vflpriv.common.numerics import Floats
from vflpriv.core.audit import EPSILON, MU, AuditContext, Finding
from vflpriv.core.budgets import Budget, epsilon_of
from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

VIEW = Adversary.parse("device(0)")
CANARY = Canary(kind=CanaryKind.NATURAL, record=0, world=torch.zeros(1), labels=(0, 1), unit=Unit.LABEL)
NAMES = {"key": "test", "source": "-", "where": "-", "statement": "-", "unit": Unit.LABEL, "view": "device(0)"}


def trials(
    inside: Floats,
    outside: Floats,
    *,
    method: str = "twins",
    threshold: float = 0.0,
    looks: tuple[int, ...] = (),
    strengths: Floats | None = None,
) -> Trials:
    return Trials(
        adversary=VIEW,
        canary=CANARY,
        scores=(inside, outside),
        strengths=np.zeros(0) if strengths is None else strengths,
        method=method,
        threshold=threshold,
        looks=looks,
    )


def of_epsilon(epsilon: float, delta: float) -> Claim:
    return Claim.of_epsilon(epsilon, delta, **NAMES)  # type: ignore[arg-type]


def of_mu(mu: float, delta: float = 1e-5) -> Claim:
    return Claim.of_mu(mu, delta, **NAMES)  # type: ignore[arg-type]


def found(tested: Trials, claim: Claim) -> Finding:
    return trial_finding(claim, CanaryKind.NATURAL, tested, AuditContext(claims=(claim,)))


def verdict(claim: Claim, *findings: Finding, alpha: float = 0.001) -> Verdict:
    """On a claim within what is accounted."""
    budget = Budget(accountant="-", method="-", delta=claim.delta, lower=0.0, estimate=0.0, upper=claim.epsilon)
    accounted = {claim.key: Accounted(rigorous=budget)}
    system = SystemEvidence(key="s", claims=(claim,), accounted=accounted, findings=findings)
    return decide([system], alpha=alpha).systems["s"].judgements[claim.key].verdict


@pytest.mark.parametrize("method", ["secret batches", "twins", "shadow models", "learned", "whole view"])
def test_a_mechanism_that_seldom_reveals_all_keeps_its_delta(method: str) -> None:
    """In one training of twenty the world is told: (0, 0.05), which every (FPR, FNR) = (0, 0.95) below G_μ hides."""
    rng, claim = np.random.default_rng(0), of_epsilon(0.01, 0.05)
    for _ in range(50):
        told = trials((rng.random(1000) < 0.05).astype(float), np.zeros(1000), method=method, threshold=0.5)
        assert verdict(claim, found(told, claim)) is Verdict.CONSISTENT
        assert p_value_rectangle(told.errors, claim.mu) < 1e-3, "as a curve it would be refuted"
        assert verdict(of_mu(claim.mu), found(told, of_mu(claim.mu))) is Verdict.VIOLATED, "and that claim is broken"


def gaussian(mu: float, count: int, rng: np.random.Generator, *, method: str = "likelihood ratio") -> Trials:
    inside, outside = (mu * rng.normal(sign * mu / 2, 1, count) for sign in (1, -1))
    return trials(inside, outside, method=method, strengths=np.full(2 * count, mu * mu))


def test_likelihood_ratios_of_equal_distance_are_a_gaussian_curve_and_the_finding_says_what_it_assumes() -> None:
    tested, claim = gaussian(1.0, 500, np.random.default_rng(0)), of_epsilon(1.0, 1e-3)
    finding = found(tested, claim)
    assert (finding.measure, finding.verdict) == (MU, Verdict.VIOLATED)
    assert finding.sentence.endswith(", assuming Gaussian noise")
    stated = found(tested, of_mu(claim.mu, 1e-3))
    assert (stated.measure, stated.p_value) == (MU, finding.p_value)
    assert not stated.sentence.endswith("noise")


def test_where_the_distance_follows_the_noise_epsilon_and_delta_decide() -> None:
    """Sums that stop once they reach ±1 tell the worlds apart as randomised response of ε = 1 does."""
    rng, claim = np.random.default_rng(0), of_epsilon(1.0, 1e-3)
    kept = 1 / (1 + np.exp(-1.0))
    inside, outside = (sign * np.where(rng.random(2000) < kept, 1.0, -1.0) for sign in (1, -1))
    tested = trials(inside, outside, method="likelihood ratio", strengths=rng.uniform(0.5, 2, 4000))
    finding = found(tested, claim)
    assert (finding.measure, verdict(claim, finding)) == (EPSILON, Verdict.CONSISTENT)
    assert verdict(of_mu(claim.mu), found(tested, of_mu(claim.mu))) is Verdict.VIOLATED


def coins(canaries: int, right: int) -> OneRun:
    return OneRun(
        adversary=VIEW,
        scores=np.zeros(canaries),
        worlds=np.zeros(canaries, dtype=np.int64),
        set_aside=0,
        guesses=Guesses(canaries=canaries, made=canaries, right=right),
    )


def test_a_claim_of_a_curve_is_refuted_by_guesses_that_its_epsilon_allows() -> None:
    """As randomised response of ε = 1 is guessed: μ = 0.268, whose ε is 1 at δ = 1e-5, allows 55 % of single coins."""
    curve, pair = of_mu(0.268), of_epsilon(1.0, 1e-5)

    def judged(claim: Claim, canaries: int, right: int, *, alpha: float = 0.001) -> Verdict:
        finding = coins(canaries, right).finding(claim, AuditContext())
        return verdict(claim, finding, alpha=alpha)

    assert judged(curve, 450, 331, alpha=0.05) is Verdict.VIOLATED
    assert judged(curve, 900, 662) is Verdict.VIOLATED
    assert judged(pair, 900, 662) is Verdict.CONSISTENT


REPETITIONS = 1000


def _name(claim: Claim) -> str:
    return f"mu={claim.mu:g}" if claim.stated == "mu" else f"epsilon={claim.epsilon:g}"


def at_the_claim(claim: Claim, rng: np.random.Generator, looks: tuple[int, ...]) -> Trials:
    """Trials of a mechanism that meets its claim exactly: Gaussian, or randomised response that δ makes worse."""
    if claim.stated == "mu":
        inside, outside = (rng.normal(sign * claim.mu / 2, 1, 200) for sign in (1, -1))
    else:
        right = (claim.delta + np.exp(claim.epsilon)) / (1 + np.exp(claim.epsilon))
        inside, outside = (sign * np.where(rng.random(200) < right, 1.0, -1.0) for sign in (1, -1))
    return trials(inside, outside, looks=looks)


@pytest.mark.parametrize("looks", [(), look_times(200)], ids=["fixed", "sequential"])
@pytest.mark.parametrize("claim", [of_mu(0.5), of_mu(2.0), of_epsilon(1.0, 0.02), of_epsilon(2.0, 1e-5)], ids=_name)
def test_a_mechanism_at_its_claim_is_hardly_ever_called_violated(claim: Claim, looks: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    findings = [found(at_the_claim(claim, rng, looks), claim) for _ in range(REPETITIONS)]
    wrong = np.mean([verdict(claim, finding) is Verdict.VIOLATED for finding in findings])
    assert wrong <= allowed(REPETITIONS, 0.001)
    if not looks:
        at_five_percent = np.mean([verdict(claim, finding, alpha=0.05) is Verdict.VIOLATED for finding in findings])
        assert 0.02 < at_five_percent <= allowed(REPETITIONS), "the same simulation sees the error of another level"


def test_the_epsilon_of_a_curve_is_that_at_its_delta() -> None:
    assert of_mu(1.0).epsilon == epsilon_of(1.0, 1e-5)
    assert (of_mu(1.0).stated, of_epsilon(1.0, 1e-5).stated) == ("mu", "epsilon")
