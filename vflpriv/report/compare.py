"""Comparison of two reports of the same kind: which budgets, attack successes, accuracies and verdicts got worse."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from vflpriv.common import formatting as f
from vflpriv.core.claims import SEVERITY
from vflpriv.errors import InputError
from vflpriv.report.attacks import AttackReport, FeatureCell
from vflpriv.report.audit import Report, SystemRow
from vflpriv.report.rows import Row

__all__ = ["AnyReport", "Change", "Comparison", "Tolerance", "compare", "compare_any", "compare_attacks", "numbers"]

AnyReport = Report | AttackReport
_ASSIGNMENT = re.compile(r"^\s*(?:(epsilon|success|accuracy)\s*=)?\s*(\d*\.?\d+(?:[eE][-+]?\d+)?)\s*$")
_SEVERITY = tuple(reversed(SEVERITY))
_Figures = dict[str, float | None]
"""Numbers by the place in the report; None where nothing applies."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """By how much a number may get worse: ε relative to the old one, success and accuracy in absolute terms.

    >>> Tolerance.parse(["0.1", "accuracy=0.03"])
    Tolerance(epsilon=0.1, success=0.1, accuracy=0.03)
    """

    epsilon: float = 0.01
    success: float = 0.02
    accuracy: float = 0.02

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Tolerance:
        """Each text is NUMBER for all three, or NAME=NUMBER for one of them; later texts override earlier ones."""
        tolerances: dict[str, float] = {}
        for text in texts:
            match = _ASSIGNMENT.match(text)
            if match is None or not math.isfinite(float(match[2])):
                raise InputError("--tolerance", text, "NUMBER, or NAME=NUMBER with epsilon, success or accuracy")
            names = [match[1]] if match[1] else [field.name for field in fields(cls)]
            tolerances |= dict.fromkeys(names, float(match[2]))
        return cls(**tolerances)

    def exceeded(self, what: str, old: float, new: float) -> bool:
        """Whether `new` is worse than `old` by more than the tolerance; rounding errors do not count."""
        if old == new:
            return False
        if what == "epsilon":
            return new > old * (1 + self.epsilon) + 1e-12
        if what == "success":
            return new > old + self.success + 1e-12
        return new < old - self.accuracy - 1e-12


class Change(Row):
    """One number or verdict of a system that is in both reports; None where one of them lacks it."""

    system: str
    what: Literal["epsilon", "success", "accuracy", "verdict"]
    where: str
    old: float | str | None
    new: float | str | None
    regression: bool

    @property
    def name(self) -> str:
        """The name of what changed, for sentences and tables."""
        names = {"epsilon": "accounted ε", "success": "attack success", "accuracy": "test accuracy"}
        return names.get(self.what, self.what)

    @property
    def values(self) -> tuple[str, str]:
        """The old and the new value, formatted."""
        return self._shown(self.old), self._shown(self.new)

    @property
    def sentence(self) -> str:
        """The change in one line.

        >>> Change(system="s", what="success", where="a", old=0.1, new=0.25, regression=True).sentence
        's: attack success of a: 10.0 % before, 25.0 % now'
        """
        old, new = self.values
        of = f" of {self.where}" if self.where else ""
        return f.clean(f"{self.system}: {self.name}{of}: {old} before, {new} now")

    def _shown(self, value: float | str | None) -> str:
        if value is None or isinstance(value, str):
            return f.NOTHING if value is None else f.clean(value)
        return f.epsilon(value) if self.what == "epsilon" else f.percent(value)


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
    def lines(self) -> list[Change]:
        """The regressions, those with the same numbers joined: one wrong noise shows in every view at once."""
        groups: dict[tuple[str, ...], list[Change]] = {}
        for c in self.regressions:
            groups.setdefault((c.system, c.what, *c.values), []).append(c)
        return [group[0].model_copy(update={"where": ", ".join(c.where for c in group)}) for group in groups.values()]

    @property
    def exit_code(self) -> int:
        return 1 if self.regressions else 0

    @property
    def headline(self) -> str:
        """The outcome in one line."""
        count = len(self.regressions)
        outcome = f"{count} regression{'s' if count != 1 else ''} beyond the tolerance" if count else "no regression"
        return f"{outcome}; {len(self.changes)} of {self.compared} numbers and verdicts differ"


def compare_any(old: AnyReport, new: AnyReport, tolerance: Tolerance) -> Comparison:
    """Compare two reports of the same kind."""
    if isinstance(old, Report) and isinstance(new, Report):
        return compare(old, new, tolerance)
    if isinstance(old, AttackReport) and isinstance(new, AttackReport):
        return compare_attacks(old, new, tolerance)
    raise InputError("baseline", old.schema_version, f"a report of the same kind, {new.schema_version}")


def compare(old: Report, new: Report, tolerance: Tolerance) -> Comparison:
    """Compare two audits; systems are matched by key, claims by key, attacks by name and view."""
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


def numbers(
    what: Literal["epsilon", "success", "accuracy"], system: str, old: _Figures, new: _Figures, tolerance: Tolerance
) -> Iterator[Change]:
    """A change for each place that has a number in either report."""
    for where in dict.fromkeys([*old, *new]):
        a, b = old.get(where), new.get(where)
        if a is None and b is None:
            continue
        # An attack that no longer applies learns nothing; a claim's ε or an accuracy that is missing cannot be trusted.
        lost = b is None and what != "success" and (what == "accuracy" or where.startswith("claim "))
        worse = lost if b is None else a is not None and tolerance.exceeded(what, a, b)
        yield Change(system=system, what=what, where=where, old=a, new=b, regression=worse)


# Audits


def _system_changes(old: SystemRow, new: SystemRow, tolerance: Tolerance) -> Iterator[Change]:
    yield from numbers("epsilon", new.key, _epsilons(old), _epsilons(new), tolerance)
    yield from numbers("success", new.key, _successes(old), _successes(new), tolerance)
    yield from numbers("accuracy", new.key, _accuracy(old), _accuracy(new), tolerance)
    before, after = ({c.key: c.verdict for c in s.all_claims} for s in (old, new))
    for key in dict.fromkeys([*before, *after]):
        a, b = before.get(key), after.get(key)
        # A claim that is no longer checked may hide a violation.
        worse = a is not None and (b is None or _SEVERITY.index(b) > max(1, _SEVERITY.index(a)))
        yield Change(system=new.key, what="verdict", where=key, old=a, new=b, regression=worse)


def _epsilons(system: SystemRow) -> _Figures:
    """The budgets of every claim, then of every view and unit."""
    rows = [(f"claim {c.key}", c.accounted) for c in system.claims]
    rows += [(f"{b.unit} seen by {b.adversary} ({b.reading})", b) for b in system.budgets]
    return {where: None if row.not_applicable is not None else row.epsilon_upper for where, row in rows}


def _successes(system: SystemRow) -> _Figures:
    labels: _Figures = {f"{a.attack} seen by {a.adversary}": a.success for a in system.attacks}
    return labels | {f"{c.attack}{_victim(c)} seen by {c.adversary}": c.success for c in system.features}


def _victim(cell: FeatureCell) -> str:
    return "" if cell.victim is None else f" of device {cell.victim}"


def _accuracy(system: SystemRow) -> _Figures:
    return {"": system.utility.accuracy if system.utility else None}


# Attack reports


def _attack_changes(system: str, old: AttackReport, new: AttackReport, tolerance: Tolerance) -> Iterator[Change]:
    yield from numbers("epsilon", system, _feature_epsilons(system, old), _feature_epsilons(system, new), tolerance)
    yield from numbers("success", system, _attack_successes(system, old), _attack_successes(system, new), tolerance)
    accuracies = _defence_accuracies(system, old), _defence_accuracies(system, new)
    yield from numbers("accuracy", system, *accuracies, tolerance)


def _feature_epsilons(system: str, report: AttackReport) -> _Figures:
    """The budgets of features and membership, where these were attacked."""
    cells = [c for c in report.features if c.system == system]
    return {f"{c.unit} seen by {c.adversary}, defence {c.defence}": c.epsilon for c in cells}


def _attack_successes(system: str, report: AttackReport) -> _Figures:
    cells = [c for c in (*report.cells, *report.features) if c.system == system]
    return {f"{c.attack} seen by {c.adversary}, defence {c.defence}": c.success for c in cells}


def _defence_accuracies(system: str, report: AttackReport) -> _Figures:
    return {f"defence {row.defence}": row.accuracy for row in report.trained if row.system == system}
