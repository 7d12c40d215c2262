"""Limits on what attacks may reach, as `--fail-on` gives them: which cells lie above one, for the number of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from vflpriv import formatting as f
from vflpriv.errors import InputError
from vflpriv.report_tests import Row

__all__ = ["CORRECTIONS", "Breach", "Correction", "Limit", "breach_lines", "check_correction", "judged", "limit_note"]

Correction = Literal["holm", "none"]
CORRECTIONS: tuple[Correction, ...] = ("holm", "none")
_RULE = re.compile(r"^\s*(leakage|success)\s*>\s*(\d*\.?\d+)\s*$")


class Measured(Protocol):
    """A cell of the matrix: means over seeds, their intervals and standard errors."""

    @property
    def system(self) -> str: ...
    @property
    def defence(self) -> str: ...
    @property
    def attack(self) -> str: ...
    @property
    def adversary(self) -> str: ...
    @property
    def success(self) -> float | None: ...
    @property
    def success_low(self) -> float | None: ...
    @property
    def success_error(self) -> float | None: ...
    @property
    def leakage(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def leakage_error(self) -> float | None: ...


class Breach(Row):
    """One attack through one view of one system whose mean over seeds lies above a limit."""

    limit: str
    system: str
    defence: str
    attack: str
    adversary: str
    measure: str = "share"
    """Of what the limit speaks: the share of right guesses, or R², or the AUC."""
    low: float
    """The low end of the cell's own interval."""
    p_adjusted: float
    """Of the hypothesis that the mean is at the limit or below: two-sided, as the interval; adjusted if asked for."""

    @property
    def sentence(self) -> str:
        where = f"{self.attack} on {self.system}, defence {self.defence}, seen by {self.adversary}"
        return f"{self.limit}: {where}: {self.least} or more (p = {f.p_value(self.p_adjusted)})"

    @property
    def least(self) -> str:
        """The low end with its unit."""
        return f"{100 * self.low:.1f} %" if self.measure == "share" else f"{self.low:.3f} of {self.measure}"


@dataclass(frozen=True)
class Limit:
    """A rule such as `leakage>0.05`, broken by a mean over seeds that is sure to lie above it, not by a lucky one.

    >>> str(Limit.parse("leakage > 0.05"))
    'leakage>0.05'
    """

    what: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        match = _RULE.match(text)
        if match is None:
            raise InputError("--fail-on", text, "leakage>NUMBER or success>NUMBER")
        return cls(match[1], float(match[2]))

    def __str__(self) -> str:
        return f"{self.what}>{self.bound:g}"

    def numbers(self, cell: Measured) -> tuple[float | None, float | None, float | None]:
        """The mean that this limit is on, the low end of its interval, and its standard error."""
        if self.what == "leakage":
            return cell.leakage, cell.low, cell.leakage_error
        return cell.success, cell.success_low, cell.success_error


def check_correction(name: str) -> Correction:
    """A correction by its name."""
    for known in CORRECTIONS:
        if name == known:
            return known
    raise InputError("--correction", name, f"one of {', '.join(CORRECTIONS)}")


def judged(
    limits: Sequence[Limit], cells: Sequence[Measured], *, seeds: int, confidence: float, correction: Correction
) -> tuple[tuple[Breach, ...], int, int]:
    """The breaches; how many tests there were; and how many more break a limit by their own interval alone.

    A test for every limit and every cell that applies. With Holm's correction the chance that any limit is called
    broken that is not is at most one minus the confidence, however the cells depend on each other; without, each
    test has that chance for itself.
    """
    from vflpriv.audits._holm import holm_adjusted
    from vflpriv.audits.attack_success import p_above

    found: list[tuple[Limit, Measured, float, float]] = []
    for limit in limits:
        for cell in cells:
            mean, low, error = limit.numbers(cell)
            if mean is not None and low is not None:
                found.append((limit, cell, low, p_above(mean, error, limit.bound, seeds)))
    raw = [p for *_, p in found]
    adjusted = holm_adjusted(raw) if correction == "holm" else raw
    alpha = 1 - confidence
    broken = [(*one, p) for one, p in zip(found, adjusted, strict=True) if p <= alpha]
    rows = tuple(
        Breach(
            limit=str(limit),
            **{name: getattr(cell, name) for name in ("system", "defence", "attack", "adversary")},
            measure=getattr(cell, "measure", "share"),
            low=low,
            p_adjusted=p,
        )
        for limit, cell, low, _, p in broken
    )
    return rows, len(found), sum(p <= alpha for p in raw) - len(rows)


def breach_lines(breaches: Sequence[Breach]) -> tuple[str, ...]:
    """One line for each limit, attack, system and defence."""
    groups: dict[tuple[str, str, str, str], list[Breach]] = {}
    for b in breaches:
        groups.setdefault((b.limit, b.attack, b.system, b.defence), []).append(b)
    return tuple(
        f"{limit}: {attack} on {system}, defence {defence}: {max(views, key=lambda b: b.low).least} or more, seen by "
        + ", ".join(b.adversary for b in views)
        for (limit, attack, system, defence), views in groups.items()
    )


def limit_note(tests: int, more: int, correction: Correction, confidence: float) -> str:
    """How many tests the limits were held to, and what was done about their number."""
    level = f.percent(1 - confidence)
    if correction == "none":
        return f"limits: {tests} tests, each for itself: any one is wrong with a chance of at most {level}"
    note = f"limits: {tests} tests, Holm's correction: one or more is wrong with a chance of at most {level}"
    others = "1 more lies" if more == 1 else f"{more} more lie"
    return note if not more else f"{note}; {others} above a limit by its own interval, not after the correction"
