"""The report's budgets: what an accountant says of each unit under each adversary's eyes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from vflpriv.budgets import Accountant, Budget
from vflpriv.ledger import Exposure, Ledger, Reading
from vflpriv.registry import find
from vflpriv.report_claims import BudgetRow
from vflpriv.systems import System
from vflpriv.units import Unit
from vflpriv.views import Adversary

__all__ = ["account", "accounted", "budget_row", "budget_rows"]

_DEFAULT_DELTA = 1e-5
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
    delta = float(getattr(system.settings, "delta", _DEFAULT_DELTA))
    return account(find("accountant", accountant)(), system.ledger.exposure(adversary, unit), delta)


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
