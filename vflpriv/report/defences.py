"""Privacy against utility for each system of an attack matrix, and which defence to take.

A point is a system under one defence at one strength: its test accuracy, and the leakage of the labels to the attack
that gains most. Another point dominates it that is at least as accurate and leaks at most as much, and is better in
one. Leakage below zero counts as none: an attack that does worse than its baseline has learnt nothing.

The defence to take is, of those that cost at most the affordable accuracy and whose interval of the leakage lies below
that without a defence, the one whose interval ends lowest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vflpriv.common import formatting as f
from vflpriv.core.attack import NO_DEFENCE
from vflpriv.report.attacks import AttackReport, Cell, TrainedRow

__all__ = ["DefenceFrontier", "DefencePoint", "defence_capabilities", "defence_frontiers"]

_EVERYTHING = 0.9999
"""An ε that allows attacks this gain, and those above about 10 do, promises nothing."""


@dataclass(frozen=True, kw_only=True)
class DefencePoint:
    """One defence at one strength: test accuracy, and the attack on labels that gains most, with their intervals.

    `epsilon` is the accounted ε of one label, the largest over the views; None where it allows attacks everything.
    """

    defence: str
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    leakage: float
    low: float
    high: float
    attack: str
    adversary: str
    epsilon: float | None
    dominated: bool = False

    def beaten_by(self, other: DefencePoint) -> bool:
        """Whether the other is at least as accurate and leaks at most as much, and is better in one."""
        mine, others = (self.accuracy, -max(0.0, self.leakage)), (other.accuracy, -max(0.0, other.leakage))
        return mine != others and all(theirs >= own for theirs, own in zip(others, mine, strict=True))


@dataclass(frozen=True, kw_only=True)
class DefenceFrontier:
    """All defences of one system, from the most accurate to the least, and the one to take, if there is one."""

    system: str
    title: str
    points: tuple[DefencePoint, ...]
    undefended: DefencePoint
    affordable_loss: float

    @property
    def advised(self) -> DefencePoint | None:
        """The defence to take; None where none is sure to help at an affordable loss, or none is needed."""
        least = self.undefended.accuracy - self.affordable_loss
        affordable = [p for p in self._helping if p.accuracy >= least]
        return min(affordable, key=lambda p: (p.high, -p.accuracy), default=None)

    @property
    def named(self) -> tuple[DefencePoint, ...]:
        """The points that are shown with a name: those that none dominates, the undefended one, and the advised."""
        return tuple(p for p in self.points if not p.dominated or p in (self.undefended, self.advised))

    @property
    def _helping(self) -> list[DefencePoint]:
        """The defences whose interval of the leakage lies below that without a defence."""
        return [p for p in self.points if p.high < self.undefended.low] if self.undefended.low > 0 else []

    @property
    def advice(self) -> str:
        """Which defence to take and what it costs, in one sentence."""
        plain, chosen = self.undefended, self.advised
        if plain.low <= 0:
            return (
                f"No defence is needed against the attacks tried: none is sure to gain without one; the best, "
                f"{plain.attack}, has {_leak(plain)}, at a test accuracy of {f.percent(plain.accuracy)}."
            )
        loss = f"at most {100 * self.affordable_loss:g} points of test accuracy"
        if chosen is not None:
            accuracies = f"{f.percent(plain.accuracy)} to {f.percent(chosen.accuracy)}"
            leaks = f"{_points(plain.leakage)} to {_leak(chosen)}"
            interval = f.interval(chosen.accuracy_low, chosen.accuracy_high)
            though = ", though most of the leak is left" if 2 * chosen.leakage > plain.leakage else ""
            return (
                f"Take {_name(chosen)}{though}: the best attack’s leakage goes from {leaks}, test accuracy from "
                f"{accuracies} ({interval})."
            )
        unsure = f"No defence tried is sure to lower the leakage of {_leak(plain)} for {loss}"
        best = min(self._helping, key=lambda p: (p.high, -p.accuracy), default=None)
        if best is None:
            return f"{unsure}, or at any cost."
        accuracies = f"{f.percent(best.accuracy)} instead of {f.percent(plain.accuracy)}"
        return f"{unsure}; {_name(best)} lowers it to {_leak(best)}, at an accuracy of {accuracies}."


def defence_capabilities(report: AttackReport) -> dict[tuple[str, str], float]:
    """VFLAIR's Defence Capability Score of each system and defence against attacks on labels (T-DCS).

    "VFLAIR: A Research Library and Benchmark for Vertical Federated Learning" (Zou et al., ICLR 2024), equation 1: of
    each attack 1/(1 + √((1 - β) max(0, AP - AP*)² + β max(0, MP* - MP)²)), where AP is the attack's success and MP the
    test accuracy; by the authors' code β = 1/2, AP* = 0, and MP* is the accuracy without a defence. The score of a type
    of attacks is the mean over them. It counts what an attack reaches without the protocol, too; leakage does not.
    """
    plain = {row.system: row.accuracy for row in report.trained if row.defence == NO_DEFENCE}
    scores = {}
    for row in report.trained:
        best = plain.get(row.system)
        cells = [report.worst(row.system, row.defence, attack) for attack in report.attacks]
        reached = [cell.success for cell in cells if cell is not None and cell.success is not None]
        if best is not None and row.accuracy is not None and reached:
            lost = max(0.0, best - row.accuracy)
            own = [1 / (1 + math.sqrt((max(0.0, success) ** 2 + lost**2) / 2)) for success in reached]
            scores[row.system, row.defence] = sum(own) / len(own)
    return scores


def defence_frontiers(report: AttackReport) -> tuple[DefenceFrontier, ...]:
    """The frontier of each system that was trained without a defence and under one or more."""
    frontiers = []
    for system in dict.fromkeys(row.system for row in report.trained):
        rows = [row for row in report.trained if row.system == system]
        points = _points_of(rows, report.by_variant)
        undefended = next((p for p in points if p.defence == NO_DEFENCE), None)
        if undefended is None or len(points) == 1:
            continue
        frontiers.append(
            DefenceFrontier(
                system=system,
                title=rows[0].title,
                points=points,
                undefended=undefended,
                affordable_loss=report.affordable_loss,
            )
        )
    return tuple(frontiers)


def _points_of(rows: Sequence[TrainedRow], cells: Mapping[tuple[str, str], Sequence[Cell]]) -> tuple[DefencePoint, ...]:
    """The points of one system, the most accurate first; defences that do not apply have none."""
    points = [_point(row, cells.get((row.system, row.defence), ())) for row in rows if row.accuracy is not None]
    tried = [point for point in points if point is not None]
    judged = [replace(p, dominated=any(p.beaten_by(other) for other in tried)) for p in tried]
    return tuple(sorted(judged, key=lambda p: (-p.accuracy, p.leakage, p.defence)))


def _point(row: TrainedRow, cells: Sequence[Cell]) -> DefencePoint | None:
    """One trained system; None where no attack applies."""
    best = max((c for c in cells if c.leakage is not None), key=lambda c: c.leakage or 0.0, default=None)
    if best is None or best.leakage is None or best.low is None or best.high is None or row.accuracy is None:
        return None
    epsilon = max((math.inf if c.epsilon is None else c.epsilon for c in cells), default=math.inf)
    allowed = max((1.0 if c.allowed is None else c.allowed for c in cells), default=1.0)
    return DefencePoint(
        defence=row.defence,
        accuracy=row.accuracy,
        accuracy_low=row.accuracy if row.accuracy_low is None else row.accuracy_low,
        accuracy_high=row.accuracy if row.accuracy_high is None else row.accuracy_high,
        leakage=best.leakage,
        low=best.low,
        high=best.high,
        attack=best.attack,
        adversary=best.adversary,
        epsilon=epsilon if allowed < _EVERYTHING else None,
    )


def _name(point: DefencePoint) -> str:
    return point.defence if point.epsilon is None else f"{point.defence}, label ε ≤ {f.epsilon(point.epsilon)}"


def _points(rate: float) -> str:
    return f"{100 * rate:+.1f}"


def _leak(point: DefencePoint) -> str:
    return f"{_points(point.leakage)} points ({_points(point.low)} to {_points(point.high)})"
