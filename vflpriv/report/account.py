"""The report of `vflpriv account`: each system's budgets for all views and units, and each claim beside its budget."""

from __future__ import annotations

from vflpriv.report.audit import BudgetRow
from vflpriv.report.rows import Row, Shown

__all__ = ["AccountRow", "AccountedClaim", "Accounts", "Curves"]


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


class Accounts(Shown, Row):
    """All budgets of one run of `vflpriv account`."""

    schema_version: str = "vflpriv-account/1"
    tool_version: str
    accountant: str
    systems: tuple[AccountRow, ...]

    def to_json(self) -> str:
        """Canonical JSON: stable key order, two spaces, no final newline."""
        return super().to_json().removesuffix("\n")


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
