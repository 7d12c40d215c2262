"""What `vflpriv account` finds, as data: each system's budgets in all views and units, claimed beside accounted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from vflpriv.accountants.curves import PrivacyCurve, RoundCurve, over_rounds, privacy_curve, record_epsilons
from vflpriv.core.budgets import Accountant
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Exposure, Reading
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.report.audit import BudgetRow
from vflpriv.report.budgets import account, budget_row, budget_rows
from vflpriv.report.rows import Row, Shown

__all__ = ["AccountRow", "AccountedClaim", "Accounts", "Curves", "account_system", "claim_curves", "curves_of"]

DEFAULT_DELTA = 1e-5


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


def account_system(system: System, accountant: Accountant, delta: float | None, claims: Sequence[Claim]) -> AccountRow:
    """All budgets of a system at `delta` (its own if not given), and what is claimed of it at the claims' own."""
    chosen = float(getattr(system.settings, "delta", DEFAULT_DELTA)) if delta is None else delta
    ledger, schedule = system.ledger, system.schedule
    return AccountRow(
        key=system.key,
        engine=system.engine.name,
        records=schedule.records,
        devices=schedule.devices,
        rounds=schedule.rounds,
        batch_size=schedule.batch_size,
        schedule=schedule.batching.value,
        noise_std=getattr(system.settings, "noise_std", None),
        delta=chosen,
        claims=tuple(_claim(system, c, accountant) for c in claims),
        budgets=tuple(budget_rows(ledger, accountant, chosen)),
    )


def _claim(system: System, claim: Claim, accountant: Accountant) -> AccountedClaim:
    exposures = [system.ledger.exposure(claim.adversary, claim.unit, reading=r) for r in Reading]
    rigorous, paper = (account(accountant, e, claim.delta) for e in exposures)
    return AccountedClaim(
        key=claim.key,
        source=claim.source,
        where=claim.where,
        statement=claim.statement,
        unit=claim.unit.value,
        adversary=str(claim.adversary),
        delta=claim.delta,
        epsilon=claim.epsilon,
        mu=claim.mu,
        accounted=budget_row(exposures[0], rigorous),
        paper_reading=budget_row(exposures[1], paper) if rigorous.upper != paper.upper else None,
    )


def claim_curves(system: System, accountant: Accountant, claims: Sequence[Claim]) -> list[Curves]:
    """The curves of every claim's budgets, of both readings where they differ."""
    found = []
    for claim in claims:
        for reading in Reading:
            exposure = system.ledger.exposure(claim.adversary, claim.unit, reading=reading)
            if reading is not Reading.RIGOROUS and not any("although it does" in note for note in exposure.assumptions):
                continue
            found += curves_of(system, exposure, claim.adversary, accountant, claim.delta, claim)
    return found


def curves_of(
    system: System,
    exposure: Exposure,
    adversary: Adversary,
    accountant: Accountant,
    delta: float,
    claim: Claim | None = None,
) -> list[Curves]:
    """The curves of one exposure; none where the question does not arise or the accountant has no answer."""
    if accountant.supports(exposure) is not None or delta == 0:
        return []
    unit: Unit = exposure.unit
    shape: PrivacyCurve = privacy_curve(accountant, exposure)
    rounds: RoundCurve = over_rounds(accountant, system.ledger, adversary, unit, delta, reading=exposure.reading)
    records = record_epsilons(exposure, delta)
    columns: dict[str, Any] = {
        "deltas": shape.deltas,
        "epsilon_lower": shape.epsilon_lower,
        "epsilon_upper": shape.epsilon_upper,
        "alphas": shape.alphas,
        "betas": shape.betas,
        "rounds": rounds.rounds,
        "rounds_epsilon_lower": rounds.epsilon_lower,
        "rounds_epsilon_upper": rounds.epsilon_upper,
    }
    return [
        Curves(
            system=system.key,
            adversary=str(adversary),
            unit=unit.value,
            reading=exposure.reading.value,
            batches=exposure.batches,
            accountant=accountant.name,
            claimed_epsilon=None if claim is None else claim.epsilon,
            claimed_mu=None if claim is None else claim.mu,
            delta=delta,
            exact=shape.exact,
            record_epsilons=None if records is None else tuple(records.tolist()),
            **{name: tuple(values.tolist()) for name, values in columns.items()},
        )
    ]
