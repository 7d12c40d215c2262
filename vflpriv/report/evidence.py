"""What the verdicts of a report rest on beside the rows of its claims: enough to decide again without the audit."""

from __future__ import annotations

from pydantic import Field

from vflpriv.core.claims import Verdict
from vflpriv.report.rows import Row

__all__ = ["BudgetTestRow", "EvidenceRow", "ExcessRow", "FiguresRow", "FindingRow", "SuccessRow"]


class FiguresRow(Row):
    """The figures of a measurement that a verdict may rest on."""

    unit: str
    view: str
    decides: str
    mu: float | None
    epsilon: float | None
    delta: float
    exact: bool
    confidence: float
    assumptions: tuple[str, ...]
    strength: int
    p_value: float | None
    trials: int | None
    facts: dict[str, float | bool | str] = Field(default_factory=dict)


class BudgetTestRow(Row):
    """The test of the accounted budget by the same observations as that of the claim."""

    epsilon: float
    """The accounted ε that was tested."""
    measure: str
    figure: float
    p_value: float | None
    assumptions: tuple[str, ...]


class FindingRow(Row):
    """A finding as an audit returned it, before any correction for the number of tests."""

    audit: str
    subject: str
    verdict: Verdict
    sentence: str
    note: str = ""
    figure: float
    measure: str
    claim: str | None
    """The claim that it tests; None for a premise."""
    claim_units: tuple[str, ...] | None
    claim_keys: tuple[str, ...] | None
    """The units and claims that rest on a premise; None if all do."""
    unit: str | None
    adversary: str | None
    p_value: float | None
    trials: int | None
    decides_alone: bool
    measures: bool
    figures: FiguresRow | None
    of_budget: BudgetTestRow | None


class ExcessRow(Row):
    """Where the accounted curve lies above a claim of μ-GDP."""

    delta: float
    accounted: float
    claimed: float


class SuccessRow(Row):
    """What a claim about an attack's success is tested by."""

    claim: str
    claim_classes: int | None
    classes: int
    refusal: str | None
    rates: tuple[float, ...]
    figures: tuple[float, float, float] | None
    """The success of one training, and the ends of its interval."""
    chance: float | None
    guesses: int


class EvidenceRow(Row):
    """What `vflpriv.audits.verdict.decide` was given for one system, beside the rows of its claims."""

    min_trials: int
    ledger: str
    findings: tuple[FindingRow, ...]
    excesses: dict[str, ExcessRow]
    """By the claim's key."""
    assumed: dict[str, tuple[str, ...]]
    successes: tuple[SuccessRow, ...]
