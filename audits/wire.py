"""The wire audit: is everything that leaves in the ledger, and does nothing else depend on what is private?

It reads every tensor of every message, and trusts no declaration: first the names on the wire are compared with the
ledger, then two runs in neighbouring worlds with the same randomness, of which the second releases what the first
released. What differs between them, beyond what the ledger says, is a release that it leaves out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vflpriv.audits.twins.check import Difference, Excess, Gap, TwinCheck
from vflpriv.audits.twins.pairs import CONTROL, TwinCanary, plan_twins, run_twins
from vflpriv.audits.twins.reconcile import AUDIT, Outline, Sightings, is_open, link, reconcile, reconcile_run
from vflpriv.audits.twins.runs import compare_runs, plan_runs, record_run, run_data
from vflpriv.common.machine import single_threaded
from vflpriv.common.registry import register
from vflpriv.core.audit import Audit, AuditContext, Finding, Progress
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.data import VerticalData
from vflpriv.core.ledger import Ledger
from vflpriv.core.releases import Release
from vflpriv.core.systems import Offer, System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Message
from vflpriv.laws import Exact

__all__ = ["WireAudit", "recorded_tensors"]

_NEIGHBOURS = {
    Unit.LABEL: frozenset({Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE}),
    Unit.FEATURES: frozenset(Unit) - {Unit.LABEL},
    Unit.RECORD: frozenset({Unit.RECORD, Unit.ADD_REMOVE}),
    Unit.CLIENT: frozenset({Unit.CLIENT, Unit.CLIENT_ZERO}),
    Unit.CLIENT_ZERO: frozenset({Unit.CLIENT, Unit.CLIENT_ZERO}),
}
"""The units that an exact value which moves with a unit leaves without protection.

Whoever sees the difference between two labels of a record sees at least one of the two steps in which the record is
taken out and put back; and likewise for a device.
"""


def recorded_tensors(ledger: Ledger, messages: Iterable[Message], kinds: Iterable[str]) -> list[Finding]:
    """What a ledger leaves out of the recorded messages of kinds that it lists; nothing if it lists all."""
    findings = reconcile(ledger, Sightings().extend(messages), kinds=frozenset(kinds), trained=False)
    return [finding for finding in findings if finding.verdict is not Verdict.CONSISTENT]


@register("audit")
class WireAudit(Audit[System]):
    """Trains twice, in neighbouring worlds that release the same values, and compares all that is sent.

    Each of a few dozen replicas is one pair of neighbours. There are no statistics in it: one difference is a proof.
    """

    name = AUDIT
    summary = "compares every tensor that is sent with the ledger, and between two neighbouring worlds"
    order = 5
    needs = frozenset({Offer.RELEASE_POINTS})

    def work(self, system: System, context: AuditContext) -> int:
        canaries = plan_twins(system, [claim.unit for claim in context.claims])
        wholes = plan_runs(system, [canary.unit for canary in canaries])
        return (2 * len(canaries) + 1 + len(wholes)) * system.schedule.rounds

    def run(self, system: System, context: AuditContext) -> list[Finding]:
        """What the ledger leaves out; then, for each unit, whether anything moves that should not."""
        context.progress.stage(f"{system.key}: wire, two worlds")
        ledger, canaries = system.ledger, plan_twins(system, [claim.unit for claim in context.claims])
        adversaries = [a for claim in context.claims for a in claim.adversary.each(system.schedule.devices)]
        check, seen, released = TwinCheck(ledger, canaries, adversaries), Sightings(), set[str]()
        with single_threaded():
            goes_on = True
            for twins in run_twins(system, canaries):
                seen.extend(twins.messages[0])
                released |= {value.kind for value in twins.values[0]}
                goes_on = goes_on and check.add(twins)
                context.progress.advance(2 * len(canaries))
        findings = [*reconcile(ledger, seen, trained=True), *_never_noised(ledger, seen, released)]
        refusal = self._uncontrolled(system, check, canaries)
        if check.unforced is not None:
            return [*findings, _not_forced(check.unforced), *self._judge(system, context, check, [])]
        if check.uneven is not None:
            return findings + ([_not_done(refusal)] if refusal else self._judge(system, context, check, []))
        with single_threaded():
            runs = _WholeRuns(system, plan_runs(system, [canary.unit for canary in canaries]), context.progress)
            findings += reconcile_run(ledger, seen.sent, runs.sent)
            wholes = runs.checks(adversaries, control=refusal is not None)
        if refusal or runs.uncontrolled:
            findings.append(_not_done(refusal or f"{runs.uncontrolled}"))
        return findings + self._judge(system, context, None if refusal else check, wholes)

    def _uncontrolled(self, system: System, check: TwinCheck, canaries: Sequence[TwinCanary]) -> str | None:
        """Why two runs of this system cannot be compared, if they cannot."""
        if check.uncontrolled is not None:
            return check.uncontrolled
        if check.uneven is None:
            return None
        again = TwinCheck(system.ledger, canaries)
        with single_threaded():
            for twins in run_twins(system, canaries, alike=True):
                if not again.add(twins):
                    break
        return again.uneven or again.uncontrolled

    def _judge(
        self, system: System, context: AuditContext, twins: TwinCheck | None, wholes: Sequence[TwinCheck]
    ) -> list[Finding]:
        """What the comparisons found, of replicas (None if they cannot be compared) and of whole trainings."""
        judge, checks = _Judge(system, context.claims), [check for check in (twins, *wholes) if check is not None]
        findings = [judge.uneven(twins.uneven)] if twins is not None and twins.uneven is not None else []
        weak = {kind: stds for check in checks for kind, stds in check.weak.items()}
        findings += [judge.weak(kind, *stds) for kind, stds in weak.items()]
        causes = [judge.difference(moving) for check in checks for moving in check.differences.values()]
        causes += [judge.gap(gap) for check in checks for gap in check.gaps.values() if gap.broken]
        causes += [cause for check in wholes for cause in judge.uneven_run(check)]
        if not causes and not weak:
            # They follow from a wrong sensitivity or std, which is told already.
            causes += [judge.excess(excess) for check in checks for excess in check.excesses()]
        first = {(cause.subject, cause.unit): cause for cause in reversed(causes)}
        causes = [cause for cause in causes if first[cause.subject, cause.unit] is cause]
        consistent = [] if twins is None else _unmoved(system, twins, wholes, {cause.unit for cause in causes})
        return [*findings, *judge.findings(causes), *consistent]


def _unmoved(system: System, twins: TwinCheck, wholes: Sequence[TwinCheck], moved: Collection[Unit]) -> list[Finding]:
    """One finding for each unit with which nothing moves that should not."""
    if twins.uneven is not None or twins.unforced is not None:
        return []
    whole = {canary.unit for check in wholes if check.whole for canary in check.canaries}
    units = dict.fromkeys(canary.unit for canary in twins.canaries if canary.unit is not None)
    return [_consistent(system, twins, unit, whole=unit in whole) for unit in units if unit not in moved]


class _WholeRuns:
    """Whole trainings of one replica, in one world and in the worlds of a few canaries."""

    def __init__(self, system: System, canaries: Sequence[TwinCanary], progress: Progress) -> None:
        self._system, self._canaries, self._progress = system, canaries, progress
        self._data = run_data(system.data, canaries[0], 0) if canaries else system.data
        self._leader = record_run(system, self._data)
        progress.advance(system.schedule.rounds)
        self.uncontrolled: str | None = None
        """Where two trainings in the same world differ, if they do."""

    @property
    def sent(self) -> Counter[Outline]:
        """All messages of a training by their form."""
        return self._leader.sent

    def checks(self, adversaries: Sequence[Adversary], *, control: bool) -> list[TwinCheck]:
        """The comparison of each canary's two worlds; none if two trainings in the same world differ.

        Whether they do is looked at with `control`, or if a comparison shows something.
        """
        checks = []
        for canary in self._canaries:
            data = run_data(self._system.data, canary, 1)
            checks.append(self._compared(data, TwinCheck(self._system.ledger, [canary], adversaries)))
            self._progress.advance(self._system.schedule.rounds)
        if control or any(check.found for check in checks):
            again = self._compared(self._data, TwinCheck(self._system.ledger, [CONTROL]))
            self.uncontrolled = again.uneven or again.uncontrolled
        return checks if self.uncontrolled is None else []

    def _compared(self, data: VerticalData, check: TwinCheck) -> TwinCheck:
        follower = record_run(self._system, data, self._leader)
        for twins in compare_runs(self._leader, follower, self._system.schedule.rounds):
            if not check.add(twins):
                break
        return check


def _never_noised(ledger: Ledger, seen: Sightings, released: Collection[str]) -> list[Finding]:
    """Declared noise of which nothing was sent or released."""
    noised = {r.kind for r in ledger.releases if r.noise.norm is not None and not r.once}
    return [
        Finding(
            audit=AUDIT,
            subject=kind,
            verdict=Verdict.UNSUPPORTED,
            sentence=f"the ledger declares noise on {kind}, but nothing of that kind was sent or released",
            figure=0,
            measure="messages",
            claim_units=frozenset(),
            measures=False,
            decides_alone=True,
        )
        for kind in sorted(noised - set(seen.names) - set(released))
    ]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Cause:
    """Something that moves with a unit beyond the ledger, and the claims that it refutes."""

    subject: str
    sentence: str
    figure: float
    measure: str
    unit: Unit
    refuted: Sequence[Claim]
    undeclared: tuple[Release, ...] = ()


@dataclass(frozen=True, eq=False)
class _Judge:
    """From what the comparison found to findings: of each claim that it refutes, or of the ledger alone."""

    system: System
    claims: Sequence[Claim]

    def difference(self, moving: Difference) -> _Cause:
        """A tensor that moves and is not declared: it counts as an exact release to those who see it."""
        units = _NEIGHBOURS[moving.unit]
        observers = frozenset(a.kind for a in moving.harmed)
        observers |= {"devices"} if "device" in observers else frozenset()
        amount = f" by up to {moving.largest:.4g}" if moving.largest else ""
        sentence = (
            f"{_moving(moving.unit)} moves tensor {moving.tensor} of {moving.kind} messages{amount}, with the same "
            f"randomness and the same noised values, and the ledger does not say so (first in round "
            f"{moving.first.round}, {link(moving.first)}; {moving.messages} times; {moving.canary})"
        )
        undeclared = Release(
            kind=moving.kind,
            what=f"tensor {moving.tensor}: moves with {_moving(moving.unit)} without noise, against the ledger",
            noise=Exact(),
            sensitivity=dict.fromkeys(units, math.inf),
            rounds=np.ones(self.system.schedule.rounds, dtype=np.bool_),
            seen_by=observers,
            reaches_all=True,
            tensors=frozenset({moving.tensor}),
        )
        return _Cause(
            subject=f"{moving.kind}/{moving.tensor}",
            sentence=sentence,
            figure=moving.largest,
            measure=_LARGEST,
            unit=moving.unit,
            refuted=self._harmed(moving.unit, moving.harmed),
            undeclared=(undeclared,),
        )

    def gap(self, gap: Gap) -> _Cause:
        """A value under the noise that moves by more than the ledger says."""
        beyond = f"beyond the declared {gap.declared:.4g}"
        if not gap.declared:
            beyond = "in which the ledger does not count it"
        sentence = (
            f"{_moving(gap.unit)} moved the value under the noise of {gap.kind} by {gap.largest:.4g} in round "
            f"{gap.round}, {beyond} ({gap.canary})"
        )
        observers = frozenset[str]().union(*(r.seen_by for r in self.system.ledger.releases if r.kind == gap.kind))
        refuted = [c for c in self._about(gap.unit) if c.adversary.kind in observers]
        return _Cause(
            subject=gap.kind,
            sentence=sentence,
            figure=gap.largest,
            measure=_LARGEST,
            unit=gap.unit,
            refuted=refuted,
        )

    def excess(self, excess: Excess) -> _Cause:
        """All rounds together give more away than is accounted for."""
        sentence = (
            f"{_moving(excess.unit)} moved the values under the noise so far in all rounds together that "
            f"{excess.adversary} has μ = {excess.measured:.4g}, beyond the accounted μ = {excess.accounted:.4g} "
            f"({excess.canary})"
        )
        refuted = [c for c in self._about(excess.unit) if c.adversary == excess.adversary]
        return _Cause(
            subject=f"all rounds, {excess.adversary}",
            sentence=sentence,
            figure=excess.measured,
            measure="μ of all rounds",
            unit=excess.unit,
            refuted=refuted,
        )

    def uneven(self, where: str) -> Finding:
        """What is sent at all depends on what is private."""
        sentence = f"what is sent depends on private data, whatever the noise is: {where}"
        return _premise("messages", sentence, 1, "rounds", None)

    def uneven_run(self, check: TwinCheck) -> list[_Cause]:
        """What a whole training sends at all, or in which order, depends on a canary that those who see it must not."""
        (canary,), harmed = check.canaries, check.harmed()
        if check.uneven is None or canary.unit is None or not harmed:
            return []
        sentence = (
            f"what is sent depends on {_moving(canary.unit)}, whatever the noise is: {check.uneven} ({canary.what})"
        )
        return [
            _Cause(
                subject="messages",
                sentence=sentence,
                figure=1,
                measure="rounds",
                unit=canary.unit,
                refuted=self._harmed(canary.unit, harmed),
            )
        ]

    def _harmed(self, unit: Unit, adversaries: Collection[Adversary]) -> list[Claim]:
        """Claims that do not hold if these adversaries see the unit without noise."""
        units = _NEIGHBOURS[unit]
        return [c for c in self.claims if c.unit in units and any(_within(a, c.adversary) for a in adversaries)]

    def weak(self, kind: str, actual: float, declared: float) -> Finding:
        """Less noise than declared, which is accounted for beside what is declared."""
        sentence = f"the release point of {kind} adds noise of std {actual:.6g}, and the ledger declares {declared:.6g}"
        noised = [r for r in self.system.ledger.releases if r.kind == kind and r.noise.norm is not None]
        smaller = [replace(r, noise=r.noise.scaled(actual / declared) if actual else Exact()) for r in noised]
        return replace(
            _premise(kind, sentence, actual, "std at the release point", None, tuple(smaller)),
            verdict=Verdict.UNSUPPORTED,
            claim_units=frozenset(),
        )

    def _about(self, unit: Unit) -> list[Claim]:
        """Claims whose neighbours include those of the unit, and that the ledger itself does not refute."""
        ledger, devices = self.system.ledger, self.system.schedule.devices
        return [
            c
            for c in self.claims
            if c.unit.implies(unit) and not any(is_open(ledger, a, c.unit) for a in c.adversary.each(devices))
        ]

    def findings(self, causes: Sequence[_Cause]) -> list[Finding]:
        """One for the ledger, which is wrong, by each cause, and one for each claim that it refutes.

        What moves with a part of a unit moves with the unit, and is told once; a claim needs one refutation.
        """
        units = {cause.subject: {other.unit for other in causes if other.subject == cause.subject} for cause in causes}
        told = [cause for cause in causes if not units[cause.subject] & _PARTS.get(cause.unit, frozenset())]
        first = {claim.key: cause for cause in reversed(causes) for claim in cause.refuted}
        premises = [_premise(c.subject, c.sentence, c.figure, c.measure, c.unit, c.undeclared) for c in told]
        return premises + [
            Finding(
                audit=AUDIT,
                subject=first[claim.key].subject,
                verdict=Verdict.VIOLATED,
                sentence=first[claim.key].sentence,
                figure=first[claim.key].figure,
                measure=first[claim.key].measure,
                claim=claim.key,
                unit=first[claim.key].unit,
                adversary=claim.adversary,
            )
            for claim in self.claims
            if claim.key in first
        ]


_PARTS = {
    Unit.RECORD: frozenset({Unit.LABEL, Unit.FEATURES}),
    Unit.CLIENT: frozenset({Unit.FEATURES, Unit.CLIENT_ZERO}),
    Unit.CLIENT_ZERO: frozenset({Unit.FEATURES}),
}
"""The units that are told in the place of each one, if they move the same."""
_LARGEST = "largest difference"


def _premise(
    subject: str, sentence: str, figure: float, measure: str, unit: Unit | None, undeclared: tuple[Release, ...] = ()
) -> Finding:
    """The ledger does not hold; claims that it refutes have findings of their own, all claims if it is about none."""
    return Finding(
        audit=AUDIT,
        subject=subject,
        verdict=Verdict.VIOLATED,
        sentence=sentence,
        figure=figure,
        measure=measure,
        claim_units=None if unit is None else frozenset(),
        unit=unit,
        decides_alone=True,
        undeclared=undeclared,
    )


def _within(harmed: Adversary, claimed: Adversary) -> bool:
    """Whether the adversary of a claim is, or includes, this one."""
    if not harmed.devices or not claimed.is_device:
        return harmed == claimed
    return not claimed.devices or set(harmed.devices) <= set(claimed.devices)


def _moving(unit: Unit) -> str:
    return {
        Unit.LABEL: "one record's label",
        Unit.FEATURES: "one record's block at one device",
        Unit.RECORD: "one record",
        Unit.CLIENT: "one device's data",
        Unit.CLIENT_ZERO: "emptying one device",
    }[unit]


def _not_forced(where: str) -> Finding:
    return _not_compared(
        f"noise that no release point added cannot be made the same in both worlds ({where}): runs in two worlds are "
        "compared up to there"
    )


def _not_done(where: str) -> Finding:
    return _not_compared(
        "two runs with the same data and the same seed differ, so that runs in two worlds cannot be compared: "
        f"{where}; draw all randomness from the seeded streams, and all noise at release points"
    )


def _not_compared(sentence: str) -> Finding:
    return Finding(
        audit=AUDIT,
        subject="two worlds",
        verdict=Verdict.UNMEASURED,
        sentence=sentence,
        figure=0,
        measure="rounds compared",
        measures=False,
    )


def _consistent(system: System, check: TwinCheck, unit: Unit, *, whole: bool) -> Finding:
    """Nothing of a unit moved that should not; the noise of labels, which is drawn once, is not measured by it."""
    canaries = [r for r, canary in enumerate(check.canaries) if canary.unit is unit]
    gaps = [gap for (moved, _), gap in check.gaps.items() if moved is unit]
    largest = max(gaps, key=lambda gap: (gap.ratio, gap.largest), default=None)
    compared = (
        f"{len(canaries)} pairs of worlds that differ in {_moving(unit)}, same randomness and noised values, "
        f"{system.schedule.rounds} rounds, {check.tensors} tensors: nothing else differs that the ledger does not "
        "declare"
    )
    if whole:
        compared += ", nor between two whole trainings in which nothing else is shared"
    if largest is not None and largest.largest:
        compared += (
            f"; under the noise of {largest.kind} the worlds are at most {largest.largest:.4g} apart (round "
            f"{largest.round}), {largest.ratio:.3g} of what is declared"
        )
    beyond = [check.overflowed[r] for r in canaries if r in check.overflowed]
    if beyond:
        compared += f"; in {len(beyond)} pairs values overflowed, in round {min(beyond)} at the earliest"
    noises = [r.noise for r in system.ledger.releases if r.sensitivity.get(unit)]
    return Finding(
        audit=AUDIT,
        subject="two worlds",
        verdict=Verdict.CONSISTENT,
        sentence=compared,
        figure=0.0 if largest is None else largest.ratio,
        measure="largest distance under the noise, relative to the declared one",
        claim_units=frozenset({unit}),
        unit=unit,
        measures=all(noise.exact or noise.gaussian for noise in noises),
    )
