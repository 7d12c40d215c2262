"""The ledger: all releases of a run, and what one adversary's eyes make of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from vflpriv.releases import Exact, Gaussian, Laplace, Noise, RandomizedResponse, Release
from vflpriv.schedules import Batching, Schedule
from vflpriv.units import Unit
from vflpriv.views import Adversary

__all__ = ["Event", "Exposure", "Ledger", "Reading", "Sampling"]


class Reading(StrEnum):
    """How state that moved without noise is counted."""

    RIGOROUS = "rigorous"
    PAPER = "paper"


@dataclass(frozen=True)
class Sampling:
    """Secret batches that amplify: each record is in a round with probability `rate`, independently.

    `poisson` hides whether a record took part (a noised sum); `poisson-seen` does not (rows of their own).
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
class Exposure:
    """What an accountant is given: the events that reach one adversary, for one unit.

    `unprotected` names the messages that depend on the unit, reach the adversary and carry no (bounded) noise: any
    of them makes epsilon infinite. `not_applicable` says why the question does not arise.
    `counts` holds each record's number of rounds before the adversary's eyes, `worst` the record that decides.
    """

    unit: Unit
    adversary: Adversary
    reading: Reading
    batches: str
    events: tuple[Event, ...]
    unprotected: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    counts: NDArray[np.int64] | None = None
    worst: int | None = None
    not_applicable: str | None = None

    @property
    def gaussian(self) -> bool:
        """Whether the trade-off curve is exactly Gaussian: only Gaussian noise, nothing sampled in secret."""
        plain = all(isinstance(e.noise, Gaussian) and e.sampling is None for e in self.events)
        return plain and not self.unprotected and self.not_applicable is None

    @property
    def mu(self) -> float:
        """The exact mu of a Gaussian exposure: the squares of sensitivity / std add."""
        if not self.gaussian:
            raise ValueError("Expected an exposure with a Gaussian trade-off curve.")
        return math.sqrt(sum(e.count * _strength(e.noise, e.sensitivity) ** 2 for e in self.events))


def _strength(noise: Noise, sensitivity: float) -> float:
    """How much one release gives away: mu of a Gaussian one, epsilon of any other."""
    if isinstance(noise, RandomizedResponse):
        return noise.epsilon
    width = noise.std if isinstance(noise, Gaussian) else noise.scale if isinstance(noise, Laplace) else 0.0
    if sensitivity == 0:
        return 0.0
    return sensitivity / width if width > 0 else math.inf


@dataclass(frozen=True, eq=False, kw_only=True)
class Ledger:
    """All releases of a run, with the schedule that gives their counts."""

    schedule: Schedule
    releases: tuple[Release, ...]
    label_holders: frozenset[str] = frozenset({"server"})
    """The adversary kinds that hold the labels themselves."""

    def exposure(self, adversary: Adversary, unit: Unit, *, reading: Reading = Reading.RIGOROUS) -> Exposure:
        """What reaches this adversary, for this unit; of several devices the worst one's."""
        found = [self._exposure(a, unit, reading) for a in adversary.each(self.schedule.devices)]
        return max(found, key=_cost)

    def _exposure(self, adversary: Adversary, unit: Unit, reading: Reading) -> Exposure:
        reason = self._owns(adversary, unit)
        visible = [(r, self._rounds(r, adversary)) for r in self.releases if adversary.kind in r.seen_by]
        visible = [(r, rounds) for r, rounds in visible if rounds.any() and r.sensitivity.get(unit, 0.0) > 0]
        protected = [(r, rounds) for r, rounds in visible if r.protects(unit)]
        unprotected = tuple(_explain(r, unit) for r, _ in visible if not r.protects(unit))
        secret = not adversary.knows_batches and not (adversary.kind == "model" and self._exact_batches)
        notes = [*self._batch_notes(adversary, secret), *self._leak_notes(protected, unit, reading)]
        notes += [note for r, _ in protected for note in r.notes]
        counts, worst = self._worst(protected, unit, reading) if unit.per_record else (None, None)
        events = [e for r, rounds in protected for e in self._events(r, rounds, unit, reading, secret, worst)]
        return Exposure(
            unit=unit,
            adversary=adversary,
            reading=reading,
            batches="secret" if secret else "known",
            events=tuple(e for e in events if e.count),
            unprotected=() if reason else unprotected,
            assumptions=tuple(dict.fromkeys(notes)),
            counts=counts,
            worst=worst,
            not_applicable=reason,
        )

    def _owns(self, adversary: Adversary, unit: Unit) -> str | None:
        if unit is not Unit.LABEL or adversary.kind not in self.label_holders:
            return None
        return f"the {'devices hold' if adversary.is_device else 'server holds'} the labels"

    @property
    def _exact_batches(self) -> bool:
        return self.schedule.batching is Batching.FULL

    def _rounds(self, release: Release, adversary: Adversary) -> NDArray[np.bool_]:
        if not adversary.is_device or release.reaches_all:
            return release.rounds
        return release.rounds & self.schedule.visible(adversary.members(self.schedule.devices))

    def _leaks(self, release: Release, unit: Unit, reading: Reading) -> bool:
        return reading is Reading.RIGOROUS and release.leak is not None and unit in release.leak.sensitivity

    def _worst(
        self, protected: Sequence[tuple[Release, NDArray[np.bool_]]], unit: Unit, reading: Reading
    ) -> tuple[NDArray[np.int64], int]:
        """Each record's participations, and the record that gives most away."""
        counts = np.zeros(self.schedule.records, dtype=np.int64)
        cost = np.zeros(self.schedule.records)
        for release, rounds in protected:
            taken = self._participations(release, rounds)
            counts = np.maximum(counts, taken)
            cost += taken * _strength(release.noise, release.sensitivity[unit]) ** 2
            if self._leaks(release, unit, reading) and release.leak is not None:
                cost += self._after_first(rounds) * _strength(release.noise, release.leak.sensitivity[unit]) ** 2
        return counts, int(np.argmax(cost))

    def _participations(self, release: Release, rounds: NDArray[np.bool_]) -> NDArray[np.int64]:
        if release.once:
            return np.ones(self.schedule.records, dtype=np.int64)
        return self.schedule.counts(rounds)

    def _after_first(self, rounds: NDArray[np.bool_]) -> NDArray[np.int64]:
        """For each record, how many of these rounds come after the first one it takes part in."""
        seen = np.concatenate([np.cumsum(rounds[::-1])[::-1], [0, 0]])
        return np.asarray(seen[self.schedule.first_rounds() + 1], dtype=np.int64)

    def _events(
        self,
        release: Release,
        rounds: NDArray[np.bool_],
        unit: Unit,
        reading: Reading,
        secret: bool,
        worst: int | None,
    ) -> list[Event]:
        def event(sensitivity: float, count: int, sampling: Sampling | None = None) -> Event:
            return Event(
                kind=release.kind, noise=release.noise, sensitivity=sensitivity, count=count, sampling=sampling
            )

        own = release.sensitivity[unit]
        if worst is None:
            return [event(own, int(rounds.sum()))]
        if self._leaks(release, unit, reading) and release.leak is not None:
            later = int(self._after_first(rounds)[worst])
            first = int(self.schedule.first_rounds()[worst])
            at_first = int(first < self.schedule.rounds and rounds[first])
            return [event(own, at_first), event(release.leak.sensitivity[unit], later)]
        if secret and self.schedule.batching is Batching.POISSON and not release.once:
            scheme = "poisson" if release.additive else "poisson-seen"
            return [event(own, int(rounds.sum()), Sampling(scheme, self.schedule.rate))]
        return [event(own, int(self._participations(release, rounds)[worst]))]

    def _batch_notes(self, adversary: Adversary, secret: bool) -> list[str]:
        if self._exact_batches:
            return ["every record is in every round: nothing is sampled"]
        if not secret:
            return [f"{adversary} knows which records were in each batch: no amplification by subsampling"]
        if self.schedule.batching is Batching.POISSON:
            return [f"batches are secret and Poisson with rate {self.schedule.rate:.6g}"]
        return [
            f"batches are secret but {self.schedule.batching}, not Poisson: counted as known, "
            "by the schedule's own participation counts"
        ]

    def _leak_notes(
        self, protected: Sequence[tuple[Release, NDArray[np.bool_]]], unit: Unit, reading: Reading
    ) -> list[str]:
        leaks = [r.leak for r, _ in protected if r.leak is not None and unit in r.leak.sensitivity]
        if reading is Reading.PAPER:
            return [f"{leak.carrier} is taken not to depend on the protected data, although it does" for leak in leaks]
        return [
            f"{leak.carrier} moves without noise: after a record's first round every release may differ by "
            f"{leak.sensitivity[unit]:g}"
            for leak in leaks
        ]


def _explain(release: Release, unit: Unit) -> str:
    why = "carries no noise" if isinstance(release.noise, Exact) else f"has no bounded sensitivity for the {unit} unit"
    return f"{release.kind} ({release.what}) {why}"


def _cost(exposure: Exposure) -> tuple[float, float]:
    """Orders exposures of one ledger by what they give away."""
    given = sum(e.count * _strength(e.noise, e.sensitivity) ** 2 for e in exposure.events)
    return float(len(exposure.unprotected)), given
