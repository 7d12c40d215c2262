"""Who is worst off: of many candidates (records, devices), what no one of them exceeds, and proof of it.

Gaussian releases that nothing is sampled for compose to one number, mu², by which candidates are ordered exactly. Other
noises have no common scale. So a candidate is the worst one only if it has the most of every noise; if none has, each
noise is counted as for the candidate that has most of it, and the result bounds them all.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vflpriv.core.releases import Gaussian, Laplace, Noise, RandomizedResponse

__all__ = ["Choice", "Event", "Sampling", "Term", "choose", "strength"]


@dataclass(frozen=True)
class Sampling:
    """Secret batches that amplify: a record is in a round with probability `rate`.

    `poisson`: each record independently; `without-replacement`: a fixed number of records, drawn anew each round. Both
    hide whether a record took part (a noised sum); with `-seen` they do not (rows of their own).
    """

    scheme: str
    rate: float


@dataclass(frozen=True, kw_only=True)
class Event:
    """`count` releases with the same noise, as the worst unit of the protected data meets them.

    `sensitivity` is the distance between the two worlds' noiseless values in a round that the unit takes part in.
    Without `sampling` the unit takes part in each of the `count` rounds; with it, in each with probability `rate`.
    """

    kind: str
    noise: Noise
    sensitivity: float
    count: int
    sampling: Sampling | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Term:
    """How often each candidate meets one kind of release with one noise and sensitivity."""

    kind: str
    noise: Noise
    sensitivity: float
    counts: NDArray[np.int64]
    """One entry a candidate."""
    sampling: Sampling | None = None

    @classmethod
    def of(cls, event: Event, shares: NDArray[np.int64]) -> Term:
        """An event that each candidate meets so many times."""
        return cls(
            kind=event.kind,
            noise=event.noise,
            sensitivity=event.sensitivity,
            counts=event.count * shares,
            sampling=event.sampling,
        )

    def event(self, place: int) -> Event:
        """What one candidate meets."""
        return Event(
            kind=self.kind,
            noise=self.noise,
            sensitivity=self.sensitivity,
            count=int(self.counts[place]),
            sampling=self.sampling,
        )

    @property
    def scale(self) -> Hashable:
        """Terms with the same scale add up: all plain Gaussians, and otherwise equal releases."""
        if isinstance(self.noise, Gaussian) and self.sampling is None:
            return "gaussian"
        return self.noise, self.sensitivity, self.sampling

    @property
    def amounts(self) -> NDArray[np.float64]:
        """Each candidate's amount on the term's scale: mu² of plain Gaussians, the count of anything else."""
        return self.squares if self.scale == "gaussian" else self.counts.astype(np.float64)

    @property
    def squares(self) -> NDArray[np.float64]:
        """Count times strength², a rough common scale that serves to order candidates for display."""
        # Nothing met costs nothing, even where one release would cost everything.
        one = strength(self.noise, self.sensitivity)
        # A product that is too large is infinite; a power would be an error.
        return np.where(self.counts > 0, np.maximum(self.counts, 1) * (one * one), 0.0)


@dataclass(frozen=True)
class Choice:
    """`leading` is the candidate that (about) gives most away; `of_terms` the one each term is counted for.

    With `proven`, they are all the same, and no candidate gives more away.
    """

    leading: int
    of_terms: tuple[int, ...]

    @property
    def proven(self) -> bool:
        return all(place == self.leading for place in self.of_terms)


def choose(terms: Sequence[Term]) -> Choice:
    """The candidate of each term such that the terms together bound every candidate's."""
    if not terms:
        return Choice(0, ())
    leading = int(np.argmax(sum(term.squares for term in terms)))
    totals: dict[Hashable, NDArray[np.float64]] = {}
    for term in terms:
        totals[term.scale] = totals.get(term.scale, 0.0) + term.amounts
    worst = {scale: _worst(amounts, leading) for scale, amounts in totals.items()}
    return Choice(leading, tuple(worst[term.scale] for term in terms))


def _worst(amounts: NDArray[np.float64], leading: int) -> int:
    """The candidate with most; the leading one if it has as much, up to rounding."""
    top = int(np.argmax(amounts))
    return leading if amounts[leading] >= amounts[top] * (1 - 1e-12) else top


def strength(noise: Noise, sensitivity: float) -> float:
    """How much one release gives away: mu of a Gaussian one, epsilon of any other."""
    if isinstance(noise, RandomizedResponse):
        return noise.epsilon
    width = noise.std if isinstance(noise, Gaussian) else noise.scale if isinstance(noise, Laplace) else 0.0
    if sensitivity == 0:
        return 0.0
    return sensitivity / width if width > 0 else math.inf
