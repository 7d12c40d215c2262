"""The report of an audit, as data: one canonical `report.json`, from which every other format is rendered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from vflpriv.common.files import write_atomically
from vflpriv.core.claims import SEVERITY, Verdict
from vflpriv.report.attacks import FeatureCell
from vflpriv.report.evidence import EvidenceRow
from vflpriv.report.formats import DEFAULT_FORMATS, save_result
from vflpriv.report.rows import (
    BoundRow,
    BudgetRow,
    ChangeRow,
    ClaimRow,
    ErrorsRow,
    Fingerprint,
    MeasurementRow,
    Produced,
    ReleaseRow,
    Row,
    SamplingRow,
    Spending,
    SuccessClaimRow,
    ViewBudget,
    read_row,
)

__all__ = [
    "SCHEMA",
    "AttackRow",
    "BoundRow",
    "BudgetRow",
    "ChangeRow",
    "CheckRow",
    "ClaimRow",
    "ErrorsRow",
    "Fingerprint",
    "MeasurementRow",
    "ReleaseRow",
    "Report",
    "SamplingRow",
    "Spending",
    "Staleness",
    "SuccessClaimRow",
    "SystemRow",
    "Traffic",
    "Utility",
    "ViewBudget",
    "read_report",
    "write_atomically",
]

SCHEMA: Literal["vflpriv-report/3"] = "vflpriv-report/3"
"""Reports of version 2 are read, too; older ones are refused in one line."""


class CheckRow(Row):
    """A finding of any audit that is no measurement: a check of a premise that claims rest on, or a test of one."""

    audit: str
    subject: str
    unit: str
    figure: float
    """Its meaning depends on the audit: a std relative to the declared one, the μ that state gives away, a distance."""
    measure: str = ""
    """What the figure is."""
    limit: float | None = None
    """The largest figure with which the premise holds, such as a declared sensitivity, where there is one number."""
    verdict: Verdict
    reason: str
    basis: str = ""
    """Of a bound: how it is known, "proved" for all inputs or "searched" without exceeding it."""
    reproduce: str
    changes: tuple[ChangeRow, ...] = ()
    """What to change, where the premise is broken."""


class AttackRow(Row):
    """One attack through one view: its success, or why it does not apply."""

    attack: str
    adversary: str
    target: str
    success: float | None
    low: float | None
    high: float | None
    chance: float | None
    blind: float | None = None
    """Success of the same adversary without the protocol; None if it can only guess the commonest label."""
    guesses: int
    population: int | None = None
    """How many records those guessed about were drawn from at random; None where all are guessed about."""
    not_applicable: str | None
    adaptive: bool = False
    """Whether the attack knows a defence that is in force."""

    @property
    def attack_name(self) -> str:
        """The attack, and whether it knows the defence."""
        return f"{self.attack} (adaptive)" if self.adaptive else self.attack

    @property
    def leakage(self) -> float:
        """Success beyond what can be had without the protocol."""
        return (self.success or 0.0) - max(self.chance or 0.0, self.blind or 0.0)


class Utility(Row):
    """How well the model of one training does; the interval is over the test records."""

    tests: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    loss_before: float
    loss_after: float


class Traffic(Row):
    """Payload bytes of one training, by direction; record ids apart."""

    up: int
    down: int
    ids: int
    messages: dict[str, int]


class Staleness(Row):
    """How many rounds old the embeddings were that rounds read of devices not active in them."""

    reads: int
    never_sent: float
    """Share of reads that met the zero row of a record never sent."""
    median: int
    largest: int


class SystemRow(Row):
    """One audited system."""

    key: str
    title: str
    engine: str
    settings: dict[str, Any]
    data: dict[str, Any]
    rounds: int
    claims: tuple[ClaimRow, ...]
    budgets: tuple[BudgetRow, ...]
    checks: tuple[CheckRow, ...] = ()
    attacks: tuple[AttackRow, ...]
    utility: Utility | None
    traffic: Traffic | None
    staleness: Staleness | None = None
    success_claims: tuple[SuccessClaimRow, ...] = ()
    importance: tuple[float, ...] = ()
    """Of each device, where the engine measures it: the norm of its head."""
    importance_caveat: str | None = None
    """Why these norms say nothing about the devices, if they do not."""
    releases: tuple[ReleaseRow, ...] = ()
    sampling: SamplingRow | None = None
    noise_source: str = ""

    features: tuple[FeatureCell, ...] = ()
    """The success of attacks on features and membership, where the configuration asks for them."""

    evidence: EvidenceRow | None = None
    """What the verdicts rest on, by which `vflpriv verify` decides again; None in older reports."""

    @model_validator(mode="before")
    @classmethod
    def _with_sensitivity_among_checks(cls, values: Any) -> Any:
        """A system of a report of version 2, which has a table `sensitivity` beside the checks, as one of today."""
        if not isinstance(values, dict) or not isinstance(values.get("sensitivity"), list):
            return values
        moved = [_check_of(row) for row in values["sensitivity"] if isinstance(row, dict)]
        others = {name: value for name, value in values.items() if name != "sensitivity"}
        return others | {"checks": [*moved, *others.get("checks", ())]}

    @property
    def all_claims(self) -> list[ClaimRow | SuccessClaimRow]:
        """Claims with an ε, then claims about attacks."""
        return [*self.claims, *self.success_claims]


def _check_of(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table `sensitivity` of version 2 as a check."""
    moved = f"moved by {row.get('observed')} at most, {row.get('declared')} is declared ({row.get('witness')})"
    return {
        "audit": "sensitivity",
        "subject": row.get("mechanism"),
        "unit": row.get("unit"),
        "figure": row.get("observed"),
        "limit": row.get("declared"),
        "verdict": Verdict.CONSISTENT if row.get("holds") else Verdict.VIOLATED,
        "reason": f"{row.get('searched')} pairs of neighbours {moved}",
        "reproduce": row.get("replay", ""),
    }


class Report(Produced):
    """All results of one audit."""

    stem: ClassVar[str] = "report"
    schema_version: Literal["vflpriv-report/3"] = SCHEMA
    verdict_confidence: float = 0.95
    """A claim is called violated at a family-wise error of one minus this; reports without the field used 0.95."""
    ledger_trusted: bool = False
    """Whether claims that nothing measured were left out of the exit code."""
    systems: tuple[SystemRow, ...]
    not_tested: tuple[str, ...]
    config: dict[str, Any]
    exit_code: int
    fingerprints: tuple[Fingerprint, ...] = ()
    """Hashes of the configuration, the ledger, the transcript and the code."""
    date: str = ""
    """The day of the audit as whoever asked for it gives it, YYYY-MM-DD; never read from a clock."""

    @model_validator(mode="before")
    @classmethod
    def _since_version_2(cls, values: Any) -> Any:
        older = isinstance(values, dict) and values.get("schema_version") == "vflpriv-report/2"
        return values | {"schema_version": SCHEMA} if older else values

    @property
    def claims(self) -> list[ClaimRow | SuccessClaimRow]:
        """The claims of all systems, those about attacks included."""
        return [claim for system in self.systems for claim in system.all_claims]

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts on all claims."""
        return [claim.verdict for claim in self.claims]

    @property
    def verdict(self) -> Verdict | None:
        """The gravest verdict, "violated" where a premise is broken; None without claims."""
        if self.broken_premises:
            return Verdict.VIOLATED
        return next((verdict for verdict in SEVERITY if verdict in self.verdicts), None)

    @property
    def broken_premises(self) -> list[str]:
        """The premises that do not hold, each with its system."""
        names = [
            f"{row.audit} of {row.subject} ({system.key})"
            for system in self.systems
            for row in system.checks
            if row.verdict is Verdict.VIOLATED
        ]
        return list(dict.fromkeys(names))

    @property
    def broken_premise(self) -> str:
        """The broken premises in a few words; empty where a claim is violated, whose reason names them."""
        names = self.broken_premises
        if not names or self.count(Verdict.VIOLATED):
            return ""
        return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")

    @property
    def features(self) -> tuple[FeatureCell, ...]:
        """The attacks on features of all systems."""
        return tuple(cell for system in self.systems for cell in system.features)

    def count(self, verdict: Verdict) -> int:
        """How many claims have this verdict."""
        return self.verdicts.count(verdict)

    @property
    def headline(self) -> str:
        """All verdicts in one line."""
        total = len(self.verdicts)
        broken = f"; broken premise: {self.broken_premise}" if self.broken_premise else ""
        if total == 0:
            return f"no claim to check{broken}"
        parts = [f"{self.count(verdict)} {verdict}" for verdict in Verdict if self.count(verdict)]
        trusted = "; the ledger was trusted" if self.ledger_trusted and self.count(Verdict.UNMEASURED) else ""
        return f"{total} claim{'s' if total > 1 else ''} checked: {', '.join(parts)}{trusted}{broken}"

    def save(self, folder: str | Path, formats: Sequence[str] = (*DEFAULT_FORMATS, "toml")) -> list[Path]:
        """Write the report in these formats (toml is what was audited), and return the paths."""
        return save_result(self, Path(folder), formats)


def read_report(path: Path) -> Report:
    """Read `report.json` back, or raise an error of one line."""
    return read_row(Report, path, "report.json")
