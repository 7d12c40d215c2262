"""The attack matrix of an audit: one row per system, one column per attack, and why some attacks do not apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vflpriv.render.shared import leak_level
from vflpriv.report.audit import AttackRow, Report, SystemRow

__all__ = ["Matrix", "MatrixCell", "MatrixRow", "attack_matrix", "refused"]


class MatrixCell(NamedTuple):
    """One attack on one system, through the view that gains most; `why` numbers the reason if it does not apply."""

    attack: AttackRow | None
    level: int
    why: int


class MatrixRow(NamedTuple):
    """One system, with its number in the report."""

    place: int
    system: SystemRow
    cells: tuple[MatrixCell, ...]


class Matrix(NamedTuple):
    """The attacks are the columns; cells refer to reasons by their number, from 1."""

    attacks: tuple[str, ...]
    rows: tuple[MatrixRow, ...]
    reasons: tuple[str, ...]


def attack_matrix(report: Report) -> Matrix | None:
    """The matrix of the attacks that apply to some system; None if no attack was tried."""
    tried = [a for s in report.systems for a in s.attacks]
    names = tuple(dict.fromkeys(a.attack for a in tried if a.success is not None))
    if not tried:
        return None
    reasons: dict[str, int] = {}
    rows = tuple(
        MatrixRow(place, system, tuple(_cell(system.attacks, name, reasons) for name in names))
        for place, system in enumerate(report.systems, start=1)
        if system.attacks
    )
    return Matrix(names, rows, tuple(reasons))


def refused(system: SystemRow) -> dict[tuple[str, str, str], list[str]]:
    """The views by attack, target and the reason why the attack does not apply."""
    views: dict[tuple[str, str, str], list[str]] = {}
    for a in system.attacks:
        if a.not_applicable is not None:
            views.setdefault((a.attack, a.target, a.not_applicable), []).append(a.adversary)
    return views


def _cell(attacks: Sequence[AttackRow], name: str, reasons: dict[str, int]) -> MatrixCell:
    by_view = [a for a in attacks if a.attack == name]
    best = max((a for a in by_view if a.success is not None), key=lambda a: a.leakage, default=None)
    if best is not None:
        low = best.leakage - ((best.success or 0.0) - (best.low or 0.0))
        return MatrixCell(best, leak_level(best.leakage, low), 0)
    why = next((a.not_applicable for a in by_view if a.not_applicable), None) or "not tried on this system"
    return MatrixCell(None, 0, reasons.setdefault(why, len(reasons) + 1))
