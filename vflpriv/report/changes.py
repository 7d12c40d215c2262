"""One change between two reports: a number or a verdict, before and now, and whether it is better or worse."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Literal

from vflpriv.common import formatting as f
from vflpriv.errors import InputError
from vflpriv.report.rows import Row

__all__ = ["Change", "Figures", "Tolerance", "number", "numbers"]

_ASSIGNMENT = re.compile(r"^\s*(?:(epsilon|success|accuracy)\s*=)?\s*(\d*\.?\d+(?:[eE][-+]?\d+)?)\s*$")
_What = Literal["epsilon", "success", "accuracy"]
Figures = dict[str, float | None]
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
    what: Literal["epsilon", "success", "accuracy", "verdict", "claimed"]
    where: str
    old: float | str | None
    new: float | str | None
    regression: bool
    """Whether it is worse beyond the tolerance."""
    improvement: bool = False
    """Whether it is better beyond the tolerance."""

    @property
    def name(self) -> str:
        """The name of what changed, for sentences and tables."""
        names = {"epsilon": "accounted ε", "claimed": "claimed ε"}
        names |= {"success": "attack success", "accuracy": "test accuracy"}
        return names.get(self.what, self.what)

    @property
    def direction(self) -> Literal["worse", "better", ""]:
        """Where the change leads; empty where it is within the tolerance, or neither."""
        return "worse" if self.regression else "better" if self.improvement else ""

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
        return f.epsilon(value) if self.what in ("epsilon", "claimed") else f.percent(value)


def numbers(what: _What, system: str, old: Figures, new: Figures, tolerance: Tolerance) -> Iterator[Change]:
    """A change for each place that has a number in either report."""
    for where in dict.fromkeys([*old, *new]):
        a, b = old.get(where), new.get(where)
        if a is not None or b is not None:
            # An attack that no longer applies learns nothing; an accuracy that is missing cannot be trusted.
            yield number(what, system, where, (a, b), tolerance, needed=what == "accuracy")


def number(
    what: _What,
    system: str,
    where: str,
    values: tuple[float | None, float | None],
    tolerance: Tolerance,
    *,
    needed: bool,
) -> Change:
    """The change of one number from old to new; one that is `needed` must not go missing."""
    old, new = values
    worse, better = needed and new is None, False
    if old is not None and new is not None:
        worse, better = tolerance.exceeded(what, old, new), tolerance.exceeded(what, new, old)
    return Change(system=system, what=what, where=where, old=old, new=new, regression=worse, improvement=better)
