"""The worst case over records or devices: which of them loses most privacy, or a bound that holds for all of them.

Gaussian releases without secret sampling compose to one number, mu², by which candidates are ordered exactly. Other
noises have no common scale. So a candidate is the worst case only if its amount of every noise is the largest; if no
candidate is, each noise is counted for the candidate with the largest amount of it, and the result bounds all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vflpriv.core.law import Law

__all__ = ["Choice", "Event", "Sampling", "Term", "choose"]


@dataclass(frozen=True)
class Sampling:
    """Secret batches, which amplify privacy: a record is in a round with probability `rate`.

    `poisson`: each record independently; `without-replacement`: a fixed number of records, drawn anew each round. In
    both the release hides whether a record took part (a noised sum); with `-seen` it does not (a row for each record).
    """

    scheme: str
    rate: float


@dataclass(frozen=True, kw_only=True)
class Event:
    """`count` releases with the same noise that depend on the worst-case unit of the protected data.

    `sensitivity` is the distance between the noiseless values of two neighbouring data sets in a round that the unit
    takes part in. Without `sampling` the unit takes part in each of the `count` rounds; with it, in each with
    probability `rate`.
    """

    kind: str
    noise: Law
    sensitivity: float
    count: int
    sampling: Sampling | None = None

    @property
    def square(self) -> float:
        """The summed squares of the strengths of these releases: mu² where the curve is Gaussian."""
        return float(self.noise.square(self.sensitivity, self.count))


@dataclass(frozen=True, eq=False, kw_only=True)
class Term:
    """For each candidate, the number of releases of one kind, noise and sensitivity that depend on it."""

    kind: str
    noise: Law
    sensitivity: float
    counts: NDArray[np.int64]
    """One entry for each candidate."""
    sampling: Sampling | None = None

    @classmethod
    def of(cls, event: Event, shares: NDArray[np.int64]) -> Term:
        """An event with, for each candidate, how many times it counts."""
        return cls(
            kind=event.kind,
            noise=event.noise,
            sensitivity=event.sensitivity,
            counts=event.count * shares,
            sampling=event.sampling,
        )

    def times(self, trainings: int) -> Term:
        """The same releases in so many trainings."""
        return replace(self, counts=trainings * self.counts)

    def event(self, candidate: int) -> Event:
        """The releases of this term that depend on one candidate."""
        return Event(
            kind=self.kind,
            noise=self.noise,
            sensitivity=self.sensitivity,
            count=int(self.counts[candidate]),
            sampling=self.sampling,
        )

    @property
    def scale(self) -> Hashable:
        """Terms with the same scale add up: all Gaussians without sampling, and otherwise equal releases."""
        if self.noise.gaussian and self.sampling is None:
            return "gaussian"
        return self.noise, self.sensitivity, self.sampling

    @property
    def amounts(self) -> NDArray[np.float64]:
        """Each candidate's amount on the term's scale: mu² of Gaussians without sampling, else the count."""
        return self.squares if self.scale == "gaussian" else self.counts.astype(np.float64)

    @property
    def squares(self) -> NDArray[np.float64]:
        """Count times strength², a rough common scale that serves to order candidates for display."""
        # A count of 0 costs nothing, even where one release has infinite strength.
        return np.where(self.counts > 0, self.noise.square(self.sensitivity, np.maximum(self.counts, 1)), 0.0)


@dataclass(frozen=True)
class Choice:
    """The candidates that a bound counts: `leading` has about the largest loss, `of_terms` is each term's candidate.

    With `proven` they are all the same one, and no candidate loses more.
    """

    leading: int
    of_terms: tuple[int, ...]

    @property
    def proven(self) -> bool:
        return all(candidate == self.leading for candidate in self.of_terms)


def choose(terms: Sequence[Term]) -> Choice:
    """Choose a candidate for each term so that the chosen terms together bound the loss of every candidate."""
    if not terms:
        return Choice(0, ())
    leading = int(np.argmax(sum(term.squares for term in terms)))
    totals: dict[Hashable, NDArray[np.float64]] = {}
    for term in terms:
        totals[term.scale] = totals.get(term.scale, 0.0) + term.amounts
    worst = {scale: _worst(amounts, leading) for scale, amounts in totals.items()}
    return Choice(leading, tuple(worst[term.scale] for term in terms))


def _worst(amounts: NDArray[np.float64], leading: int) -> int:
    """The candidate with the largest amount; the leading one if its amount is as large, up to rounding."""
    largest = int(np.argmax(amounts))
    return leading if amounts[leading] >= amounts[largest] * (1 - 1e-12) else largest
