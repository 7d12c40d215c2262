"""The report's budgets: what an accountant says of each unit under each adversary's eyes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from vflpriv.accountants.curves import over_rounds, record_epsilons
from vflpriv.common.registry import find
from vflpriv.core.budgets import Accountant, Budget
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Exposure, Ledger, Reading
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.report.rows import BudgetRow, Spending, ViewBudget

__all__ = ["account", "accounted", "budget_row", "budget_rows", "record_bins", "spendings", "view_budgets"]

_VIEWS = ("device", "devices(all)", "eavesdropper", "outsider", "server", "model")


def budget_rows(
    ledger: Ledger, accountant: Accountant, delta: float, *, units: Iterable[Unit] = Unit
) -> list[BudgetRow]:
    """Every view and these units; both readings where state leaks."""
    rows = []
    for view in _VIEWS:
        for unit in units:
            exposures = [ledger.exposure(Adversary.parse(view), unit, reading=r) for r in Reading]
            budgets = [account(accountant, e, delta) for e in exposures]
            same = budgets[0].upper == budgets[1].upper
            pairs = list(zip(exposures, budgets, strict=True))
            rows += [budget_row(e, b) for e, b in (pairs[:1] if same else pairs)]
    return rows


def account(accountant: Accountant, exposure: Exposure, delta: float) -> Budget:
    """A budget in any case: nothing where the question does not arise, no bound where the accountant has none."""
    reason = exposure.not_applicable or accountant.supports(exposure)
    if reason is None:
        return accountant.budget(exposure, delta)
    upper = 0.0 if exposure.not_applicable else math.inf
    return Budget(accountant=accountant.name, method=reason, delta=delta, lower=0.0, estimate=upper, upper=upper)


def accounted(accountant: str, system: System, adversary: Adversary, unit: Unit) -> Budget:
    """What one adversary can learn of one unit of a system, at the system's δ or a usual one."""
    return account(find("accountant", accountant)(), system.ledger.exposure(adversary, unit), system.delta)


def budget_row(exposure: Exposure, budget: Budget) -> BudgetRow:
    counts = np.empty(0, np.int64) if exposure.counts is None or math.isinf(budget.upper) else exposure.counts
    values, numbers = np.unique(counts, return_counts=True)
    count = None if len(counts) == 0 or exposure.worst is None else int(counts[exposure.worst])
    return BudgetRow(
        adversary=str(exposure.adversary),
        unit=exposure.unit.value,
        reading=exposure.reading.value,
        batches=exposure.batches,
        accountant=budget.accountant,
        method=budget.method,
        delta=budget.delta,
        mu=budget.mu,
        epsilon_lower=budget.lower,
        epsilon=budget.estimate,
        epsilon_upper=budget.upper,
        participations=count,
        participation_histogram={int(v): int(n) for v, n in zip(values, numbers, strict=True)},
        assumptions=budget.assumptions,
        approximations=dict(budget.approximations),
        unprotected=exposure.unprotected,
        not_applicable=exposure.not_applicable,
    )


# Where a claim's budgets go: under everyone's eyes, over rounds, over records.

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
