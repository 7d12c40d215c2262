"""State audit: does one record move releases of rounds that it is not in?

Two worlds run side by side under the same random streams, and what leaves one leaves the other too. A difference
between their noiseless values in a round without the record is then exact, and can only come from state that private
data moved without noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from vflpriv.audits.scoring.worlds import for_replicas
from vflpriv.audits.worlds.canaries import most_exposed, plan
from vflpriv.audits.worlds.probes import Follower, Probe, Released
from vflpriv.audits.worlds.store import TrialStore, one_thread
from vflpriv.common.registry import register
from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.releases import Gaussian, Release
from vflpriv.core.systems import System
from vflpriv.core.units import Unit

__all__ = ["EmptiedFinding", "StateAudit", "StateFinding"]

_UNITS = (Unit.LABEL, Unit.FEATURES)
_OWN = "server-update"


@dataclass(frozen=True, kw_only=True)
class StateFinding:
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
        """Whether the ledger says so, or nothing moved."""
        return self.moved == 0 or self.carrier is not None

    @property
    def sentence(self) -> str:
        what = f"one record's {self.unit}"
        if not self.outside:
            return f"record {self.record} is in every round: nothing to see of {what} elsewhere"
        if not self.moved:
            return f"{what} moved none of the {self.outside} {self.kind} releases without it: exactly 0"
        return (
            f"{what} moved {self.moved} of the {self.outside} {self.kind} releases without it, "
            f"by up to {self.largest / self.std:.3g} standard deviations of the noise (μ = {self.mu:.3g} together)"
        )


@dataclass(frozen=True, kw_only=True)
class EmptiedFinding:
    """The largest distance in one release between a device with its data and the same device with zeros for data."""

    kind: str
    declared: float
    largest: float
    round: int

    @property
    def holds(self) -> bool:
        return self.largest <= self.declared * (1 + 1e-5)

    @property
    def sentence(self) -> str:
        if self.holds:
            within = f"{self.largest:.4g}, within the declared {self.declared:.4g}"
            return f"a device emptied of its data moved no release of {self.kind} by more than {within}"
        return (
            f"a device with zeros for data does not send zeros: emptying it moved a release of {self.kind} by "
            f"{self.largest:.4g} in round {self.round}, beyond the declared {self.declared:.4g}"
        )


@register("audit")
class StateAudit:
    """Trains in two worlds that let out the same, and looks for differences where there must be none.

    It has no statistics: one difference is a proof.
    """

    name = "server-state"
    summary = "looks for state that carries a record into releases of rounds it is not in"

    def __init__(self, *, replicas: int = 8) -> None:
        self.replicas = replicas

    def units(self, system: System) -> tuple[Unit, ...]:
        """The units of one record that noised releases of this system speak of."""
        noised = [r for r in system.ledger.releases if isinstance(r.noise, Gaussian)]
        return tuple(u for u in _UNITS if any(u in r.sensitivity for r in noised))

    def run(self, system: System) -> list[StateFinding]:
        """One finding for each unit and kind of noised release."""
        return [finding for unit in self.units(system) for finding in self.search(system, unit)]

    def emptied(self, system: System) -> list[EmptiedFinding]:
        """Does the sensitivity for a device without data hold for the models that are trained?"""
        gaussian = [r for r in system.ledger.releases if isinstance(r.noise, Gaussian)]
        noised = [r for r in gaussian if Unit.CLIENT_ZERO in r.sensitivity]
        if not noised or all(r.kind == "zo-scalar" for r in noised):
            return []
        canary = plan(system, CanaryKind.NATURAL, 0, TrialStore(), unit=Unit.CLIENT_ZERO)
        largest: dict[str, tuple[float, int]] = {}
        for round_, one, other in self._both(system, canary):
            kind = one.message.kind if one.message is not None else _OWN
            gap = math.sqrt(float(_gap(one, other).max()))
            largest[kind] = max(largest.get(kind, (0.0, 0)), (gap, round_))
        return [
            EmptiedFinding(kind=r.kind, declared=_declared(system, r), largest=gap, round=round_)
            for r in noised
            for gap, round_ in [largest.get(r.kind, (0.0, 0))]
        ]

    def _both(self, system: System, canary: Canary) -> Iterator[tuple[int, Released, Released]]:
        """What leaves in either world, round by round; the second world lets out what the first does."""
        leader = Probe()
        follower = Follower(leader)
        first, second = (
            system.train(
                range(self.replicas),
                data=for_replicas(canary, [world] * self.replicas).into(system.data),
                probe=probe,
            )
            for world, probe in ((0, leader), (1, follower))
        )
        with one_thread():
            for round_ in range(system.schedule.rounds):
                both = leader.round(first, round_), follower.round(second, round_)
                for one, other in zip(*both, strict=True):
                    yield round_, one, other

    def search(self, system: System, unit: Unit) -> list[StateFinding]:
        """The differences for one unit, with a record of the data set as it is."""
        record = most_exposed([], system.schedule)
        canary = plan(system, CanaryKind.NATURAL, record, TrialStore(), unit=unit)
        inside: dict[str, int] = {}
        squares: dict[str, list[torch.Tensor]] = {}
        stds: dict[str, float] = {}
        for round_, one, other in self._both(system, canary):
            kind = one.message.kind if one.message is not None else _OWN
            stds[kind] = one.std
            if record in system.schedule.batch(round_):
                inside[kind] = inside.get(kind, 0) + 1
            else:
                squares.setdefault(kind, []).append(_gap(one, other))
        return [
            _finding(system, unit, record, kind, inside.get(kind, 0), squares.get(kind, []), std)
            for kind, std in stds.items()
        ]


def _declared(system: System, release: Release) -> float:
    """What proofs take as the bound for a device without data: the published one where there is one."""
    uplink = system.engine.mechanisms(system.settings, system.schedule).get("embeddings")
    own = release.sensitivity[Unit.CLIENT_ZERO]
    return own if uplink is None else min(own, uplink.declared[Unit.CLIENT_ZERO])


def _gap(one: Released, other: Released) -> torch.Tensor:
    """(R,) squared distance between the noiseless values of the two worlds."""
    gap = (one.noiseless - other.noiseless).to(torch.float64)
    return gap.square().reshape(len(gap), -1).sum(1)


def _finding(
    system: System, unit: Unit, record: int, kind: str, inside: int, squares: Sequence[torch.Tensor], std: float
) -> StateFinding:
    table = torch.stack(list(squares)) if squares else torch.zeros(0, 1, dtype=torch.float64)
    return StateFinding(
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


def _carrier(releases: Sequence[Release], kind: str, unit: Unit) -> str | None:
    leaks = [r.leak for r in releases if r.kind == kind and r.leak is not None and unit in r.leak.sensitivity]
    return leaks[0].carrier if leaks else None
