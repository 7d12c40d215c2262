"""Scores of trials in two worlds through one view, and the bounds on μ and ε that they give."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vflpriv.audits.statistics.bounds import (
    Errors,
    epsilon_error_rate,
    epsilon_rectangle,
    mu_error_rate,
    mu_known_sigma,
    mu_rectangle,
    p_value_dp,
    p_value_dp_rectangle,
    p_value_gdp,
    p_value_rectangle,
    standardised,
)
from vflpriv.audits.statistics.guesses import epsilon_guesses
from vflpriv.audits.statistics.power import power_dp, power_gdp
from vflpriv.audits.statistics.sequential import Looks
from vflpriv.common.numerics import Floats
from vflpriv.core.audit import EPSILON, GAUSSIAN_NOISE, MU, ClaimTest
from vflpriv.core.canaries import Canary
from vflpriv.core.claims import Claim
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

__all__ = ["Trials"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Trials:
    """The scores of both worlds through one view. A score above the threshold, fixed in advance, says world 0.

    `looks` are the numbers of trials per world at which the trials might have been stopped; empty if their number was
    fixed. `strengths` are the summed squared distances between the worlds, in units of the noise, of all trials; empty
    where scores are not log-likelihood ratios of Gaussian releases. `method` says how a trial was scored.
    """

    adversary: Adversary
    canary: Canary
    scores: tuple[Floats, Floats]
    strengths: Floats
    looks: tuple[int, ...] = ()
    method: str = "likelihood ratio"
    threshold: float = 0.0
    replayed: int = 0
    """Trials in each world, the last ones, that replay releases instead of training."""
    replay_refusal: str | None = None
    """Why none is replayed, where some would be."""

    @property
    def unit(self) -> Unit:
        """What the canary changes."""
        return self.canary.unit

    @property
    def exact(self) -> bool:
        """Whether a score is N(±μ²/2, μ²) in a sound engine: the worlds are as far apart in every trial."""
        return standardised(np.concatenate(self.scores), self.strengths) is not None

    def steps(self, claim: Claim) -> int:
        """How many steps of the claim's unit lead from one world to the other.

        Two where the claim is about a record's absence, and a record was replaced: left out, and another one added.
        """
        return 2 if claim.unit is Unit.ADD_REMOVE and self.unit is not Unit.ADD_REMOVE else 1

    def asked(self, claim: Claim) -> Claim:
        """What the claim promises of these two worlds."""
        return claim.of_replacement() if self.steps(claim) == 2 else claim

    def tests_curve(self, claim: Claim) -> bool:
        """Whether the claim is tested as the trade-off curve of its mu; otherwise as (ε, δ).

        A point below the curve refutes a claim of μ-GDP, whatever the mechanism. It refutes (ε, δ) only of a mechanism
        with a Gaussian curve: that of likelihood ratios whose distance between the worlds is the same in every trial,
        if the noise is Gaussian. Where the distance follows the noise, it need not be: a sum that stops growing once it
        is large tells the worlds apart as randomised response does.
        """
        return claim.stated == "mu" or self.assumes_gaussian_noise(claim)

    def assumes_gaussian_noise(self, claim: Claim) -> bool:
        """Whether the test of the claim rests on the noise being Gaussian, of whatever size."""
        return claim.stated == "epsilon" and claim.delta > 0 and self.method == "likelihood ratio" and self.exact

    def against(self, claim: Claim, confidence: float) -> ClaimTest:
        """The test of a claim: its p-value, and the bound for one step that goes with it, in μ or in ε."""
        steps, delta = self.steps(claim), self.asked(claim).delta
        if not self.tests_curve(claim):
            return ClaimTest(EPSILON, self.epsilon_of_errors(delta, confidence) / steps, self.p_value(claim))
        assumed = (GAUSSIAN_NOISE,) if self.assumes_gaussian_noise(claim) else ()
        return ClaimTest(MU, self.mu_lower(confidence) / steps, self.p_value(claim), assumed)

    @property
    def one_sided(self) -> bool:
        """Whether the threshold lies far out, so that the two error rates are nothing alike."""
        return self.threshold != 0.0

    @property
    def errors(self) -> Errors:
        inside, outside = self.scores
        return Errors(
            false_positives=int((outside > self.threshold).sum()),
            negatives=len(outside),
            false_negatives=int((inside <= self.threshold).sum()),
            positives=len(inside),
        )

    @cached_property
    def sequential(self) -> Looks | None:
        """The same errors, pair by pair, where the trials might have been stopped early."""
        if not self.looks:
            return None
        inside, outside = self.scores
        return Looks((inside <= self.threshold).astype(np.int64) + (outside > self.threshold), self.looks)

    def p_value(self, claim: Claim) -> float:
        """Of a claim, whether or not the trials might have been stopped."""
        looks, claim = self.sequential, self.asked(claim)
        if self.tests_curve(claim):
            if looks is not None:
                return looks.p_value_gdp(claim.mu)
            return (p_value_rectangle if self.one_sided else p_value_gdp)(self.errors, claim.mu)
        if looks is not None:
            return looks.p_value_dp(claim.epsilon, claim.delta)
        by_errors = p_value_dp_rectangle if self.one_sided else p_value_dp
        return by_errors(self.errors, claim.epsilon, claim.delta)

    def power(self, claim: Claim, level: float) -> float | None:
        """How likely a mechanism well beyond the claim (`EXCESS`) is refuted at `level` with so many trials.

        None where the trials might have been stopped, or the threshold is far out.
        """
        if self.looks or self.one_sided:
            return None
        trials, claim = len(self.scores[0]), self.asked(claim)
        if self.tests_curve(claim):
            return power_gdp(claim.mu, trials, level)
        return power_dp(claim.epsilon, claim.delta, trials, level)

    def mu_lower(self, confidence: float) -> float:
        """The lower bound on mu that goes with it, by the bound that suits the threshold."""
        if self.sequential is not None:
            return self.sequential.mu_lower(confidence)
        return (mu_rectangle if self.one_sided else mu_error_rate)(self.errors, confidence)

    def epsilon_of_errors(self, delta: float, confidence: float) -> float:
        """The lower bound on epsilon that goes with the p-value of a claim that is tested in epsilon."""
        if self.sequential is not None:
            return self.sequential.epsilon_lower(delta, confidence)
        return (epsilon_rectangle if self.one_sided else epsilon_error_rate)(self.errors, delta, confidence)

    def epsilon_lower(self, delta: float, confidence: float, *, seed: int) -> float:
        """A lower bound on epsilon at `delta` of any mechanism."""
        if self.sequential is not None:
            return self.sequential.epsilon_lower(delta, confidence)
        calibrated = len(self.strengths) > 0 or self.canary.rate is not None
        return epsilon_guesses(*self.scores, delta, confidence, seed=seed, calibrated=calibrated)

    def mu_known_sigma(self, confidence: float) -> float | None:
        """A lower bound on mu if the noise is what it is said to be; None where the worlds' distance varies."""
        scores = None if self.looks else standardised(np.concatenate(self.scores), self.strengths)
        count = len(self.scores[0])
        return None if scores is None else mu_known_sigma(scores[:count], scores[count:], confidence)

    def curve(self, points: int = 41) -> list[tuple[float, float]]:
        """Observed (false-positive, false-negative) rates over thresholds: for the eye, no bound is taken from it."""
        inside, outside = (np.sort(s) for s in self.scores)
        thresholds = np.quantile(np.concatenate(self.scores), np.linspace(0, 1, points))
        fpr = 1 - np.searchsorted(outside, thresholds, side="right") / len(outside)
        fnr = np.searchsorted(inside, thresholds, side="right") / len(inside)
        return [(float(a), float(b)) for a, b in zip(fpr, fnr, strict=True)]
