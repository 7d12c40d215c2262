"""Two matrices of attacks side by side, as `report_compare` does it for two audits; and either, whichever they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vflpriv.errors import InputError
from vflpriv.report import Report
from vflpriv.report_attacks import AttackReport, Cell
from vflpriv.report_compare import Change, Comparison, Tolerance, compare, numbers

__all__ = ["AnyReport", "compare_any", "compare_attacks"]

AnyReport = Report | AttackReport


def compare_any(old: AnyReport, new: AnyReport, tolerance: Tolerance) -> Comparison:
    """Two reports of one kind."""
    if isinstance(old, Report) and isinstance(new, Report):
        return compare(old, new, tolerance)
    if isinstance(old, AttackReport) and isinstance(new, AttackReport):
        return compare_attacks(old, new, tolerance)
    raise InputError("baseline", old.schema_version, f"a report of the same kind, {new.schema_version}")


def compare_attacks(old: AttackReport, new: AttackReport, tolerance: Tolerance) -> Comparison:
    """Match systems and defences by name, attacks by name and view."""
    before, after = _systems(old), _systems(new)
    both = [key for key in before if key in after]
    pairs = [change for key in both for change in _changes(key, old, new, tolerance)]
    return Comparison(
        compared=len(pairs),
        changes=tuple(c for c in pairs if c.old != c.new),
        only_old=tuple(key for key in before if key not in after),
        only_new=tuple(key for key in after if key not in before),
    )


def _systems(report: AttackReport) -> Sequence[str]:
    return list(dict.fromkeys(row.system for row in report.trained))


def _changes(system: str, old: AttackReport, new: AttackReport, tolerance: Tolerance) -> Iterator[Change]:
    yield from numbers("epsilon", system, _epsilons(system, old), _epsilons(system, new), tolerance)
    yield from numbers("success", system, _successes(system, old), _successes(system, new), tolerance)
    yield from numbers("accuracy", system, _accuracies(system, old), _accuracies(system, new), tolerance)


def _place(cell: Cell) -> str:
    return f"{cell.attack} seen by {cell.adversary}, defence {cell.defence}"


def _epsilons(system: str, report: AttackReport) -> dict[str, float | None]:
    """What is accounted for the units of features and membership, where these were attacked."""
    return {f"{c.unit} seen by {c.adversary}, defence {c.defence}": c.epsilon
            for c in report.features if c.system == system}  # fmt: skip


def _successes(system: str, report: AttackReport) -> dict[str, float | None]:
    return {_place(c): c.success for c in (*report.cells, *report.features) if c.system == system}


def _accuracies(system: str, report: AttackReport) -> dict[str, float | None]:
    return {f"defence {row.defence}": row.accuracy for row in report.trained if row.system == system}
