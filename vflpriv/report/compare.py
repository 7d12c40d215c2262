"""Comparison of two reports of the same kind: which budgets, attack successes, accuracies and verdicts are better now,
and which are worse."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from vflpriv.errors import InputError
from vflpriv.report.attacks import AttackReport, FeatureCell
from vflpriv.report.audit import Report, SystemRow
from vflpriv.report.changes import Change, Figures, Tolerance, numbers
from vflpriv.report.claim_changes import epsilon_changes, verdict_changes
from vflpriv.report.rows import Row

__all__ = ["AnyReport", "Change", "Comparison", "Tolerance", "compare", "compare_any", "compare_attacks"]

AnyReport = Report | AttackReport
_SEEN = " seen by "


class Comparison(Row):
    """All differences between two reports, and the systems that could not be compared."""

    schema_version: str = "vflpriv-comparison/1"
    compared: int
    """How many numbers and verdicts were compared."""
    changes: tuple[Change, ...]
    only_old: tuple[str, ...]
    """Systems that only the old report has."""
    only_new: tuple[str, ...]
    """Systems that only the new report has."""

    @property
    def regressions(self) -> list[Change]:
        """The changes for the worse beyond the tolerance."""
        return [c for c in self.changes if c.regression]

    @property
    def improvements(self) -> list[Change]:
        """The changes for the better beyond the tolerance."""
        return [c for c in self.changes if c.improvement]

    @property
    def joined(self) -> list[Change]:
        """All changes, what is worse before what is better, verdicts first; those with the same numbers joined."""
        groups: dict[tuple[str, ...], list[Change]] = {}
        for c in sorted(self.changes, key=lambda c: (("worse", "better", "").index(c.direction), c.what != "verdict")):
            groups.setdefault((c.direction, c.system, c.what, *c.values), []).append(c)
        return [group[0].model_copy(update={"where": _places([c.where for c in group])}) for group in groups.values()]

    @property
    def lines(self) -> list[Change]:
        """The regressions, those with the same numbers joined: one wrong noise shows in every view at once."""
        return [change for change in self.joined if change.regression]

    @property
    def exit_code(self) -> int:
        return 1 if self.regressions else 0

    @property
    def headline(self) -> str:
        """The outcome in one line."""
        worse, better = len(self.regressions), len(self.improvements)
        outcome = f"{worse} regression{'s' if worse != 1 else ''} beyond the tolerance" if worse else "no regression"
        mended = f", {better} improvement{'s' if better != 1 else ''}" if better else ""
        return f"{outcome}{mended}; {len(self.changes)} of {self.compared} numbers and verdicts differ"


def _places(places: Sequence[str]) -> str:
    """Places of a report in a row, those of one view together.

    >>> _places(["label seen by device", "record seen by device", "label seen by model"])
    'label + record seen by device, label seen by model'
    """
    views: dict[str, list[str]] = {}
    for place in places:
        what, _, view = place.partition(_SEEN)
        views.setdefault(view, []).append(what)
    return ", ".join(" + ".join(what) + (_SEEN + view if view else "") for view, what in views.items())


def compare_any(old: AnyReport, new: AnyReport, tolerance: Tolerance) -> Comparison:
    """Compare two reports of the same kind."""
    if isinstance(old, Report) and isinstance(new, Report):
        return compare(old, new, tolerance)
    if isinstance(old, AttackReport) and isinstance(new, AttackReport):
        return compare_attacks(old, new, tolerance)
    raise InputError("baseline", old.schema_version, f"a report of the same kind, {new.schema_version}")


def compare(old: Report, new: Report, tolerance: Tolerance) -> Comparison:
    """Compare two audits; systems are matched by key, claims by unit and view, attacks by name and view."""
    before, after = ({s.key: s for s in report.systems} for report in (old, new))
    shared = [key for key in before if key in after]
    return _comparison(
        before, after, [c for key in shared for c in _system_changes(before[key], after[key], tolerance)]
    )


def compare_attacks(old: AttackReport, new: AttackReport, tolerance: Tolerance) -> Comparison:
    """Compare two attack reports; systems and defences are matched by name, attacks by name and view."""
    before, after = (list(dict.fromkeys(row.system for row in report.trained)) for report in (old, new))
    shared = [key for key in before if key in after]
    return _comparison(before, after, [c for key in shared for c in _attack_changes(key, old, new, tolerance)])


def _comparison(before: Collection[str], after: Collection[str], changes: Sequence[Change]) -> Comparison:
    return Comparison(
        compared=len(changes),
        changes=tuple(c for c in changes if c.old != c.new),
        only_old=tuple(key for key in before if key not in after),
        only_new=tuple(key for key in after if key not in before),
    )


# Audits


def _system_changes(old: SystemRow, new: SystemRow, tolerance: Tolerance) -> Iterator[Change]:
    yield from epsilon_changes(old, new, tolerance)
    yield from numbers("success", new.key, _successes(old), _successes(new), tolerance)
    yield from numbers("accuracy", new.key, _accuracy(old), _accuracy(new), tolerance)
    yield from verdict_changes(old, new, tolerance)


def _successes(system: SystemRow) -> Figures:
    labels: Figures = {f"{a.attack} seen by {a.adversary}": a.success for a in system.attacks}
    return labels | {f"{c.attack}{_victim(c)} seen by {c.adversary}": c.success for c in system.features}


def _victim(cell: FeatureCell) -> str:
    return "" if cell.victim is None else f" of device {cell.victim}"


def _accuracy(system: SystemRow) -> Figures:
    return {"": system.utility.accuracy if system.utility else None}


# Attack reports


def _attack_changes(system: str, old: AttackReport, new: AttackReport, tolerance: Tolerance) -> Iterator[Change]:
    yield from numbers("epsilon", system, _feature_epsilons(system, old), _feature_epsilons(system, new), tolerance)
    yield from numbers("success", system, _attack_successes(system, old), _attack_successes(system, new), tolerance)
    accuracies = _defence_accuracies(system, old), _defence_accuracies(system, new)
    yield from numbers("accuracy", system, *accuracies, tolerance)


def _feature_epsilons(system: str, report: AttackReport) -> Figures:
    """The budgets of features and membership, where these were attacked."""
    cells = [c for c in report.features if c.system == system]
    return {f"{c.unit} seen by {c.adversary}, defence {c.defence}": c.epsilon for c in cells}


def _attack_successes(system: str, report: AttackReport) -> Figures:
    cells = [c for c in report.every_cell if c.system == system]
    return {f"{c.attack} seen by {c.adversary}, defence {c.defence}": c.success for c in cells}


def _defence_accuracies(system: str, report: AttackReport) -> Figures:
    return {f"defence {row.defence}": row.accuracy for row in report.trained if row.system == system}
