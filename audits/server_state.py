"""The server-state audit: does one record move releases of rounds that it is not in?

Two worlds run side by side under the same random streams, and the second world releases the values of the first. A
difference between their noiseless values in a round without the record is then exact, and can only come from state that
private data moved without noise. The same pair of worlds shows whether a device with zeros for data moves a release by
more than its sensitivity says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from vflpriv.audits.twins.pairs import TwinCanary, in_world
from vflpriv.audits.twins.probes import Follower, Probe, Released
from vflpriv.audits.two_world.canaries import plan
from vflpriv.common.devices import precise_device, to_host
from vflpriv.common.machine import single_threaded
from vflpriv.common.registry import register
from vflpriv.common.store import Store
from vflpriv.core.audit import Audit, AuditContext, Finding
from vflpriv.core.canaries import Canary, CanaryKind, most_exposed
from vflpriv.core.claims import Verdict
from vflpriv.core.releases import Release
from vflpriv.core.systems import Offer, System
from vflpriv.core.units import Unit

__all__ = ["EmptiedDevice", "MovedReleases", "StateAudit"]

_UNITS = (Unit.LABEL, Unit.FEATURES)
_OWN = "server-update"


@dataclass(frozen=True, kw_only=True)
class MovedReleases:
    """How far one kind of release moved, in rounds with the record and in rounds without it.

    `moved` counts the releases without the record that differ at all in some replica; `largest` is the largest such
    difference (L2), `std` the noise on it, `mu` what all of them together give away beyond the record's own rounds.
    `carrier` is the state that the ledger says carries the record over, None where it says that nothing does.
    """

    kind: str
    unit: Unit
    record: int
    inside: int
    outside: int
    moved: int
    largest: float
    std: float
    mu: float
    carrier: str | None

    @property
    def holds(self) -> bool:
        """Whether nothing moved, or the ledger says that it does."""
        return self.moved == 0 or self.carrier is not None

    @property
    def verdict(self) -> Verdict:
        """State that the ledger names is against the proofs that leave it out of account; other state, against both."""
        if not self.outside:
            return Verdict.NOT_APPLICABLE
        if not self.moved:
            return Verdict.CONSISTENT
        return Verdict.UNSUPPORTED if self.holds else Verdict.VIOLATED

    @property
    def sentence(self) -> str:
        moving = f"one record's {self.unit}"
        if not self.outside:
            return f"record {self.record} is in every round: nothing to see of {moving} elsewhere"
        if not self.moved:
            return f"{moving} moved none of the {self.outside} {self.kind} releases without it: exactly 0"
        return (
            f"{moving} moved {self.moved} of the {self.outside} {self.kind} releases without it, "
            f"by up to {self.largest / self.std:.3g} standard deviations of the noise (μ = {self.mu:.3g} together)"
        )


@dataclass(frozen=True, kw_only=True)
class EmptiedDevice:
    """The largest distance in one release between a device with its data and the same device with zeros for data.

    `published` says that the bound is the one of a published proof, where that is smaller than the proven one.
    """

    kind: str
    declared: float
    largest: float
    round: int
    published: bool = False

    @property
    def holds(self) -> bool:
        return self.largest <= self.declared * (1 + 1e-5)

    @property
    def sentence(self) -> str:
        if self.holds:
            within = f"{self.largest:.4g}, within the {self._bound} {self.declared:.4g}"
            return f"a device emptied of its data moved no release of {self.kind} by more than {within}"
        return (
            f"a device with zeros for data does not send zeros: emptying it moved a release of {self.kind} by "
            f"{self.largest:.4g} in round {self.round}, beyond the {self._bound} {self.declared:.4g}"
        )

    @property
    def _bound(self) -> str:
        return "published" if self.published else "declared"


@register("audit")
class StateAudit(Audit[System]):
    """Trains in two worlds that release the same values, and looks for differences where there must be none.

    There are no statistics in it: one difference is a proof.
    """

    name = "server-state"
    summary = "looks for state that carries a record into releases of rounds it is not in"
    order = 30
    needs = frozenset({Offer.RELEASE_POINTS})

    def __init__(self, *, replicas: int = 8) -> None:
        self.replicas = replicas

    def run(self, system: System, context: AuditContext) -> list[Finding]:
        """One finding for each unit of a record and kind of noised release, then those about an emptied device.

        A published bound that is smaller than the proven one is a premise of the published claims alone, and is left
        aside where none of them is to be tested.
        """
        context.progress.stage(f"{system.key}: state")
        moved = [_moved_finding(result) for result in self.moved(system)]
        published = context.published(system)
        emptied = [result for result in self.emptied(system) if published or not result.published]
        return moved + [_emptied_finding(result, published) for result in emptied]

    def units(self, system: System) -> tuple[Unit, ...]:
        """The units of one record that noised releases of this system speak of."""
        noised = [r for r in system.ledger.releases if r.noise.gaussian]
        return tuple(u for u in _UNITS if any(u in r.sensitivity for r in noised))

    def moved(self, system: System) -> list[MovedReleases]:
        """What moved, for each unit of a record and kind of noised release."""
        return self.search(system, *self.units(system))

    def emptied(self, system: System) -> list[EmptiedDevice]:
        """Does the sensitivity for a device without data hold for the models that are trained?"""
        gaussian = [r for r in system.ledger.releases if r.noise.gaussian]
        noised = [r for r in gaussian if Unit.CLIENT_ZERO in r.sensitivity]
        if not noised or all(r.kind == "zo-scalar" for r in noised):
            return []
        canary = plan(system, CanaryKind.NATURAL, 0, Store(), unit=Unit.CLIENT_ZERO)
        both = [
            (_kind(first), round_, _gap(first, second).max()) for round_, first, second in self._both(system, [canary])
        ]
        largest: dict[str, tuple[float, int]] = {}
        for (kind, round_, _), square in zip(both, to_host([square for *_, square in both]), strict=True):
            largest[kind] = max(largest.get(kind, (0.0, 0)), (math.sqrt(float(square)), round_))
        return [
            EmptiedDevice(kind=r.kind, declared=bound, largest=gap, round=round_, published=published)
            for r in noised
            for gap, round_ in [largest.get(r.kind, (0.0, 0))]
            for published, bound in _bounds(system, r).items()
        ]

    def _both(self, system: System, canaries: Sequence[Canary]) -> Iterator[tuple[int, Released, Released]]:
        """The releases of both worlds, round by round; the second world releases the values of the first.

        Each canary has as many replicas, one canary's after the other's, with the same seeds.
        """
        leader = Probe()
        follower = Follower(leader)
        twins = [_twin(canary) for canary in canaries for _ in range(self.replicas)]
        first, second = (
            system.train([*range(self.replicas)] * len(canaries), data=in_world(system.data, twins, world), probe=probe)
            for world, probe in ((0, leader), (1, follower))
        )
        with single_threaded():
            for round_ in range(system.schedule.rounds):
                both = leader.round(first, round_), follower.round(second, round_)
                for led, followed in zip(*both, strict=True):
                    yield round_, led, followed

    def search(self, system: System, *units: Unit) -> list[MovedReleases]:
        """The differences for each of these units, with a record of the data set as it is."""
        if not units:
            return []
        record = most_exposed([], system.schedule)
        canaries = [plan(system, CanaryKind.NATURAL, record, Store(), unit=unit) for unit in units]
        inside: dict[str, int] = {}
        squares: dict[str, list[torch.Tensor]] = {}
        stds: dict[str, float] = {}
        for round_, first, second in self._both(system, canaries):
            kind = _kind(first)
            stds[kind] = first.std
            if record in system.schedule.batch(round_):
                inside[kind] = inside.get(kind, 0) + 1
            else:
                squares.setdefault(kind, []).append(_gap(first, second).reshape(len(units), self.replicas))
        return [
            _moved(system, unit, record, kind, inside.get(kind, 0), [gap[u] for gap in squares.get(kind, [])], std)
            for u, unit in enumerate(units)
            for kind, std in stds.items()
        ]


def _twin(canary: Canary) -> TwinCanary:
    """A natural canary as one of a pair of runs."""
    return TwinCanary(
        unit=canary.unit,
        what=f"{canary.unit} of record {canary.record}",
        record=canary.record if canary.unit.per_record else None,
        labels=canary.labels if canary.unit.per_record else None,
        blocks={m: (pair[0, 0], pair[0, 1]) for m, pair in canary.pairs.items()},
        factors=canary.factors,
    )


def _bounds(system: System, release: Release) -> dict[bool, float]:
    """The proven bound for a device without data, and by True a published one that is smaller.

    They are those of one value, of which the ledger may count several together.
    """
    uplink = system.engine.mechanisms(system.settings, system.schedule).get("embeddings")
    unit = Unit.CLIENT_ZERO
    bound = release.sensitivity[unit]
    if uplink is None:
        return {False: bound}
    proven, published = min(bound, uplink.sensitivity[unit]), uplink.declared[unit]
    return {False: proven, True: published} if published < proven else {False: proven}


def _kind(value: Released) -> str:
    """The kind of the message that carried a value, or of an internal one that no message carries."""
    if value.message is not None:
        return value.message.kind
    return value.kind if value.internal else _OWN


def _gap(first: Released, second: Released) -> torch.Tensor:
    """(R,) squared distance between the noiseless values of the two worlds, in float64."""
    gap = first.noiseless - second.noiseless
    gap = gap.to(precise_device(gap.device), torch.float64)
    return gap.square().reshape(len(gap), -1).sum(1)


def _moved(
    system: System, unit: Unit, record: int, kind: str, inside: int, squares: Sequence[torch.Tensor], std: float
) -> MovedReleases:
    table = torch.stack(list(squares)) if squares else torch.zeros(0, 1, dtype=torch.float64)
    return MovedReleases(
        kind=kind,
        unit=unit,
        record=record,
        inside=inside,
        outside=len(table),
        moved=int((table > 0).any(1).sum()),
        largest=math.sqrt(float(table.max())) if len(table) else 0.0,
        std=std,
        mu=math.sqrt(float(table.sum(0).mean())) / std if len(table) else 0.0,
        carrier=_carrier(system.ledger.releases, kind, unit),
    )


def _moved_finding(result: MovedReleases) -> Finding:
    """Claims about every unit that includes what moved rest on it."""
    return Finding(
        audit=StateAudit.name,
        subject=result.kind,
        verdict=result.verdict,
        sentence=result.sentence,
        figure=result.mu,
        measure="μ of all releases without the record",
        claim_units=frozenset(unit for unit in Unit if unit.implies(result.unit)),
        unit=result.unit,
        note=f"; the ledger says so: {result.carrier}" if result.carrier and result.moved else "",
        evidence=result,
    )


def _emptied_finding(result: EmptiedDevice, published: frozenset[str]) -> Finding:
    return Finding(
        audit=StateAudit.name,
        subject=result.kind,
        verdict=Verdict.CONSISTENT if result.holds else Verdict.VIOLATED,
        sentence=result.sentence,
        figure=result.largest,
        measure="largest distance (L2)",
        limit=result.declared,
        claim_units=frozenset({Unit.CLIENT_ZERO}),
        claim_keys=published if result.published else None,
        unit=Unit.CLIENT_ZERO,
        evidence=result,
    )


def _carrier(releases: Sequence[Release], kind: str, unit: Unit) -> str | None:
    leaks = [r.leak for r in releases if r.kind == kind and r.leak is not None and unit in r.leak.sensitivity]
    return leaks[0].carrier if leaks else None
