"""Rows of the report that hold a test of a claim: in two worlds, or in one run."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from vflpriv.errors import InputError, wanted

__all__ = ["MeasurementRow", "OneRunRow", "Row", "read_row"]

R = TypeVar("R", bound=BaseModel)


class Row(BaseModel):
    """A frozen piece of the report; infinities are written as strings, since JSON has none."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class MeasurementRow(Row):
    """One two-world audit: trials, errors of the test fixed in advance, and the bounds they give."""

    canary: str
    canary_description: str
    adversary: str
    unit: str
    record: int
    trials_per_world: int
    false_positives: int
    false_negatives: int
    confidence: float
    mu_lower: float
    mu_estimate: float
    mu_rectangle: float
    """The same bound from two separate error rates, as most tools compute it."""
    epsilon_lower: float
    """At the claim's delta, valid for any mechanism."""
    epsilon_from_mu: float | None
    """At the claim's delta, valid because the trade-off curve is Gaussian; None where it is not."""
    epsilon_from_mu_refused: str | None = None
    """Why epsilon cannot be had from mu, where it cannot."""
    method: str = "likelihood ratio"
    """How a trial was scored."""
    threshold: float = 0.0
    """Of the score, fixed before the trials."""
    mu_known_sigma: float | None = None
    """From the scores' means, if the noise is what it is said to be; None where that cannot be had."""
    epsilon_known_sigma: float | None = None
    stopped_early: bool = False
    """Whether the number of trials was left open; bounds and p-values then hold at any time of stopping."""
    mu_accounted: float | None
    p_value: float
    p_adjusted: float
    """Holm over all tests of the report."""
    refutes: bool
    curve: tuple[tuple[float, float], ...]
    """Observed (false-positive rate, false-negative rate) over thresholds, for the plot only."""


class OneRunRow(Row):
    """One training with many canaries: how many of their coins a view guessed, and the bounds that gives."""

    adversary: str
    unit: str
    canaries: int
    set_aside: int
    """Canaries whose coins were looked at to plan the guesses; they are not counted."""
    guesses: int
    right: int
    confidence: float
    mu_lower: float
    epsilon_lower: float
    """At the claim's delta, valid for any mechanism."""
    epsilon_from_mu: float | None
    """At the claim's delta, valid because the trade-off curve is Gaussian; None where it is not."""
    p_value: float
    p_adjusted: float
    """Holm over all tests of the report."""
    refutes: bool
    assumptions: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What was done, in words."""
        planned = f" ({self.set_aside} more to plan the guesses)" if self.set_aside else ""
        return f"{self.right} of {self.guesses} guesses right about {self.canaries} canaries{planned} in one training"


def read_row(kind: type[R], path: Path, name: str) -> R:
    """Read a report of some kind, whose file is usually called `name`, or say in one line what is wrong with it."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError("report", str(path), f"a readable {name} ({error.strerror})") from error
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "file"
        raise InputError(f"report {path.name}: {where}", first.get("input"), wanted(first["msg"])) from error
