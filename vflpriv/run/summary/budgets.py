"""Claims and budgets as rows of a report: per view and unit, in both readings, over rounds and over records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from vflpriv.accountants.curves import DELTAS, over_rounds, record_epsilons
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import find
from vflpriv.core.budgets import Accountant, Budget, CurveExcess, delta_of, epsilon_of
from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.ledger import Exposure, Ledger, Reading
from vflpriv.core.systems import Source
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.report.rows import BudgetRow, Spending, ViewBudget

__all__ = [
    "account",
    "accounted",
    "both_readings",
    "budget_row",
    "budget_rows",
    "claim_fields",
    "curve_excess",
    "record_bins",
    "spendings",
    "view_budgets",
]

_POINTS = 16
"""Rounds at which the budget of a stopped run is computed."""
_MOST_BINS = 40
"""Bins of a histogram of records."""
_VIEWS = ("device", "devices(all)", "eavesdropper", "outsider", "server", "model")


def budget_rows(
    ledger: Ledger, accountant: Accountant, delta: float, *, units: Iterable[Unit] = Unit
) -> list[BudgetRow]:
    """The budgets of these units for every view, in both readings where they differ."""
    return [
        budget_row(exposure, budget)
        for view in _VIEWS
        for unit in units
        for exposure, budget in both_readings(ledger, Adversary.parse(view), unit, accountant, delta)
    ]


def both_readings(
    ledger: Ledger, adversary: Adversary, unit: Unit, accountant: Accountant, delta: float
) -> list[tuple[Exposure, Budget]]:
    """The rigorous exposure with its budget, and the paper's reading with its own where the two budgets differ."""
    exposures = [ledger.exposure(adversary, unit, reading=reading) for reading in (Reading.RIGOROUS, Reading.PAPER)]
    (rigorous, budget), (paper, paper_budget) = [(e, account(accountant, e, delta)) for e in exposures]
    if budget.upper == paper_budget.upper:
        return [(rigorous, budget)]
    return [(rigorous, budget), (paper, paper_budget)]


def account(accountant: Accountant, exposure: Exposure, delta: float) -> Budget:
    """A budget in every case: ε = 0 where the exposure does not apply, ε = ∞ where the accountant has no bound."""
    reason = exposure.not_applicable or accountant.supports(exposure)
    if reason is None:
        return accountant.budget(exposure, delta)
    upper = 0.0 if exposure.not_applicable else math.inf
    return Budget(accountant=accountant.name, method=reason, delta=delta, lower=0.0, estimate=upper, upper=upper)


_TOLERANCE = 1e-6
"""Accountants invert by root finding; an ε this close to the claimed one is the claimed one."""


def curve_excess(accountant: Accountant, exposure: Exposure, mu: float) -> CurveExcess | None:
    """Where the accounted privacy curve exceeds that of μ-GDP most, over many δ; None where it does nowhere.

    A mechanism is μ-GDP if its δ(ε) is at most that of the Gaussian curve for all ε >= 0, which is to say its ε(δ) for
    all δ. The largest δ that matters is where the Gaussian curve reaches ε = 0: its total variation.
    """
    variation = delta_of(mu, 0.0)
    deltas = sorted({*(float(d) for d in DELTAS if d < variation), variation / 2, 0.9 * variation, variation})
    worst: CurveExcess | None = None
    for delta in deltas:
        upper, claimed = account(accountant, exposure, delta).upper, epsilon_of(mu, delta)
        above = upper > claimed * (1 + _TOLERANCE) + _TOLERANCE
        if above and (worst is None or upper - claimed > worst.accounted - worst.claimed):
            worst = CurveExcess(delta=delta, accounted=upper, claimed=claimed)
    return worst


def accounted(accountant: str, system: Source, adversary: Adversary, unit: Unit) -> Budget:
    """The budget of one unit of a system against one adversary, at the system's δ."""
    return account(find("accountant", accountant)(), system.ledger.exposure(adversary, unit), system.delta)


def budget_row(exposure: Exposure, budget: Budget) -> BudgetRow:
    """One budget as a row; where it is finite, with the records' participations."""
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
        assumed=exposure.assumed,
    )


def claim_fields(claim: Claim | SuccessClaim) -> dict[str, Any]:
    """What every row of a claim says of it: its name, its source, the unit and the view."""
    names = {name: getattr(claim, name) for name in ("key", "source", "where", "statement")}
    return {**names, "unit": claim.unit.value, "adversary": str(claim.adversary)}


def view_budgets(
    ledger: Ledger, claim: Claim, accountant: Accountant, known: Sequence[BudgetRow] = ()
) -> tuple[ViewBudget, ...]:
    """The budgets of the claim's unit at the claim's delta, by view; `known` ones are not computed again."""
    rows = [b for b in known if b.unit == claim.unit.value and b.delta == claim.delta]
    rows = rows or budget_rows(ledger, accountant, claim.delta, units=(claim.unit,))
    paper = {_view(b): b.epsilon_upper for b in rows if b.reading == Reading.PAPER.value}
    return tuple(
        ViewBudget(
            adversary=_view(b),
            batches=b.batches,
            epsilon_upper=b.epsilon_upper,
            paper_reading=paper.get(_view(b)),
            unprotected=b.unprotected,
            not_applicable=b.not_applicable,
            assumed=b.assumed,
        )
        for b in rows
        if b.reading == Reading.RIGOROUS.value
    )


def _view(budget: BudgetRow) -> str:
    """The view of a budget without a device number: a budget of any single device names the worst one, and the readings
    may differ in which that is."""
    return "device" if budget.adversary.startswith("device(") else budget.adversary


def spendings(
    ledger: Ledger, claim: Claim, accountant: Accountant, budgets: Sequence[BudgetRow]
) -> tuple[Spending, ...]:
    """How each finite budget of the claim is spent over rounds and records."""
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


def record_bins(epsilons: Floats | None) -> tuple[tuple[float, float, int], ...]:
    """A histogram (lowest, highest, number of records): one bin per distinct value, or 40 equal bins if there are more.

    >>> record_bins(np.array([2.0, 1.0, 2.0]))
    ((1.0, 1.0, 1), (2.0, 2.0, 2))
    """
    if epsilons is None or not epsilons.size or not np.isfinite(epsilons).all():
        return ()
    values, numbers = np.unique(epsilons, return_counts=True)
    if len(values) <= _MOST_BINS:
        return tuple((float(v), float(v), int(n)) for v, n in zip(values, numbers, strict=True))
    edges = np.linspace(values[0], values[-1], _MOST_BINS + 1)
    bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, _MOST_BINS - 1)
    members = [bins == i for i in range(_MOST_BINS)]
    return tuple((float(values[m].min()), float(values[m].max()), int(numbers[m].sum())) for m in members if m.any())
