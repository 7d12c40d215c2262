"""Rows of the report that hold a claim: its budgets, what they come from, its tests and its verdict."""

from __future__ import annotations

from vflpriv.report_shown import Shown
from vflpriv.report_tests import MeasurementRow, OneRunRow, Row
from vflpriv.verdicts import Word

__all__ = ["BudgetRow", "ClaimRow", "Spending", "SuccessClaimRow", "ViewBudget"]


class BudgetRow(Row):
    """What an accountant says of one unit under one adversary's eyes."""

    adversary: str
    unit: str
    reading: str
    batches: str
    accountant: str
    method: str
    delta: float
    mu: float | None
    epsilon_lower: float
    epsilon: float
    epsilon_upper: float
    participations: int | None
    """How often the worst record passes before the adversary's eyes."""
    participation_histogram: dict[int, int]
    """How many records take part that often."""
    assumptions: tuple[str, ...]
    approximations: dict[str, float]
    unprotected: tuple[str, ...]
    not_applicable: str | None


class ViewBudget(Row):
    """What is accounted for a claim's unit under one more adversary's eyes, at the claim's delta."""

    adversary: str
    batches: str
    epsilon_upper: float
    """Rigorous."""
    paper_reading: float | None
    """None where it is the same."""
    unprotected: tuple[str, ...] = ()
    not_applicable: str | None = None


class Spending(Row):
    """Where one budget of a claim goes: epsilon of the run stopped early, and of each record by itself."""

    reading: str
    delta: float
    rounds: tuple[int, ...]
    epsilon_lower: tuple[float, ...]
    epsilon_upper: tuple[float, ...]
    records: tuple[tuple[float, float, int], ...]
    """(lowest, highest, how many records) of bins of records' own epsilons; empty where they have none."""


class ClaimRow(Shown, Row):
    """A published guarantee with its three numbers and the verdict."""

    key: str
    source: str
    where: str
    statement: str
    unit: str
    unit_description: str
    adversary: str
    delta: float
    epsilon: float
    mu: float
    accounted: BudgetRow
    """Rigorous."""
    paper_reading: BudgetRow | None
    """With state that moves without noise taken as if it did not depend on the data; None where nothing does."""
    measurements: tuple[MeasurementRow, ...]
    one_run: OneRunRow | None = None
    verdict: Word
    reason: str
    reproduce: str
    views: tuple[ViewBudget, ...] = ()
    """The same unit and delta, under the eyes of everyone."""
    spending: tuple[Spending, ...] = ()
    """Of each reading that has a finite budget."""


class SuccessClaimRow(Shown, Row):
    """A published guarantee about an attack's success, what was measured of it, and the verdict."""

    key: str
    source: str
    where: str
    statement: str
    unit: str
    adversary: str
    attack: str
    rate: float
    """The claimed one."""
    success: float | None
    """The measured one; None where the attack was not run."""
    low: float | None
    high: float | None
    chance: float | None
    guesses: int
    p_adjusted: float
    """Holm over all tests of the report."""
    verdict: Word
    reason: str
    reproduce: str
