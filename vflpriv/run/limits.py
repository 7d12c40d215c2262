"""Limits on attack results (`--fail-on`): which cells of an attack report exceed them, corrected for many tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vflpriv.audits.statistics.significance import holm_adjusted, p_value_above
from vflpriv.errors import InputError
from vflpriv.report.attacks import CORRECTIONS, AttackReport, Breach, Cell, Correction, FeatureCell

__all__ = ["Limit", "check_correction", "held_to", "judge_limits"]

_RULE = re.compile(r"^\s*(leakage|success)\s*>\s*(\d*\.?\d+)\s*$")


@dataclass(frozen=True)
class Limit:
    """A rule such as `leakage>0.05`. It is broken by a mean over seeds that lies significantly above the number.

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

    def numbers(self, cell: Cell) -> tuple[float | None, float | None, float | None]:
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


def held_to(report: AttackReport, limits: Sequence[Limit], correction: Correction) -> AttackReport:
    """The same report with these limits and their breaches."""
    cells = report.every_cell
    breaches, tests, nearly = judge_limits(
        limits, cells, seeds=report.seeds, confidence=report.confidence, correction=correction
    )
    return report.model_copy(
        update={
            "limits": tuple(map(str, limits)),
            "correction": correction,
            "tests": tests,
            "breaches": breaches,
            "nearly": nearly,
        }
    )


def judge_limits(
    limits: Sequence[Limit], cells: Sequence[Cell], *, seeds: int, confidence: float, correction: Correction
) -> tuple[tuple[Breach, ...], int, int]:
    """The breaches; how many tests there were; and how many more break a limit without the correction.

    There is one test for every limit and every cell in which the attack applies. With Holm's correction the chance that
    any limit is wrongly called broken is at most one minus the confidence, however the cells depend on each other;
    without it, each test by itself has that chance.
    """
    tests: list[tuple[Limit, Cell, float, float]] = []
    for limit in limits:
        for cell in cells:
            mean, low, error = limit.numbers(cell)
            if mean is not None and low is not None:
                tests.append((limit, cell, low, p_value_above(mean, error, limit.bound, seeds)))
    p_values = [p for *_, p in tests]
    adjusted = holm_adjusted(p_values) if correction == "holm" else p_values
    alpha = 1 - confidence
    breaches = tuple(
        _breach(limit, cell, low, p) for (limit, cell, low, _), p in zip(tests, adjusted, strict=True) if p <= alpha
    )
    return breaches, len(tests), sum(p <= alpha for p in p_values) - len(breaches)


def _breach(limit: Limit, cell: Cell, low: float, p_adjusted: float) -> Breach:
    return Breach(
        limit=str(limit),
        system=cell.system,
        defence=cell.defence,
        attack=cell.attack,
        adversary=cell.adversary,
        measure=cell.measure if isinstance(cell, FeatureCell) else "share",
        low=low,
        p_adjusted=p_adjusted,
    )
