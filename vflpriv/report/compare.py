"""Two reports side by side: what changed of ε, attack success, accuracy and verdicts, and what of it is worse."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from vflpriv.common import formatting as f
from vflpriv.core.claims import Verdict
from vflpriv.errors import InputError
from vflpriv.report.attacks import AttackReport, Cell
from vflpriv.report.audit import Report, SystemRow
from vflpriv.report.rows import Row

__all__ = ["AnyReport", "Change", "Comparison", "Tolerance", "compare", "compare_any", "compare_attacks", "numbers"]

_ASSIGNMENT = re.compile(r"^\s*(?:(epsilon|success|accuracy)\s*=)?\s*(\d*\.?\d+(?:[eE][-+]?\d+)?)\s*$")
_SEVERITY = (Verdict.NOT_APPLICABLE, Verdict.CONSISTENT, Verdict.UNSUPPORTED, Verdict.VIOLATED)


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """By how much a number may be worse: ε as a share of the old one, success and accuracy in absolute terms.

    >>> Tolerance.parse(["0.1", "accuracy=0.03"])
    Tolerance(epsilon=0.1, success=0.1, accuracy=0.03)
    """

    epsilon: float = 0.01
    success: float = 0.02
    accuracy: float = 0.02

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Tolerance:
        """NUMBER for all three, or NAME=NUMBER for one of them; later ones win."""
        found: dict[str, float] = {}
        for text in texts:
            match = _ASSIGNMENT.match(text)
            if match is None or not math.isfinite(float(match[2])):
                raise InputError("--tolerance", text, "NUMBER, or NAME=NUMBER with epsilon, success or accuracy")
            names = [match[1]] if match[1] else [field.name for field in fields(cls)]
            found |= dict.fromkeys(names, float(match[2]))
        return cls(**found)

    def exceeded(self, what: str, old: float, new: float) -> bool:
        """Whether `new` is worse than `old` by more than this; rounding of the numbers themselves is not."""
        if old == new:
            return False
        if what == "epsilon":
            return new > old * (1 + self.epsilon) + 1e-12
        if what == "success":
            return new > old + self.success + 1e-12
        return new < old - self.accuracy - 1e-12


class Change(Row):
    """One number or verdict of a system that both reports have, or that one of them lacks."""

    system: str
    what: Literal["epsilon", "success", "accuracy", "verdict"]
    where: str
    old: float | str | None
    new: float | str | None
    regression: bool

    @property
    def name(self) -> str:
        """What changed, in words."""
        words = {"epsilon": "accounted ε", "success": "attack success", "accuracy": "test accuracy"}
        return words.get(self.what, self.what)

    @property
    def values(self) -> tuple[str, str]:
        """Old and new, as a person would write them."""
        return self._shown(self.old), self._shown(self.new)

    @property
    def sentence(self) -> str:
        """One line.

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
    """All that differs between two reports, regressions first marked, and what could not be compared."""

    schema_version: str = "vflpriv-comparison/1"
    compared: int
    """Numbers and verdicts that both reports have."""
    changes: tuple[Change, ...]
    only_old: tuple[str, ...]
    """Systems that only the first report has."""
    only_new: tuple[str, ...]

    @property
    def regressions(self) -> list[Change]:
        """What is worse beyond the tolerance."""
        return [c for c in self.changes if c.regression]

    @property
    def lines(self) -> list[Change]:
        """The regressions, places with the same numbers in one: a wrong noise shows in every view at once."""
        found: dict[tuple[str, ...], list[Change]] = {}
        for c in self.regressions:
            found.setdefault((c.system, c.what, *c.values), []).append(c)
        return [group[0].model_copy(update={"where": ", ".join(c.where for c in group)}) for group in found.values()]

    @property
    def exit_code(self) -> int:
        return 1 if self.regressions else 0

    @property
    def headline(self) -> str:
        """The outcome in one line."""
        worse = len(self.regressions)
        found = f"{worse} regression{'s' if worse != 1 else ''} beyond the tolerance" if worse else "no regression"
        return f"{found}; {len(self.changes)} of {self.compared} numbers and verdicts differ"

    def to_json(self) -> str:
        """Canonical JSON: stable key order, two spaces, a final newline."""
        return json.dumps(json.loads(self.model_dump_json()), indent=2, ensure_ascii=False) + "\n"


def compare(old: Report, new: Report, tolerance: Tolerance) -> Comparison:
    """Match systems by key, claims by key, attacks by name and view."""
    before, after = ({s.key: s for s in report.systems} for report in (old, new))
    both = [key for key in before if key in after]
    pairs = [change for key in both for change in _changes(before[key], after[key], tolerance)]
    return Comparison(
        compared=len(pairs),
        changes=tuple(c for c in pairs if c.old != c.new),
        only_old=tuple(key for key in before if key not in after),
        only_new=tuple(key for key in after if key not in before),
    )


def _changes(old: SystemRow, new: SystemRow, tolerance: Tolerance) -> Iterator[Change]:
    yield from numbers("epsilon", new.key, _epsilons(old), _epsilons(new), tolerance)
    yield from numbers("success", new.key, _successes(old), _successes(new), tolerance)
    yield from numbers("accuracy", new.key, _accuracy(old), _accuracy(new), tolerance)
    words, now = ({c.key: c.verdict for c in s.all_claims} for s in (old, new))
    for key in _keys(words, now):
        a, b = words.get(key), now.get(key)
        # A claim that is no longer checked may hide what was found of it.
        worse = a is not None and (b is None or _SEVERITY.index(b) > max(1, _SEVERITY.index(a)))
        yield Change(system=new.key, what="verdict", where=key, old=a, new=b, regression=worse)


def _epsilons(system: SystemRow) -> dict[str, float | None]:
    """Of every claim, then of every view and unit; None where nothing applies."""
    rows = [(f"claim {c.key}", c.accounted) for c in system.claims]
    rows += [(f"{b.unit} seen by {b.adversary} ({b.reading})", b) for b in system.budgets]
    return {where: None if row.not_applicable is not None else row.epsilon_upper for where, row in rows}


def _successes(system: SystemRow) -> dict[str, float | None]:
    return {f"{a.attack} seen by {a.adversary}": a.success for a in system.attacks}


def _accuracy(system: SystemRow) -> dict[str, float | None]:
    return {"": system.utility.accuracy if system.utility else None}


def numbers(
    what: Literal["epsilon", "success", "accuracy"],
    system: str,
    old: dict[str, float | None],
    new: dict[str, float | None],
    tolerance: Tolerance,
) -> Iterator[Change]:
    """A change for each place that has a number before or now."""
    for where in _keys(old, new):
        a, b = old.get(where), new.get(where)
        if a is None and b is None:
            continue
        # An attack that no longer applies reaches nothing; a claim's ε or an accuracy that is gone is not seen to hold.
        gone = b is None and what != "success" and (what == "accuracy" or where.startswith("claim "))
        worse = gone if b is None else a is not None and tolerance.exceeded(what, a, b)
        yield Change(system=system, what=what, where=where, old=a, new=b, regression=worse)


def _keys(old: Iterable[str], new: Iterable[str]) -> Sequence[str]:
    return list(dict.fromkeys([*old, *new]))


# Two matrices of attacks side by side, as `report_compare` does it for two audits; and either, whichever they are.

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
    pairs = [change for key in both for change in _changes_report_compare_attacks(key, old, new, tolerance)]
    return Comparison(
        compared=len(pairs),
        changes=tuple(c for c in pairs if c.old != c.new),
        only_old=tuple(key for key in before if key not in after),
        only_new=tuple(key for key in after if key not in before),
    )


def _systems(report: AttackReport) -> Sequence[str]:
    return list(dict.fromkeys(row.system for row in report.trained))


def _changes_report_compare_attacks(
    system: str, old: AttackReport, new: AttackReport, tolerance: Tolerance
) -> Iterator[Change]:
    yield from numbers(
        "epsilon",
        system,
        _epsilons_report_compare_attacks(system, old),
        _epsilons_report_compare_attacks(system, new),
        tolerance,
    )
    yield from numbers(
        "success",
        system,
        _successes_report_compare_attacks(system, old),
        _successes_report_compare_attacks(system, new),
        tolerance,
    )
    yield from numbers("accuracy", system, _accuracies(system, old), _accuracies(system, new), tolerance)


def _place(cell: Cell) -> str:
    return f"{cell.attack} seen by {cell.adversary}, defence {cell.defence}"


def _epsilons_report_compare_attacks(system: str, report: AttackReport) -> dict[str, float | None]:
    """What is accounted for the units of features and membership, where these were attacked."""
    return {f"{c.unit} seen by {c.adversary}, defence {c.defence}": c.epsilon
            for c in report.features if c.system == system}  # fmt: skip


def _successes_report_compare_attacks(system: str, report: AttackReport) -> dict[str, float | None]:
    return {_place(c): c.success for c in (*report.cells, *report.features) if c.system == system}


def _accuracies(system: str, report: AttackReport) -> dict[str, float | None]:
    return {f"defence {row.defence}": row.accuracy for row in report.trained if row.system == system}
