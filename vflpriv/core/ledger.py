"""The ledger: all releases of a run, and what one adversary's eyes make of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from vflpriv.core.releases import Exact, Gaussian, Noise, Release
from vflpriv.core.schedules import Batching, Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.worst_case import Event, Sampling, Term, choose, strength

__all__ = ["Event", "Exposure", "Ledger", "Reading", "Sampled", "Sampling", "join"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sampled:
    """One kind of release of secret batches: with `seen`, it shows whether a record takes part."""

    kind: str
    noise: Noise
    sensitivity: float
    seen: bool
    rounds: NDArray[np.bool_]

    @classmethod
    def of(cls, release: Release, rounds: NDArray[np.bool_], unit: Unit, *, fixed_size: bool) -> Sampled:
        """A release in these rounds. In a batch of fixed size a record makes way for another one, whatever the unit."""
        own = release.sensitivity[unit]
        swapped = release.sensitivity.get(Unit.RECORD, 2 * release.sensitivity.get(Unit.ADD_REMOVE, math.inf))
        moved = max(own, swapped) if fixed_size else own
        seen = not release.additive or math.isinf(moved)
        return cls(kind=release.kind, noise=release.noise, sensitivity=own if seen else moved, seen=seen, rounds=rounds)


def join(
    releases: Sequence[Sampled], scheme: str, rate: float, records: int
) -> tuple[list[Term], list[tuple[Sampled, NDArray[np.bool_]]]]:
    """One term for each set of releases that share rounds; and what cannot be joined, with its rounds.

    The latter, noises of which one is not Gaussian, is to be counted as if the batches of its rounds were known.
    """
    if not releases:
        return [], []
    present = np.stack([release.rounds for release in releases])
    patterns, pattern_of = np.unique(present, axis=1, return_inverse=True)
    terms, rest = [], []
    for place, pattern in enumerate(patterns.T):
        members = [release for release, there in zip(releases, pattern, strict=True) if there]
        rounds = pattern_of == place
        if len(members) > 1 and not all(isinstance(member.noise, Gaussian) for member in members):
            rest += [(member, rounds) for member in members]
        elif members:
            one = members[0] if len(members) == 1 else _joined(members)
            sampling = Sampling(f"{scheme}-seen" if one.seen else scheme, rate)
            counts = np.full(records, np.count_nonzero(rounds), dtype=np.int64)
            terms.append(
                Term(kind=one.kind, noise=one.noise, sensitivity=one.sensitivity, counts=counts, sampling=sampling)
            )
    return terms, rest


def _joined(members: Sequence[Sampled]) -> Sampled:
    """Several Gaussian releases of one round as one with noise of std 1; what one of them shows, all do."""
    return Sampled(
        kind=" + ".join(member.kind for member in members),
        noise=Gaussian(1.0),
        sensitivity=math.sqrt(sum(strength(member.noise, member.sensitivity) ** 2 for member in members)),
        seen=any(member.seen for member in members),
        rounds=members[0].rounds,
    )


# The ledger: all releases of a run, and what one adversary's eyes make of them.

_SCHEMES = {Batching.POISSON: "poisson", Batching.FIXED: "without-replacement"}
"""The batchings whose secrecy amplifies."""

_BOUND = "each noise is counted as for the one that meets it most, which bounds them all"


class Reading(StrEnum):
    """How state that moved without noise is counted."""

    RIGOROUS = "rigorous"
    PAPER = "paper"


@dataclass(frozen=True, eq=False, kw_only=True)
class Exposure:
    """What an accountant is given: the events that reach one adversary, for one unit.

    `unprotected` names the messages that depend on the unit, reach the adversary and carry no (bounded) noise: any
    of them makes epsilon infinite. `not_applicable` says why the question does not arise.
    `counts` holds each record's number of rounds before the adversary's eyes, `squares` its mu² where only plain
    Gaussian noise meets it, `worst` the record that decides (of several noises, about: the events bound every record).
    """

    unit: Unit
    adversary: Adversary
    reading: Reading
    batches: str
    events: tuple[Event, ...]
    unprotected: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    counts: NDArray[np.int64] | None = None
    squares: NDArray[np.float64] | None = None
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
        return math.sqrt(sum(e.count * strength(e.noise, e.sensitivity) ** 2 for e in self.events))


@dataclass(frozen=True, eq=False, kw_only=True)
class Ledger:
    """All releases of a run, with the schedule that gives their counts."""

    schedule: Schedule
    releases: tuple[Release, ...]
    label_holders: frozenset[str] = frozenset({"server"})
    """The adversary kinds that hold the labels themselves."""

    def until(self, rounds: int) -> Ledger:
        """The ledger of a run that stops after this many rounds."""
        early = np.arange(self.schedule.rounds) < rounds
        return replace(self, releases=tuple(replace(r, rounds=r.rounds & early) for r in self.releases))

    def exposure(self, adversary: Adversary, unit: Unit, *, reading: Reading = Reading.RIGOROUS) -> Exposure:
        """What reaches this adversary, for this unit; of several devices the worst one's, or a bound on all of them."""
        found = [self._exposure(a, unit, reading) for a in adversary.each(self.schedule.devices)]
        most = max(len(e.unprotected) for e in found)
        if len(found) == 1 or most:
            return next(e for e in found if len(e.unprotected) == most)
        here = np.eye(len(found), dtype=np.int64)
        events = [(place, event) for place, e in enumerate(found) for event in e.events]
        choice = choose([Term.of(event, here[place]) for place, event in events])
        leading = found[choice.leading]
        if choice.proven or not events:
            return leading
        kept = [event for (place, event), chosen in zip(events, choice.of_terms, strict=True) if place == chosen]
        notes = (*leading.assumptions, f"no device is worst under every noise: {_BOUND}")
        return replace(leading, adversary=adversary, events=tuple(kept), assumptions=notes)

    def _exposure(self, adversary: Adversary, unit: Unit, reading: Reading) -> Exposure:
        reason = self._owns(adversary, unit)
        visible = [(r, self._rounds(r, adversary, reading)) for r in self.releases if adversary.kind in r.seen_by]
        visible = [(r, rounds) for r, rounds in visible if rounds.any() and r.sensitivity.get(unit, 0.0) > 0]
        protected = [(r, rounds) for r, rounds in visible if r.protects(unit)]
        unprotected = tuple(_explain(r, unit) for r, _ in visible if not r.protects(unit))
        secret = not adversary.knows_batches and not (adversary.kind == "model" and self._exact_batches)
        leaks = any(self._leaks(r, unit, reading) for r, _ in protected)
        notes = [*self._batch_notes(adversary, secret, leaks), *self._leak_notes(protected, unit, reading)]
        notes += [note for r, _ in protected for note in r.notes]
        notes += [self._carried_note(adversary, reading) for r, _ in protected if r.carried and adversary.is_device]
        terms = self._terms(protected, unit, reading, amplified=secret and not leaks)
        choice = choose(terms)
        if not choice.proven:
            notes.append(f"no record is worst under every noise: {_BOUND}")
        chosen = zip(terms, choice.of_terms, strict=True)
        events = [term.event(place) for term, place in chosen]
        return Exposure(
            unit=unit,
            adversary=adversary,
            reading=reading,
            batches="secret" if secret else "known",
            events=tuple(e for e in events if e.count),
            unprotected=() if reason else unprotected,
            assumptions=tuple(dict.fromkeys(notes)),
            counts=self._counts(protected) if unit.per_record else None,
            squares=_squares(terms) if unit.per_record else None,
            worst=choice.leading if unit.per_record else None,
            not_applicable=reason,
        )

    def _owns(self, adversary: Adversary, unit: Unit) -> str | None:
        if unit is not Unit.LABEL or adversary.kind not in self.label_holders:
            return None
        return f"the {'devices hold' if adversary.is_device else 'server holds'} the labels"

    @property
    def _exact_batches(self) -> bool:
        return self.schedule.batching is Batching.FULL

    def _rounds(self, release: Release, adversary: Adversary, reading: Reading) -> NDArray[np.bool_]:
        everywhere = release.reaches_all or (release.carried and reading is Reading.RIGOROUS)
        if not adversary.is_device or everywhere:
            return release.rounds
        return release.rounds & self.schedule.visible(adversary.members(self.schedule.devices))

    def _leaks(self, release: Release, unit: Unit, reading: Reading) -> bool:
        return reading is Reading.RIGOROUS and release.leak is not None and unit in release.leak.sensitivity

    def _counts(self, protected: Sequence[tuple[Release, NDArray[np.bool_]]]) -> NDArray[np.int64]:
        """Each record's participations, of the kind of release it meets most often."""
        counts = np.zeros(self.schedule.records, dtype=np.int64)
        for release, rounds in protected:
            counts = np.maximum(counts, self._participations(release, rounds))
        return counts

    def _participations(self, release: Release, rounds: NDArray[np.bool_]) -> NDArray[np.int64]:
        if release.once:
            return np.ones(self.schedule.records, dtype=np.int64)
        return self.schedule.counts(rounds)

    def _after_first(self, rounds: NDArray[np.bool_]) -> NDArray[np.int64]:
        """For each record, how many of these rounds come after the first one it takes part in."""
        seen = np.concatenate([np.cumsum(rounds[::-1])[::-1], [0, 0]])
        return np.asarray(seen[self.schedule.first_rounds() + 1], dtype=np.int64)

    def _terms(
        self,
        protected: Sequence[tuple[Release, NDArray[np.bool_]]],
        unit: Unit,
        reading: Reading,
        *,
        amplified: bool,
    ) -> list[Term]:
        """How often each record (or the one unit that is not a record) meets the releases, and how hard."""
        scheme = _SCHEMES.get(self.schedule.batching) if amplified and unit.per_record else None
        fixed = self.schedule.batching is Batching.FIXED
        hidden = [(r, rounds) for r, rounds in protected if scheme is not None and not r.once]
        sampled = [Sampled.of(r, rounds, unit, fixed_size=fixed) for r, rounds in hidden]
        plain = [(r, rounds) for r, rounds in protected if scheme is None or r.once]
        joined, rest = join(sampled, scheme or "", self.schedule.rate, self.schedule.records)
        known = [
            Term(kind=one.kind, noise=one.noise, sensitivity=one.sensitivity, counts=self.schedule.counts(rounds))
            for one, rounds in rest
        ]
        return [t for r, rounds in plain for t in self._plain_terms(r, rounds, unit, reading)] + joined + known

    def _plain_terms(self, release: Release, rounds: NDArray[np.bool_], unit: Unit, reading: Reading) -> list[Term]:
        """Those of one release, whoever is in its batches being known."""

        def term(sensitivity: float, counts: NDArray[np.int64]) -> Term:
            return Term(kind=release.kind, noise=release.noise, sensitivity=sensitivity, counts=counts)

        own = release.sensitivity[unit]
        if not unit.per_record:
            return [term(own, np.array([np.count_nonzero(rounds)], dtype=np.int64))]
        if self._leaks(release, unit, reading) and release.leak is not None:
            at_first = np.append(rounds, False)[self.schedule.first_rounds()].astype(np.int64)
            return [term(own, at_first), term(release.leak.sensitivity[unit], self._after_first(rounds))]
        return [term(own, self._participations(release, rounds))]

    def _batch_notes(self, adversary: Adversary, secret: bool, leaks: bool) -> list[str]:
        if self._exact_batches:
            return ["every record is in every round: nothing is sampled"]
        if not secret:
            return [f"{adversary} knows which records were in each batch: no amplification by subsampling"]
        if leaks:
            return ["batches are secret, but counted as known: state that moves without noise may show who took part"]
        if self.schedule.batching is Batching.POISSON:
            return [f"batches are secret and Poisson with rate {self.schedule.rate:.6g}"]
        if self.schedule.batching is Batching.FIXED:
            rate = f"{self.schedule.batch_size} of {self.schedule.records} records, rate {self.schedule.rate:.6g}"
            return [f"batches are secret and drawn without replacement, not Poisson: {rate}"]
        return [
            f"batches are secret but {self.schedule.batching}, not Poisson: counted as known, "
            "by the schedule's own participation counts"
        ]

    def _carried_note(self, adversary: Adversary, reading: Reading) -> str:
        if reading is Reading.PAPER:
            return f"only rounds that {adversary} takes part in count, although later ones read what the others moved"
        return f"models that all rounds moved are read in those of {adversary}: all rounds count"

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


def _squares(terms: Sequence[Term]) -> NDArray[np.float64] | None:
    """Each record's mu², where nothing but plain Gaussian noise meets it."""
    if not terms or any(term.scale != "gaussian" for term in terms):
        return None
    return np.asarray(sum(term.squares for term in terms))
