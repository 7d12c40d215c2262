"""The ledger: all releases of a run, and from it the exposure of one unit to one adversary, which accountants bound."""

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

__all__ = ["Event", "Exposure", "Ledger", "Reading", "SampledRelease", "Sampling", "join"]


_SCHEMES = {Batching.POISSON: "poisson", Batching.FIXED: "without-replacement"}
"""The batchings whose secrecy amplifies."""

_BOUND = "each noise is counted for the {0} that meets it most often, which bounds every {0}"


class Reading(StrEnum):
    """How an exposure counts state that depends on private data without noise, or on other devices' rounds."""

    RIGOROUS = "rigorous"
    """Every dependence counts."""
    PAPER = "paper"
    """As papers do: such state is taken not to depend on the protected data."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Exposure:
    """The noised releases that one adversary observes and one unit changes: what an accountant is given.

    `unprotected` names the messages that depend on the unit, reach the adversary and have no noise, or no bounded
    sensitivity: any of them makes epsilon infinite. `not_applicable` says why there is nothing to protect, `ignored`
    which dependences the reading does not count although they exist. `counts` holds for each record the number of its
    releases that the adversary observes, `squares` its mu² where all noise is Gaussian without sampling, and `worst`
    the record that decides (with several noises, roughly: the events bound every record).
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
    ignored: tuple[str, ...] = ()

    @property
    def gaussian(self) -> bool:
        """Whether the trade-off curve is exactly Gaussian: only Gaussian noise, nothing sampled in secret."""
        known = all(isinstance(e.noise, Gaussian) and e.sampling is None for e in self.events)
        return known and not self.unprotected and self.not_applicable is None

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
    """The kinds of adversaries that hold the labels anyway."""

    def until(self, rounds: int) -> Ledger:
        """The ledger of a run that stops after this many rounds."""
        early = np.arange(self.schedule.rounds) < rounds
        return replace(self, releases=tuple(replace(r, rounds=r.rounds & early) for r in self.releases))

    def exposure(self, adversary: Adversary, unit: Unit, *, reading: Reading = Reading.RIGOROUS) -> Exposure:
        """The exposure of this unit to this adversary; for `device`, of the worst one, or a bound on all devices."""
        exposures = [self._exposure(a, unit, reading) for a in adversary.each(self.schedule.devices)]
        most = max(len(e.unprotected) for e in exposures)
        if len(exposures) == 1 or most:
            return next(e for e in exposures if len(e.unprotected) == most)
        own = np.eye(len(exposures), dtype=np.int64)
        events = [(device, event) for device, e in enumerate(exposures) for event in e.events]
        choice = choose([Term.of(event, own[device]) for device, event in events])
        leading = exposures[choice.leading]
        if choice.proven or not events:
            return leading
        kept = [event for (device, event), chosen in zip(events, choice.of_terms, strict=True) if device == chosen]
        notes = (*leading.assumptions, f"no device is the worst case for every noise: {_BOUND.format('device')}")
        return replace(leading, adversary=adversary, events=tuple(kept), assumptions=notes)

    def _exposure(self, adversary: Adversary, unit: Unit, reading: Reading) -> Exposure:
        reason = self._owns(adversary, unit)
        visible = [(r, self._rounds(r, adversary, reading)) for r in self.releases if adversary.kind in r.seen_by]
        visible = [(r, rounds) for r, rounds in visible if rounds.any() and r.sensitivity.get(unit, 0.0) > 0]
        protected = [(r, rounds) for r, rounds in visible if r.protects(unit)]
        unprotected = tuple(_explain(r, unit) for r, _ in visible if not r.protects(unit))
        secret = not adversary.knows_batches and not (adversary.kind == "model" and self._exact_batches)
        leaks = any(self._leaks(r, unit, reading) for r, _ in protected)
        from_leaks = self._leak_notes(protected, unit, reading)
        carried = [self._carried_note(adversary, reading) for r, _ in protected if r.carried and adversary.is_device]
        notes = [*self._batch_notes(adversary, secret, leaks), *from_leaks]
        notes += [*(note for r, _ in protected for note in r.notes), *carried]
        terms = self._terms(protected, unit, reading, amplified=secret and not leaks)
        choice = choose(terms)
        if not choice.proven:
            notes.append(f"no record is the worst case for every noise: {_BOUND.format('record')}")
        events = [term.event(record) for term, record in zip(terms, choice.of_terms, strict=True)]
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
            ignored=tuple(dict.fromkeys((*from_leaks, *carried))) if reading is Reading.PAPER else (),
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
        """For each record, its number of releases of the kind that depends on it most often."""
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
        """The number of releases that depend on each record (or on the one unit that is not a record)."""
        scheme = _SCHEMES.get(self.schedule.batching) if amplified and unit.per_record else None
        fixed = self.schedule.batching is Batching.FIXED
        secret = [(r, rounds) for r, rounds in protected if scheme is not None and not r.once]
        sampled = [SampledRelease.of(r, rounds, unit, fixed_size=fixed) for r, rounds in secret]
        known = [(r, rounds) for r, rounds in protected if scheme is None or r.once]
        joined, not_joined = join(sampled, scheme or "", self.schedule.rate, self.schedule.records)
        as_known = [
            Term(kind=r.kind, noise=r.noise, sensitivity=r.sensitivity, counts=self.schedule.counts(rounds))
            for r, rounds in not_joined
        ]
        return [t for r, rounds in known for t in self._known_terms(r, rounds, unit, reading)] + joined + as_known

    def _known_terms(self, release: Release, rounds: NDArray[np.bool_], unit: Unit, reading: Reading) -> list[Term]:
        """The terms of one release if the records of its batches are known."""

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
            return ["batches are secret, but counted as known: state that changes without noise may show who took part"]
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
            return f"only rounds of {adversary} count, although they depend on models that other rounds changed"
        return f"rounds of {adversary} depend on models that all rounds changed: all rounds count"

    def _leak_notes(
        self, protected: Sequence[tuple[Release, NDArray[np.bool_]]], unit: Unit, reading: Reading
    ) -> list[str]:
        leaks = [r.leak for r, _ in protected if r.leak is not None and unit in r.leak.sensitivity]
        if reading is Reading.PAPER:
            return [f"{leak.carrier} is taken not to depend on the protected data, although it does" for leak in leaks]
        return [
            f"{leak.carrier} changes without noise: after a record's first round every release may differ by "
            f"{leak.sensitivity[unit]:g}"
            for leak in leaks
        ]


def _explain(release: Release, unit: Unit) -> str:
    reason = (
        "carries no noise" if isinstance(release.noise, Exact) else f"has no bounded sensitivity for the {unit} unit"
    )
    return f"{release.kind} ({release.what}) {reason}"


def _squares(terms: Sequence[Term]) -> NDArray[np.float64] | None:
    """Each record's mu², if all its releases have Gaussian noise without sampling."""
    if not terms or any(term.scale != "gaussian" for term in terms):
        return None
    return np.asarray(sum(term.squares for term in terms))


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledRelease:
    """One kind of release from secret batches; with `seen`, it shows whether a record takes part."""

    kind: str
    noise: Noise
    sensitivity: float
    seen: bool
    rounds: NDArray[np.bool_]

    @classmethod
    def of(cls, release: Release, rounds: NDArray[np.bool_], unit: Unit, *, fixed_size: bool) -> SampledRelease:
        """A release in these rounds. In a batch of fixed size another record takes an absent one's place."""
        own = release.sensitivity[unit]
        swapped = release.sensitivity.get(Unit.RECORD, 2 * release.sensitivity.get(Unit.ADD_REMOVE, math.inf))
        moved = max(own, swapped) if fixed_size else own
        seen = not release.additive or math.isinf(moved)
        return cls(kind=release.kind, noise=release.noise, sensitivity=own if seen else moved, seen=seen, rounds=rounds)


def join(
    releases: Sequence[SampledRelease], scheme: str, rate: float, records: int
) -> tuple[list[Term], list[tuple[SampledRelease, NDArray[np.bool_]]]]:
    """One term for each set of releases that share rounds; and the releases that cannot be joined, with their rounds.

    Releases of one round can be joined if all noise is Gaussian; those that cannot are to be counted as if the batches
    of their rounds were known.
    """
    if not releases:
        return [], []
    present = np.stack([release.rounds for release in releases])
    patterns, pattern_of = np.unique(present, axis=1, return_inverse=True)
    terms, not_joined = [], []
    for number, pattern in enumerate(patterns.T):
        members = [release for release, included in zip(releases, pattern, strict=True) if included]
        rounds = pattern_of == number
        if len(members) > 1 and not all(isinstance(member.noise, Gaussian) for member in members):
            not_joined += [(member, rounds) for member in members]
        elif members:
            joint = members[0] if len(members) == 1 else _joined(members)
            sampling = Sampling(f"{scheme}-seen" if joint.seen else scheme, rate)
            counts = np.full(records, np.count_nonzero(rounds), dtype=np.int64)
            terms.append(
                Term(
                    kind=joint.kind, noise=joint.noise, sensitivity=joint.sensitivity, counts=counts, sampling=sampling
                )
            )
    return terms, not_joined


def _joined(members: Sequence[SampledRelease]) -> SampledRelease:
    """Several Gaussian releases of one round as one with noise of std 1; if one shows who took part, all do."""
    return SampledRelease(
        kind=" + ".join(member.kind for member in members),
        noise=Gaussian(1.0),
        sensitivity=math.sqrt(sum(strength(member.noise, member.sensitivity) ** 2 for member in members)),
        seen=any(member.seen for member in members),
        rounds=members[0].rounds,
    )
