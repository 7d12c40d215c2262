"""What `vflpriv account` finds, as data: each system's budgets in all views and units, claimed beside accounted."""

from __future__ import annotations

import json

from vflpriv.report.audit import BudgetRow
from vflpriv.report.rows import Row, Shown

__all__ = ["AccountRow", "AccountedClaim", "Accounts", "Curves"]


class AccountedClaim(Row):
    """A claim beside what can be accounted for: rigorously, and as its paper reads the server's state."""

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
    """One system's budgets, without training it."""

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
    """Everything `vflpriv account` prints."""

    schema_version: str = "vflpriv-account/1"
    tool_version: str
    accountant: str
    systems: tuple[AccountRow, ...]

    def to_json(self) -> str:
        """Canonical JSON, as of the report."""
        return json.dumps(json.loads(self.model_dump_json()), indent=2, ensure_ascii=False)


class Curves(Row):
    """The curves of one budget, for export and for the plot."""

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
    """Each record's own epsilon at `delta`, exact; None where batches are secret or noise is not only Gaussian."""

    @property
    def name(self) -> str:
        """For files."""
        words = f"{self.system}-{self.adversary}-{self.unit}-{self.reading}"
        return "".join(c if c.isalnum() or c in "-_." else "" for c in words)
