"""The report of `vflpriv account`: each system's budgets for all views and units, and each claim beside its budget."""

from __future__ import annotations

import json

from vflpriv.report.audit import BudgetRow
from vflpriv.report.rows import Displayed, Row

__all__ = ["AccountRow", "AccountedClaim", "Accounts", "Calibration", "CrossCheckRow", "Curves"]


class CrossCheckRow(Row):
    """Another library's upper bound on the budget of a claim, or the reason why it was not asked."""

    reading: str
    library: str
    epsilon: float | None
    error: float
    """By how much the library says that its figure may be off."""
    note: str
    """A known fault of the library that concerns this figure."""
    refusal: str | None
    too_low: bool
    """Whether the figure lies below our certified lower bound by more than its stated error."""


class AccountedClaim(Row):
    """A claim beside its accounted budget: the rigorous one, and the paper's reading where that differs."""

    key: str
    source: str
    where: str
    statement: str
    unit: str
    adversary: str
    delta: float
    epsilon: float
    mu: float
    accounted: BudgetRow
    paper_reading: BudgetRow | None
    cross_checks: tuple[CrossCheckRow, ...] = ()
    """Other libraries beside these two budgets, if they were asked."""


class AccountRow(Row):
    """The budgets of one system, which need no training."""

    key: str
    engine: str
    records: int
    devices: int
    rounds: int
    batch_size: int
    schedule: str
    noise_std: float | None
    delta: float
    claims: tuple[AccountedClaim, ...]
    budgets: tuple[BudgetRow, ...]


class Accounts(Displayed, Row):
    """All budgets of one run of `vflpriv account`."""

    schema_version: str = "vflpriv-account/1"
    tool_version: str
    accountant: str
    systems: tuple[AccountRow, ...]

    def to_json(self) -> str:
        """Canonical JSON: stable key order, two spaces, no final newline."""
        return super().to_json().removesuffix("\n")


class Calibration(Row):
    """What `vflpriv calibrate` finds: the least noise for a target budget, and the budget that it has."""

    field: str
    """The setting of the engine that was calibrated."""
    noise: float
    epsilon: float
    """The target, at `delta`."""
    delta: float
    budget: BudgetRow

    def to_json(self) -> str:
        """What `vflpriv calibrate --format json` prints."""
        target = {"epsilon": self.epsilon, "delta": self.delta}
        budget = json.loads(self.budget.model_dump_json(exclude={"participation_histogram"}))
        document = {"schema_version": "vflpriv-calibrate/1", "field": self.field, "noise": self.noise}
        return json.dumps(document | {"target": target, "budget": budget}, indent=2)


class Curves(Row):
    """The curves of one budget: ε over δ, the trade-off curve, ε over rounds, and ε per record."""

    system: str
    adversary: str
    unit: str
    reading: str
    batches: str
    accountant: str
    claimed_epsilon: float | None
    claimed_mu: float | None
    delta: float
    exact: bool
    deltas: tuple[float, ...]
    epsilon_lower: tuple[float, ...]
    epsilon_upper: tuple[float, ...]
    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    rounds: tuple[int, ...]
    rounds_epsilon_lower: tuple[float, ...]
    rounds_epsilon_upper: tuple[float, ...]
    record_epsilons: tuple[float, ...] | None
    """Exact per-record epsilons at `delta`; None where batches are secret or the noise is not only Gaussian."""

    @property
    def name(self) -> str:
        """The stem of the file names of these curves."""
        name = f"{self.system}-{self.adversary}-{self.unit}-{self.reading}"
        return "".join(c if c.isalnum() or c in "-_." else "" for c in name)
