"""The trials of two worlds through one view, and the bounds that they give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vflpriv.audits._bounds import Errors, Floats
from vflpriv.audits._gdp import mu_error_rate, p_value_gdp
from vflpriv.audits._guesses import epsilon_guesses
from vflpriv.audits._known_sigma import mu_known_sigma, standardised
from vflpriv.audits._sequential import Looks
from vflpriv.canaries import Canary
from vflpriv.units import Unit
from vflpriv.views import Adversary

__all__ = ["Trials"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Trials:
    """The scores of both worlds through one view. Positive says world 0; the threshold 0 was fixed in advance.

    `looks` are the numbers of trials a world at which it might have been stopped; empty if their number was fixed.
    `strengths` are the summed squared distances between the worlds, in units of the noise, of all trials.
    """

    adversary: Adversary
    canary: Canary
    scores: tuple[Floats, Floats]
    strengths: Floats
    looks: tuple[int, ...] = ()

    @property
    def unit(self) -> Unit:
        """What the canary changes: a label, or a record's whole contribution."""
        return Unit.RECORD if self.canary.at_clip else Unit.LABEL

    @property
    def errors(self) -> Errors:
        inside, outside = self.scores
        return Errors(
            false_positives=int((outside > 0).sum()),
            negatives=len(outside),
            false_negatives=int((inside <= 0).sum()),
            positives=len(inside),
        )

    @property
    def sequential(self) -> Looks | None:
        """The same errors, pair by pair, where the trials might have been stopped early."""
        if not self.looks:
            return None
        inside, outside = self.scores
        return Looks((inside <= 0).astype(np.int64) + (outside > 0), self.looks)

    def p_value(self, mu: float) -> float:
        """Of "the mechanism is mu-GDP", whether or not the trials might have been stopped."""
        return p_value_gdp(self.errors, mu) if self.sequential is None else self.sequential.p_value_gdp(mu)

    def mu_lower(self, confidence: float) -> float:
        """The lower bound on mu that goes with it."""
        if self.sequential is not None:
            return self.sequential.mu_lower(confidence)
        return mu_error_rate(self.errors, confidence).mu or 0.0

    def epsilon_lower(self, delta: float, confidence: float, *, seed: int) -> float:
        """A lower bound on epsilon at `delta` of any mechanism."""
        if self.sequential is not None:
            return self.sequential.epsilon_lower(delta, confidence)
        return epsilon_guesses(*self.scores, delta, confidence, seed=seed, calibrated=True)

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
