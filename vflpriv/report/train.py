"""The report of `vflpriv train`: one training of each system with its accuracy, traffic and staleness."""

from __future__ import annotations

from typing import Any

from vflpriv.report.audit import Staleness, Traffic, Utility
from vflpriv.report.rows import Produced, Row

__all__ = ["Stopping", "TrainReport", "TrainRow", "Validation"]


class Validation(Row):
    """The accuracy on validation records, by which settings may be chosen; the interval is over these records."""

    records: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float


class Stopping(Row):
    """When a training stopped by its accuracy on the validation records; budgets count all rounds of the schedule."""

    trained_rounds: int
    best_round: int
    """The number of rounds after which the models were kept."""


class TrainRow(Row):
    """One training of one system."""

    key: str
    title: str
    engine: str
    settings: dict[str, Any]
    rounds: int
    """Rounds of the schedule, all of which budgets count."""
    parameters: int
    """Number of parameters of all parties' models together."""
    utility: Utility | None
    traffic: Traffic | None
    staleness: Staleness | None
    validation: Validation | None = None
    """None where no records were kept back for validation."""
    stopping: Stopping | None = None
    """None where all rounds were to be trained."""
    auc: float | None = None
    """The area under the ROC curve on the test records of two classes; None where there are more."""
    seconds: float | None = None
    """When the last round ends on the simulated clock; None where `engine.delays` is not given."""
    noise_source: str = ""
    """What was drawn in secret, from where, and who can compute it."""
    models: str | None = None
    """The file to which the models were saved; None if they were not."""


class TrainReport(Produced):
    """The results of one run of `vflpriv train`."""

    schema_version: str = "vflpriv-train/1"
    data: dict[str, Any]
    systems: tuple[TrainRow, ...]
