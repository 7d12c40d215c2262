"""Where a claim's budgets go: under everyone's eyes, over rounds, over records."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vflpriv.accountants.curves import over_rounds, record_epsilons
from vflpriv.budgets import Accountant
from vflpriv.claims import Claim
from vflpriv.ledger import Ledger, Reading
from vflpriv.report_budgets import budget_rows
from vflpriv.report_claims import BudgetRow, Spending, ViewBudget

__all__ = ["record_bins", "spendings", "view_budgets"]

_POINTS = 16
_MOST_BINS = 40


def view_budgets(
    ledger: Ledger, claim: Claim, accountant: Accountant, known: Sequence[BudgetRow] = ()
) -> tuple[ViewBudget, ...]:
    """The claim's unit at the claim's delta, by view; `known` are budgets that need not be computed again."""
    rows = [b for b in known if b.unit == claim.unit.value and b.delta == claim.delta]
    rows = rows or budget_rows(ledger, accountant, claim.delta, units=(claim.unit,))
    paper = {_asked(b): b.epsilon_upper for b in rows if b.reading == Reading.PAPER.value}
    return tuple(
        ViewBudget(
            adversary=_asked(b),
            batches=b.batches,
            epsilon_upper=b.epsilon_upper,
            paper_reading=paper.get(_asked(b)),
            unprotected=b.unprotected,
            not_applicable=b.not_applicable,
        )
        for b in rows
        if b.reading == Reading.RIGOROUS.value
    )


def _asked(budget: BudgetRow) -> str:
    """The view as it was asked for: a budget of any one device names the worst of them, which a reading may change."""
    return "device" if budget.adversary.startswith("device(") else budget.adversary


def spendings(
    ledger: Ledger, claim: Claim, accountant: Accountant, budgets: Sequence[BudgetRow]
) -> tuple[Spending, ...]:
    """One for each of the claim's budgets that is finite and was really spent."""
    finite = [b for b in budgets if b.not_applicable is None and math.isfinite(b.epsilon_upper)]
    return tuple(_spending(ledger, claim, accountant, Reading(b.reading)) for b in finite)


def _spending(ledger: Ledger, claim: Claim, accountant: Accountant, reading: Reading) -> Spending:
    exposure = ledger.exposure(claim.adversary, claim.unit, reading=reading)
    curve = over_rounds(accountant, ledger, claim.adversary, claim.unit, claim.delta, reading=reading, points=_POINTS)
    return Spending(
        reading=reading.value,
        delta=claim.delta,
        rounds=tuple(int(t) for t in curve.rounds),
        epsilon_lower=tuple(float(e) for e in curve.epsilon_lower),
        epsilon_upper=tuple(float(e) for e in curve.epsilon_upper),
        records=record_bins(record_epsilons(exposure, claim.delta)),
    )


def record_bins(epsilons: NDArray[np.float64] | None) -> tuple[tuple[float, float, int], ...]:
    """Distinct values as they are; more than a plot can show in equal bins, each with the ends of what is in it.

    >>> record_bins(np.array([2.0, 1.0, 2.0]))
    ((1.0, 1.0, 1), (2.0, 2.0, 2))
    """
    if epsilons is None or not epsilons.size or not np.isfinite(epsilons).all():
        return ()
    values, numbers = np.unique(epsilons, return_counts=True)
    if len(values) <= _MOST_BINS:
        return tuple((float(v), float(v), int(n)) for v, n in zip(values, numbers, strict=True))
    edges = np.linspace(values[0], values[-1], _MOST_BINS + 1)
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, _MOST_BINS - 1)
    found = [place == i for i in range(_MOST_BINS)]
    return tuple((float(values[m].min()), float(values[m].max()), int(numbers[m].sum())) for m in found if m.any())
