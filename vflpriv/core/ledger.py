"""The ledger: all releases of a run, and from it the exposure of one unit to one adversary, which accountants bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from vflpriv.core.law import Law
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Batching, Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.worst_case import Event, Sampling, Term, choose

__all__ = ["Event", "Exposure", "Joined", "Ledger", "Reading", "SampledRelease", "Sampling", "join"]


_SCHEMES = {Batching.POISSON: "poisson", Batching.FIXED: "without-replacement"}
"""The batchings whose secrecy amplifies."""

Observed = tuple[Release, NDArray[np.bool_]]
"""A release, and the rounds in which an adversary observes it."""
Sampled = tuple["SampledRelease", NDArray[np.bool_]]

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
    sensitivity: any of them makes epsilon infinite. `not_applicable` says why there is nothing to protect. `counts`
    holds for each record the number of its releases that the adversary observes, `squares` its mu² where all noise is
    Gaussian without sampling, and `worst` the record that decides (with several noises, roughly: the events bound every
    record).
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
    assumed: tuple[str, ...] = ()
    """Of each ciphertext that depends on the unit, the assumption under which it counts as giving nothing away; of each
    noised release of which nobody says whether state moves it, that none does."""

    @property
    def gaussian(self) -> bool:
        """Whether the trade-off curve is exactly Gaussian: only Gaussian noise, nothing sampled in secret."""
        known = all(e.noise.gaussian and e.sampling is None for e in self.events)
        return known and not self.unprotected and self.not_applicable is None

    @property
    def mu(self) -> float:
        """The exact mu of a Gaussian exposure: the squares of sensitivity / std add."""
        if not self.gaussian:
            raise ValueError("Expected an exposure with a Gaussian trade-off curve.")
        return math.sqrt(sum(e.square for e in self.events))


@dataclass(frozen=True, eq=False, kw_only=True)
class Ledger:
    """All releases of a run, with the schedule that gives their counts."""

    schedule: Schedule
    releases: tuple[Release, ...]
    label_holders: frozenset[str] = frozenset({"server"})
    """The kinds of adversaries that hold the labels anyway."""
    tuning_runs: int | None = None
    """Trainings on the same data before this one, each with the same releases; None if nobody said how many."""
    fitted: tuple[str, ...] = ()
    """What the features of all records have decided before the training, and no release counts."""

    def until(self, rounds: int) -> Ledger:
        """The ledger of a run that stops after this many rounds."""
        return replace(self, releases=tuple(r.until(rounds) for r in self.releases))

    def exposure(self, adversary: Adversary, unit: Unit, *, reading: Reading = Reading.RIGOROUS) -> Exposure:
        """The exposure of this unit to this adversary; for `device`, of the worst one, or a bound on all devices."""
        exposures = [self._exposure(a, unit, reading) for a in self._unlike(adversary)]
        assumed = tuple(dict.fromkeys(line for e in exposures for line in e.assumed))
        exposures = [replace(e, assumed=assumed) for e in exposures]
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

    def _unlike(self, adversary: Adversary) -> list[Adversary]:
        """The adversaries that are meant; of devices that see the same rounds, the first: they have the same exposure.

        A system may have thousands of devices that take part in nothing, or always together.
        """
        devices = self.schedule.devices
        seen = {a: self.schedule.visible(a.members(devices)).tobytes() for a in adversary.each(devices) if a.is_device}
        unlike = {rounds: a for a, rounds in reversed(seen.items())}
        return sorted(unlike.values(), key=lambda a: a.devices) or [adversary]

    def _exposure(self, adversary: Adversary, unit: Unit, reading: Reading) -> Exposure:
        reason = self._owns(adversary, unit)
        sent = [(r, self._rounds(r, adversary, reading)) for r in self.releases if adversary.kind in r.seen_by]
        sent = [(r, rounds) for r, rounds in sent if rounds.any()]
        read = [(r.observed_by(adversary.kind), rounds) for r, rounds in sent]
        observed = [(r, rounds) for r, rounds in read if r is not None]
        hidden = [r for r, _ in sent if r.observed_by(adversary.kind) is None and r.sensitivity.get(unit, 0.0) > 0]
        assumed = [] if reason else [_assumption(r) for r in hidden]
        visible = [(r, rounds) for r, rounds in observed if r.sensitivity.get(unit, 0.0) > 0]
        protected = [(r, rounds) for r, rounds in visible if r.protects(unit)]
        unprotected = tuple(_explain(r, unit) for r, _ in visible if not r.protects(unit))
        batches = self._batches(adversary, observed, reading)
        from_leaks = self._leak_notes(protected, unit, reading)
        carried = [self._carried_note(adversary, reading) for r, _ in protected if r.carried and adversary.is_device]
        terms = self._terms(observed, protected, unit, reading, amplified=batches.amplify)
        choice = choose([term for term, _ in terms])
        notes = [batches.note, *from_leaks, *(note for _, note in terms if note is not None)]
        notes += carried
        assumed += [line for r, _ in protected for line in r.unstated if unit.per_record and not reason]
        notes += [premise for r, _ in protected for premise in r.noise.premises]
        notes += [
            f"{_assumption(r)}; what is decrypted moves no other message but as the ledger says"
            for r in hidden
            if not reason
        ]
        if not choice.proven:
            notes.append(f"no record is the worst case for every noise: {_BOUND.format('record')}")
        if self.tuning_runs is not None and reason is None:
            notes.append(_tuning_note(self.tuning_runs, [r for r, _ in protected]))
        if self.fitted and protected and reason is None and unit is not Unit.LABEL:
            notes.append(f"{' and '.join(self.fitted)} are public: all records decided them, and nothing counts that")
        events = [term.event(candidate) for (term, _), candidate in zip(terms, choice.of_terms, strict=True)]
        squares = _squares([term for term, _ in terms])
        return Exposure(
            unit=unit,
            adversary=adversary,
            reading=reading,
            batches="secret" if batches.secret else "known",
            events=tuple(e for e in events if e.count),
            unprotected=() if reason else unprotected,
            assumptions=tuple(dict.fromkeys(notes)),
            counts=self._counts(protected, unit) if unit.per_record else None,
            squares=self._by_record(squares) if unit.per_record and squares is not None else None,
            worst=choice.leading % self.schedule.records if unit.per_record else None,
            not_applicable=reason,
            assumed=tuple(dict.fromkeys(assumed)),
        )

    def _owns(self, adversary: Adversary, unit: Unit) -> str | None:
        if unit is not Unit.LABEL or adversary.kind not in self.label_holders:
            return None
        return f"the {'devices hold' if adversary.is_device else 'server holds'} the labels"

    def _rounds(self, release: Release, adversary: Adversary, reading: Reading) -> NDArray[np.bool_]:
        everywhere = release.reaches_all or (release.carried and reading is Reading.RIGOROUS)
        if not adversary.is_device or everywhere:
            return release.rounds
        return release.rounds & self.schedule.visible(adversary.members(self.schedule.devices))

    def _leaks(self, release: Release, unit: Unit, reading: Reading) -> bool:
        return reading is Reading.RIGOROUS and release.leak is not None and unit in release.leak.sensitivity

    def _counts(self, protected: Sequence[Observed], unit: Unit) -> NDArray[np.int64]:
        """For each record, its number of releases of the kind that depends on it most often."""
        counts = np.zeros(self.schedule.records, dtype=np.int64)
        for release, rounds in protected:
            for own in _senders(release, rounds, unit):
                counts = np.maximum(counts, self._trainings(release) * self._participations(release, own))
        return counts

    def _trainings(self, release: Release | None = None) -> int:
        """How many trainings on the same data release it: this one, and those before it that were for tuning."""
        return 1 + (self.tuning_runs or 0) if release is None or release.redrawn else 1

    def _participations(self, release: Release, rounds: NDArray[np.bool_]) -> NDArray[np.int64]:
        if release.once:
            return np.ones(self.schedule.records, dtype=np.int64)
        return self.schedule.counts(rounds)

    def _by_record(self, amounts: NDArray[np.float64]) -> NDArray[np.float64]:
        """The largest amount of each record, out of those of its blocks at each device."""
        return np.asarray(amounts.reshape(-1, self.schedule.records).max(axis=0))

    def _terms(
        self,
        observed: Sequence[Observed],
        protected: Sequence[Observed],
        unit: Unit,
        reading: Reading,
        *,
        amplified: bool,
    ) -> list[tuple[Term, str | None]]:
        """The number of releases that depend on each candidate, and what each term takes for granted.

        Candidates are the records, or the one unit that is not a record. Where messages depend on their sender's block
        alone and the unit is at one device, they are the blocks of every device, one device after the other.
        """
        amplified = amplified and unit.per_record and all(r.noise.independent for r, _ in protected)
        scheme = _SCHEMES.get(self.schedule.batching) if amplified else None
        several = unit.at_one_device and any(r.senders is not None for r, _ in protected)
        width = (self.schedule.devices if several else 1) * (self.schedule.records if unit.per_record else 1)
        if scheme is None:
            known, joined = list(protected), Joined()
        else:
            known = [(r, rounds) for r, rounds in protected if r.once]
            fixed = self.schedule.batching is Batching.FIXED
            sampled = [
                SampledRelease.of(r, rounds, unit, fixed_size=fixed) for r, rounds in observed if r.depends_on_batch
            ]
            joined = join(sampled, scheme, self.schedule.rate, width, one_sided=unit is Unit.ADD_REMOVE)
        as_known = [
            Term(kind=r.kind, noise=r.noise, sensitivity=r.sensitivity, counts=self.schedule.counts(rounds))
            for r, rounds in joined.as_known
        ]
        terms = [
            (t.times(self._trainings(r)), None)
            for r, rounds in known
            for t in self._known_terms(r, rounds, unit, reading)
        ]
        sampled_terms = [(t.times(self._trainings()), n) for t, n in (*joined.terms, *((t, None) for t in as_known))]
        return [(_widened(t, width), note) for t, note in (*terms, *sampled_terms)]

    def _known_terms(self, release: Release, rounds: NDArray[np.bool_], unit: Unit, reading: Reading) -> list[Term]:
        """The terms of one release if the records of its batches are known."""

        def term(sensitivity: float, counts: Sequence[NDArray[np.int64]]) -> Term:
            joined = np.concatenate(counts)
            return Term(kind=release.kind, noise=release.noise, sensitivity=sensitivity, counts=joined)

        own, parts = release.sensitivity[unit], _senders(release, rounds, unit)
        if not unit.per_record:
            return [term(own, [np.array([np.count_nonzero(part)], dtype=np.int64) for part in parts])]
        if release.leak is None or not self._leaks(release, unit, reading):
            return [term(own, [self._participations(release, part) for part in parts])]
        firsts = self._firsts(release, unit)
        at_first = [np.append(part, False)[first].astype(np.int64) for part, first in zip(parts, firsts, strict=True)]
        read = parts if release.leak.own else [rounds] * len(parts)
        later = [_after(part, first) for part, first in zip(read, firsts, strict=True)]
        moved = max(own, release.leak.sensitivity[unit])
        if not release.noise.independent:  # one release of the whole run, whose parts do not add up
            return [term(moved, [np.add(*counts) for counts in zip(at_first, later, strict=True)])]
        return [term(own, at_first), term(moved, later)]

    def _firsts(self, release: Release, unit: Unit) -> list[NDArray[np.int64]]:
        """The first round of each record, at every device where messages depend on the sender's block alone.

        A block enters through its device: nothing depends on it before that device first takes part with the record.
        """
        if release.senders is None or not unit.at_one_device:
            return [self.schedule.first_rounds()]
        return [self.schedule.first_rounds(rounds) for rounds in (release.senders | self.schedule.active).T]

    def _batches(self, adversary: Adversary, observed: Sequence[Observed], reading: Reading) -> _Batches:
        """Whether the adversary can tell who is in a batch, and whether sampling may be counted in its favour.

        It can tell if it is told, and if it receives anything that depends on the batch without noise: with features
        and initial models known, exact rows or sums name the records they were computed from.
        """
        schedule = self.schedule
        full = schedule.batching is Batching.FULL
        exact = [r.kind for r, _ in observed if r.depends_on_batch and r.noise.exact]
        secret = not (adversary.knows_batches or exact or (full and adversary.kind == "model"))
        if full:
            return _Batches("every record is in every round: nothing is sampled", secret=secret)
        if adversary.knows_batches:
            return _Batches(f"{adversary} knows which records were in each batch: no amplification by subsampling")
        if exact:
            return _Batches(f"batches are secret, but {exact[0]} shows who is in them: no amplification by subsampling")
        if any(self._leaks(r, unit, reading) for r, _ in observed for unit in Unit if unit.per_record):
            reason = "state that changes without noise may show who took part"
            return _Batches(f"batches are secret, but counted as known: {reason}", secret=True)
        if schedule.batching is Batching.POISSON:
            note = f"batches are secret and Poisson with rate {schedule.rate:.6g}"
            return _Batches(note, secret=True, amplify=True)
        if schedule.batching is Batching.FIXED:
            rate = f"{schedule.batch_size} of {schedule.records} records, rate {schedule.rate:.6g}"
            note = f"batches are secret and drawn without replacement, not Poisson: {rate}"
            return _Batches(note, secret=True, amplify=True)
        reason = f"{schedule.batching}, not Poisson: counted as known, by the schedule's own participation counts"
        return _Batches(f"batches are secret but {reason}", secret=True)

    def _carried_note(self, adversary: Adversary, reading: Reading) -> str:
        if reading is Reading.PAPER:
            return f"only rounds of {adversary} count, although they depend on models that other rounds changed"
        return f"rounds of {adversary} depend on models that all rounds changed: all rounds count"

    def _leak_notes(self, protected: Sequence[Observed], unit: Unit, reading: Reading) -> list[str]:
        leaks = [r.leak for r, _ in protected if r.leak is not None and unit in r.leak.sensitivity]
        if reading is Reading.PAPER:
            return [f"{leak.carrier} is taken not to depend on the protected data, although it does" for leak in leaks]
        return [
            f"{leak.carrier} changes without noise: after a record's first round every release may differ by "
            f"{leak.sensitivity[unit]:g}"
            for leak in leaks
        ]


def _assumption(release: Release) -> str:
    """Under which assumption a ciphertext gives nothing away."""
    return f"{release.kind} is ciphertext, protected by assumption and not measured ({release.noise.sealed_by})"


def _tuning_note(runs: int, protected: Sequence[Release]) -> str:
    """How trainings that were for tuning are counted."""
    if not runs:
        return "no training on the same data came before this one, as was stated"
    kept = [release.kind for release in protected if not release.redrawn]
    but = f"; but {', '.join(kept)} counts once, since all trainings used the same noised values" if kept else ""
    counted = (
        f"{runs} tuning run{'' if runs == 1 else 's'} on the same data counted, each with as many releases as this"
    )
    return f"{counted} training; a choice among them by private data is not{but}"


def _explain(release: Release, unit: Unit) -> str:
    reason = "carries no noise" if release.noise.exact else f"has no bounded sensitivity for the {unit} unit"
    return f"{release.kind} ({release.what}) {reason}"


def _squares(terms: Sequence[Term]) -> NDArray[np.float64] | None:
    """Each record's mu², if all its releases have Gaussian noise without sampling."""
    if not terms or any(term.scale != "gaussian" for term in terms):
        return None
    return np.asarray(sum(term.squares for term in terms))


def _senders(release: Release, rounds: NDArray[np.bool_], unit: Unit) -> list[NDArray[np.bool_]]:
    """The rounds whose messages depend on the unit: of each device, where they depend on the sender's block alone."""
    if release.senders is None or not unit.at_one_device:
        return [rounds]
    return [rounds & sent for sent in release.senders.T]


def _after(rounds: NDArray[np.bool_], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each record, how many of these rounds come after its first."""
    left = np.concatenate([np.cumsum(rounds[::-1])[::-1], [0, 0]])
    return np.asarray(left[first + 1], dtype=np.int64)


def _widened(term: Term, width: int) -> Term:
    """The term for so many candidates: the same counts for every device."""
    return term if len(term.counts) == width else replace(term, counts=np.tile(term.counts, width // len(term.counts)))


@dataclass(frozen=True, kw_only=True)
class _Batches:
    """Whether an adversary knows the batches; `amplify` if their secrecy may be counted in its favour."""

    note: str = field(kw_only=False)
    secret: bool = False
    amplify: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledRelease:
    """One kind of release from secret batches.

    `sensitivity` is the distance between two neighbours in a batch that both are in; 0 if only who is in the batch
    matters, or if the release does not protect the unit and is named as such. `hidden` is the distance by which a
    dominating pair of the sampled release has to differ; infinite if the release may show whether a record takes part.
    """

    kind: str
    noise: Law
    sensitivity: float
    hidden: float
    rounds: NDArray[np.bool_]

    @classmethod
    def of(cls, release: Release, rounds: NDArray[np.bool_], unit: Unit, *, fixed_size: bool) -> SampledRelease:
        """A release in these rounds.

        Poisson batches. Let the adversary be told who else is in every batch: that is independent of the record and of
        the data. What is left of a round is N(0) without the record and N(a) with it, |a| at most c, the sensitivity
        for the add-remove unit. `a` may depend on the record's earlier rounds, which are secret (a table of embeddings
        sent last): given all earlier releases it is then random, with another law in either world. So a round is a
        mixture of pairs (1-q) N(0) + q N(a) against (1-q) N(0) + q N(b) with |a|, |b| at most c, but |a - b| may exceed
        the sensitivity. The pair a = -b = c dominates all of them, hence the mixture: the distance is 2c. A record that
        is absent in one world has b = 0: the distance is c.

        Batches of a fixed size. Another record takes an absent one's place, so that who else is in the batch depends
        on the record. The dominating pair needs that batches without the record give the same in both worlds, which is
        not so where other records' contributions depend on earlier, secret batches. It is used for fresh ones alone.
        """
        own = release.sensitivity.get(unit, 0.0) if release.protects(unit) else 0.0
        removed = release.sensitivity.get(Unit.ADD_REMOVE, math.inf)
        swapped = min(release.sensitivity.get(Unit.RECORD, math.inf), 2 * removed)
        one_sided = unit is Unit.ADD_REMOVE
        if fixed_size and one_sided and own > 0:
            own = max(own, swapped)
        hidden = swapped if fixed_size else removed if one_sided else 2 * removed
        hides = release.additive and (release.fresh or not fixed_size)
        return cls(
            kind=release.kind,
            noise=release.noise,
            sensitivity=own,
            hidden=max(own, hidden) if hides else math.inf,
            rounds=rounds,
        )


@dataclass(frozen=True, kw_only=True)
class Joined:
    """Terms of sampled releases with what they take for granted, and the releases that are counted as known."""

    terms: list[tuple[Term, str | None]] = field(default_factory=list)
    as_known: list[Sampled] = field(default_factory=list)


def join(
    releases: Sequence[SampledRelease], scheme: str, rate: float, candidates: int, *, one_sided: bool = False
) -> Joined:
    """One term for each set of releases that share rounds, or those releases as if their batches were known.

    Releases of one round can be joined if all noise is Gaussian. The joint release hides who took part if each of them
    does. Where it does not, or where hiding costs more, the adversary is told all batches: the record is in each with
    probability `rate`, and then differs by the sensitivity (`-seen`). That holds for replaced records, whose worlds
    have the same batches; with a record absent in one world (`one_sided`), batches count as known instead.
    """
    joined = Joined()
    if not releases:
        return joined
    present = np.stack([release.rounds for release in releases])
    patterns, pattern_of = np.unique(present, axis=1, return_inverse=True)
    for number, pattern in enumerate(patterns.T):
        members = [release for release, included in zip(releases, pattern, strict=True) if included]
        rounds = pattern_of == number
        if all(member.sensitivity == 0 for member in members):
            continue
        joint = members[0] if len(members) == 1 else _joined(members)
        if joint is None or (one_sided and math.isinf(joint.hidden)):
            joined.as_known.extend((member, rounds) for member in members if member.sensitivity > 0)
            continue
        secret = one_sided or joint.hidden * math.sqrt(rate) <= joint.sensitivity
        secret = secret and math.isfinite(joint.hidden)
        term = Term(
            kind=joint.kind,
            noise=joint.noise,
            sensitivity=joint.hidden if secret else joint.sensitivity,
            counts=np.full(candidates, np.count_nonzero(rounds), dtype=np.int64),
            sampling=Sampling(scheme if secret else f"{scheme}-seen", rate),
        )
        joined.terms.append((term, None if secret else _shown_note(joint, scheme)))
    return joined


def _shown_note(joint: SampledRelease, scheme: str) -> str:
    if math.isfinite(joint.hidden):
        return f"{joint.kind} is counted as if it showed who takes part, which costs less than what hiding it would"
    if scheme == _SCHEMES[Batching.POISSON]:
        missing = "no sensitivity for the add-remove unit bounds what one record adds to it"
        return f"{joint.kind} is counted as if it showed who takes part: {missing}"
    reason = "what records add to it may depend on who was in earlier batches"
    return f"{joint.kind} is counted as if it showed who takes part: {reason}"


def _joined(members: Sequence[SampledRelease]) -> SampledRelease | None:
    """Several releases of one round as one with noise of std 1, if all are Gaussian; None with other noise."""
    joint = members[0].noise.joint
    if joint is None or any(member.noise.joint != joint for member in members):
        return None
    return SampledRelease(
        kind=" + ".join(member.kind for member in members),
        noise=joint,
        sensitivity=math.hypot(*(member.noise.strength(member.sensitivity) for member in members)),
        hidden=math.hypot(*(member.noise.strength(member.hidden) for member in members)),
        rounds=members[0].rounds,
    )
