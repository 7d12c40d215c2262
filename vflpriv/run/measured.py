"""From trials to the report's rows of tests, and to what the verdict reads of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vflpriv.audits.one_run import OneRun
from vflpriv.audits.scoring.labels import Attempt, Success
from vflpriv.audits.statistics.bounds import epsilon_from_mu, mu_estimate, mu_rectangle
from vflpriv.audits.statistics.one_run import epsilon_one_run, mu_one_run, p_value_one_run, p_value_one_run_gdp
from vflpriv.audits.verdict import ClaimTest, judge_success, success_p_value
from vflpriv.audits.worlds.trials import Trials
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.ledger import Exposure
from vflpriv.report.audit import MeasurementRow, OneRunRow, SuccessClaimRow
from vflpriv.run.results import Audited

__all__ = [
    "ClaimTrial",
    "Found",
    "SuccessTest",
    "claim_test",
    "measurement_row",
    "one_run_row",
    "success_row",
    "success_tests",
    "tests_of",
]


@dataclass(frozen=True, kw_only=True)
class ClaimTrial:
    """One measurement of one claim, in two worlds or in one run, with its raw p-value."""

    claim: Claim
    p_value: float
    kind: CanaryKind | None = None
    trials: Trials | None = None
    one_run: OneRun | None = None

    def mu_lower(self, confidence: float) -> float:
        """The lower bound on mu at this confidence."""
        if self.trials is not None:
            return self.trials.mu_lower(confidence)
        assert self.one_run is not None
        return mu_one_run(self.one_run.guesses, confidence)

    def epsilon_lower(self, confidence: float) -> float | None:
        """The lower bound on epsilon at the claim's delta, where the claim is tested in epsilon."""
        if self.trials is None or not self.trials.learned:
            return None
        return self.trials.epsilon_of_errors(self.claim.delta, confidence)

    @property
    def size(self) -> int:
        """Trials in each world, or guesses."""
        if self.trials is not None:
            return len(self.trials.scores[0])
        return 0 if self.one_run is None else self.one_run.guesses.made


@dataclass(frozen=True, kw_only=True)
class Found:
    """What all tests of a claim are read with."""

    adjusted: Mapping[int, float]
    """Holm's p-value of a test, by the test's id."""
    alpha: float
    refusal: str | None
    """Why a bound on mu gives no epsilon, or None where it does."""
    exposure: Exposure
    seed: int
    min_trials: int

    @property
    def confidence(self) -> float:
        return 1 - self.alpha

    def refutes(self, test: ClaimTrial) -> bool:
        """Whether this test alone makes the claim violated."""
        read = claim_test(test, self.adjusted[id(test)] <= self.alpha, self.confidence)
        return read.rejected and read.lower > read.claimed(test.claim) and test.size >= self.min_trials


def tests_of(audited: Audited) -> list[ClaimTrial]:
    """Every test of every claim; a canary only speaks of claims whose unit covers what it changes."""
    tests = []
    for claim in audited.claims:
        for kind, trials in audited.trials.get(claim.key, []):
            if claim.unit.implies(trials.unit):
                p = trials.p_value(claim)
                tests.append(ClaimTrial(claim=claim, kind=kind, trials=trials, p_value=p))
        once = audited.one_run.get(claim.key)
        if once is not None and claim.unit.implies(once.unit):
            p = _one_run_p_value(once, claim)
            tests.append(ClaimTrial(claim=claim, one_run=once, p_value=p))
    return tests


def _one_run_p_value(once: OneRun, claim: Claim) -> float:
    if once.curve:
        return p_value_one_run_gdp(once.guesses, claim.mu)
    return p_value_one_run(once.guesses, claim.epsilon, claim.delta)


def claim_test(test: ClaimTrial, rejected: bool, confidence: float) -> ClaimTest:
    """What the verdict reads of one test."""
    lower = test.mu_lower(confidence)
    if test.trials is not None and test.kind is not None:
        return ClaimTest(
            canary=test.kind.value,
            adversary=test.trials.adversary,
            errors=test.trials.errors,
            mu_lower=lower,
            p_value=test.p_value,
            rejected=rejected,
            epsilon_lower=test.epsilon_lower(confidence),
        )
    assert test.one_run is not None
    guesses, view = test.one_run.guesses, test.one_run.adversary
    return ClaimTest(
        canary="one-run",
        adversary=view,
        errors=None,
        mu_lower=lower,
        p_value=test.p_value,
        rejected=rejected,
        guesses=guesses.made,
        epsilon_lower=None if test.one_run.curve else epsilon_one_run(guesses, test.claim.delta, confidence),
        setting=f"{test.one_run.how}, view {view}, {guesses.right} of {guesses.made} coins guessed, "
        f"{guesses.canaries} canaries",
    )


def measurement_row(test: ClaimTrial, found: Found) -> MeasurementRow:
    """A two-world test."""
    trials, kind, delta = test.trials, test.kind, test.claim.delta
    assert trials is not None
    assert kind is not None
    errors, lower, exposure = trials.errors, trials.mu_lower(found.confidence), found.exposure
    sure = None if found.refusal is not None else trials.mu_known_sigma(found.confidence)
    return MeasurementRow(
        canary=kind.value,
        canary_description=kind.description,
        adversary=str(trials.adversary),
        unit=trials.unit.value,
        record=trials.canary.record,
        trials_per_world=errors.positives,
        false_positives=errors.false_positives,
        false_negatives=errors.false_negatives,
        confidence=found.confidence,
        mu_lower=lower,
        mu_estimate=mu_estimate(errors),
        mu_rectangle=mu_rectangle(errors, found.confidence),
        epsilon_lower=trials.epsilon_lower(delta, found.confidence, seed=found.seed),
        epsilon_from_mu=epsilon_from_mu(lower, delta, gaussian=found.refusal is None),
        epsilon_from_mu_refused=found.refusal,
        method=trials.method,
        threshold=trials.threshold,
        mu_known_sigma=sure,
        epsilon_known_sigma=None if sure is None else epsilon_from_mu(sure, delta, gaussian=True),
        stopped_early=bool(trials.looks),
        mu_accounted=exposure.mu if exposure.gaussian else None,
        p_value=test.p_value,
        p_adjusted=found.adjusted[id(test)],
        refutes=found.refutes(test),
        curve=tuple(trials.curve()),
    )


def one_run_row(test: ClaimTrial, found: Found) -> OneRunRow:
    """A test in one run."""
    once, delta = test.one_run, test.claim.delta
    assert once is not None
    lower, epsilon = test.mu_lower(found.confidence), epsilon_one_run(once.guesses, delta, found.confidence)
    return OneRunRow(
        adversary=str(once.adversary),
        unit=once.unit.value,
        canaries=once.guesses.canaries,
        set_aside=once.set_aside,
        guesses=once.guesses.made,
        right=once.guesses.right,
        confidence=found.confidence,
        mu_lower=lower,
        epsilon_lower=epsilon,
        epsilon_from_mu=epsilon_from_mu(lower, delta, gaussian=found.refusal is None),
        p_value=test.p_value,
        p_adjusted=found.adjusted[id(test)],
        refutes=found.refutes(test),
        assumptions=once.assumptions,
    )


# The report's claims about attacks: each beside the attack that was run, with its verdict.


@dataclass(frozen=True)
class SuccessTest:
    """A claim, the attempt that tests it if one does, and the claim's raw p-value (1 where nothing was tried)."""

    claim: SuccessClaim
    attempt: Attempt | None
    p_value: float

    @property
    def success(self) -> Success | None:
        return None if self.attempt is None else self.attempt.success


def success_tests(audited: Audited) -> list[SuccessTest]:
    """One for each claim: its attack through the first view of its adversary. Chosen by place, never by outcome."""
    found = []
    data = audited.system.data
    for claim in audited.success_claims:
        views = claim.adversary.each(data.devices)
        fitting = (a for a in audited.attempts if a.attack == claim.attack and a.adversary in views)
        attempt = next(fitting, None)
        tested = attempt is not None and attempt.success is not None and data.classes == claim.classes
        p = success_p_value(claim, attempt.success) if tested and attempt and attempt.success else 1.0
        found.append(SuccessTest(claim, attempt, p))
    return found


def success_row(
    test: SuccessTest, adjusted: Mapping[int, float], *, classes: int, alpha: float, reproduce: str
) -> SuccessClaimRow:
    claim, found = test.claim, test.success
    verdict = judge_success(
        claim,
        success=found,
        refusal=None if test.attempt is None else test.attempt.refusal,
        classes=classes,
        p_adjusted=adjusted[id(test)],
        alpha=alpha,
    )
    return SuccessClaimRow(
        key=claim.key,
        source=claim.source,
        where=claim.where,
        statement=claim.statement,
        unit=claim.unit.value,
        adversary=str(claim.adversary),
        attack=claim.attack,
        rate=claim.rate,
        success=found.rate if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        chance=found.chance if found else None,
        guesses=found.guesses if found else 0,
        p_adjusted=adjusted[id(test)],
        verdict=verdict.verdict,
        reason=verdict.reason,
        reproduce=reproduce,
    )
