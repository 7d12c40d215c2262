"""Rows of the report about claims: their budgets, the releases they come from, their tests and their verdicts."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vflpriv.common.files import SEAL, parsed_json, regular
from vflpriv.common.registry import find
from vflpriv.core.claims import Verdict
from vflpriv.errors import InputError, first_problem
from vflpriv.report.seals import canonical_json, sealed_json

__all__ = [
    "USEFUL",
    "BoundRow",
    "BudgetRow",
    "ChangeRow",
    "ClaimRow",
    "Displayed",
    "ErrorsRow",
    "Fingerprint",
    "MeasurementRow",
    "Produced",
    "ReleaseRow",
    "Row",
    "SamplingRow",
    "Spending",
    "SuccessClaimRow",
    "ViewBudget",
    "read_row",
]

USEFUL = 50.0
"""The largest ε that says anything: e^50 times as likely excludes nothing that anybody could observe."""


class Displayed:
    """A result that prints as one line and shows itself in notebooks, which call the methods with underscores."""

    def to_dict(self) -> dict[str, Any]:
        """The canonical JSON as Python values; infinities are strings, as there."""
        assert isinstance(self, BaseModel)
        values: dict[str, Any] = json.loads(self.model_dump_json())
        return values

    def __repr__(self) -> str:
        return self._display("line")

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return self._display("html")

    def _repr_markdown_(self) -> str:
        return self._display("markdown")

    def _display(self, name: str) -> str:
        text: str = find("display", name)().render(self)
        return text


R = TypeVar("R", bound=BaseModel)


class Row(BaseModel):
    """A frozen piece of the report; infinities are written as strings, since JSON has none."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    def to_json(self) -> str:
        """Canonical JSON of it."""
        return canonical_json(self)


class Produced(Displayed, Row):
    """The results of one run of a command. `machine` says where the same seed gives the same bytes."""

    schema_version: str
    tool_version: str
    machine: dict[str, str | int] = Field(default_factory=dict)
    """The processor, the instructions and threads that torch used, and versions: where these agree, too, the same
    configuration and seed give the same bytes. Reports of earlier versions have none."""
    seed: int
    confidence: float
    """Of every interval and lower bound."""
    seal: str | None = Field(default=None, alias=SEAL)
    """Of the file that it is written to; the result itself has none."""

    @model_validator(mode="before")
    @classmethod
    def _without_seal(cls, values: Any) -> Any:
        return {name: value for name, value in values.items() if name != SEAL} if isinstance(values, dict) else values

    def to_json(self) -> str:
        """Canonical JSON of it, with its seal."""
        return sealed_json(self)

    def to_dict(self) -> dict[str, Any]:
        """The canonical JSON as Python values; infinities are strings, as there."""
        values: dict[str, Any] = json.loads(self.to_json())
        return values


class ErrorsRow(Row):
    """The errors of a test in two worlds that was fixed before its trials."""

    false_positives: int
    negatives: int
    """Trials of world 1."""
    false_negatives: int
    positives: int
    """Trials of world 0."""

    @property
    def rates(self) -> tuple[float, float]:
        """The false-positive rate and the false-negative rate."""
        return self.false_positives / self.negatives, self.false_negatives / self.positives


class BoundRow(Row):
    """A further bound from the same observations, which decided nothing."""

    measure: str
    value: float
    basis: str


class MeasurementRow(Row):
    """What an audit measured of what a view tells of a unit, and the test of a claim by it."""

    audit: str
    subject: str
    """What it was measured with, such as a kind of canary."""
    description: str = ""
    adversary: str
    unit: str
    method: str
    outcome: str
    """What was counted."""
    measure: str
    """Which figure is compared with the claim: μ, a trade-off curve, or ε at its δ."""
    figure: float
    """That figure, a lower bound unless it is exact."""
    mu: float | None
    epsilon: float | None
    """At the claim's δ, of any mechanism."""
    epsilon_gaussian: float | None = None
    """At the claim's δ, by way of μ, if the trade-off curve is Gaussian; None where the ledger says that it is not."""
    gaussian_refusal: str | None = None
    """Why ε cannot be had from μ, where it cannot."""
    exact: bool = False
    confidence: float
    """Of a bound."""
    assumptions: tuple[str, ...] = ()
    assumes_gaussian: bool = False
    """Whether the figure says something of the claim under Gaussian noise alone."""
    witness: str = ""
    trials: int | None
    """Trials in each world, or guesses; None where they are not counted."""
    errors: ErrorsRow | None = None
    mu_accounted: float | None = None
    p_value: float | None
    """None of a figure that takes no statistics."""
    p_adjusted: float | None
    """Holm over all tests of the report."""
    refutes: bool
    decides: bool = False
    """Whether the verdict on the claim quotes it."""
    refuted_claim: str = ""
    """The claim that it tests, where this one falls with that."""
    power: float | None = None
    """How likely so many trials refute `power_excess` times the claimed `measure`, at best; None if not known."""
    power_excess: float = 1.2
    tool: str = ""
    """What tests a claim so, in a few words."""
    effort: str = ""
    """The trainings and guesses that it took."""
    bounds: tuple[BoundRow, ...] = ()
    facts: dict[str, float | bool | str] = {}
    notes: tuple[str, ...] = ()
    curve: tuple[tuple[float, float], ...] = ()
    """Observed (false-positive rate, false-negative rate) over thresholds, for the plot only."""

    @property
    def proves(self) -> bool:
        """Whether its figure takes no statistics."""
        return self.p_value is None

    @property
    def relation(self) -> str:
        """The sign between a measure and its figure."""
        return "=" if self.exact else "≥"

    def bound(self, basis: str, measure: str = "μ") -> float | None:
        """The further bound on this basis, if there is one."""
        return next((b.value for b in self.bounds if (b.basis, b.measure) == (basis, measure)), None)


def read_row(kind: type[R], path: Path, name: str) -> R:
    """Read a report of some kind, whose file is usually called `name`, or raise an error of one line."""
    try:
        text = regular(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise InputError("report", str(path), f"a readable {name} ({error.strerror})") from error
    try:
        row = kind.model_validate_json(text)
    except ValidationError as error:
        problem = first_problem(error)
        raise problem.error(f"report {path.name}: {problem.place or 'file'}") from error
    try:
        parsed_json(text)
    except ValueError as error:
        raise InputError(f"report {path.name}", str(path), f"valid JSON ({error})") from error
    return row


class BudgetRow(Row):
    """An accountant's budget of one unit against one adversary."""

    adversary: str
    unit: str
    reading: str
    batches: str
    accountant: str
    method: str
    delta: float
    mu: float | None
    epsilon_lower: float
    epsilon: float
    epsilon_upper: float
    participations: int | None
    """In how many releases that the adversary sees the worst record takes part."""
    participation_histogram: dict[int, int]
    """How many records take part that often."""
    assumptions: tuple[str, ...]
    approximations: dict[str, float]
    unprotected: tuple[str, ...]
    not_applicable: str | None
    assumed: tuple[str, ...] = ()
    """Assumptions about ciphertexts, which nothing measures and without which the budget is infinite."""


class ViewBudget(Row):
    """The budget of a claim's unit against another adversary, at the claim's delta."""

    adversary: str
    batches: str
    epsilon_upper: float
    """Rigorous."""
    paper_reading: float | None
    """None where it is the same."""
    unprotected: tuple[str, ...] = ()
    not_applicable: str | None = None
    assumed: tuple[str, ...] = ()


class Spending(Row):
    """Where one budget of a claim goes: epsilon of the run stopped early, and of each record by itself."""

    reading: str
    delta: float
    rounds: tuple[int, ...]
    epsilon_lower: tuple[float, ...]
    epsilon_upper: tuple[float, ...]
    records: tuple[tuple[float, float, int], ...]
    """(lowest, highest, how many records) of bins of records' own epsilons; empty where they have none."""


class ChangeRow(Row):
    """One way to make a claim hold, or to find out whether it does."""

    sentence: str
    settings: dict[str, float | str] = {}
    """The settings that do it, by name: of the engine, or `KIND.scale` of a ledger file; none where none does."""


class Fingerprint(Row):
    """A hash of something that the report was made from, by which a reader sees that it is still the same."""

    name: str
    sha256: str


class ClaimRow(Displayed, Row):
    """A published guarantee with its three numbers and the verdict."""

    key: str
    source: str
    where: str
    statement: str
    unit: str
    unit_description: str
    adversary: str
    delta: float
    epsilon: float
    mu: float
    stated: Literal["mu", "epsilon"] = "epsilon"
    """How the source states it: as a trade-off curve (μ-GDP), or as ε at δ."""
    accounted: BudgetRow
    """Rigorous."""
    paper_reading: BudgetRow | None
    """With state that moves without noise taken as if it did not depend on the data; None where nothing does."""
    measurements: tuple[MeasurementRow, ...]
    verdict: Verdict
    reason: str
    reproduce: str
    views: tuple[ViewBudget, ...] = ()
    """The same unit and delta for every view."""
    spending: tuple[Spending, ...] = ()
    """For each reading that has a finite budget."""
    broken: tuple[str, ...] = ()
    """The premises of the claim that do not hold, such as "sensitivity of scalar"."""
    changes: tuple[ChangeRow, ...] = ()
    """What to change, where the verdict is not "consistent"."""

    @property
    def deciding(self) -> MeasurementRow | None:
        """The measurement that the verdict quotes."""
        return next((row for row in self.measurements if row.decides), None)


class SuccessClaimRow(Displayed, Row):
    """A published guarantee about an attack's success, the measured success, and the verdict."""

    key: str
    source: str
    where: str
    statement: str
    unit: str
    adversary: str
    attack: str
    rate: float
    """The claimed one."""
    success: float | None
    """The measured one; None where the attack was not run."""
    low: float | None
    high: float | None
    chance: float | None
    guesses: int
    trainings: int = 1
    """Independent trainings whose mean `success` is; the interval is over them, or over the guesses of the only one."""
    p_adjusted: float
    """Holm over all tests of the report."""
    verdict: Verdict
    reason: str
    reproduce: str
    changes: tuple[ChangeRow, ...] = ()


class ReleaseRow(Row):
    """One kind of private value that left its owner."""

    kind: str
    what: str
    noise: str
    seen_by: tuple[str, ...]
    rounds: int
    """In how many rounds it left."""
    sensitivity: dict[str, float]
    """By unit: how far one unit moves it before noise. A unit that is absent cannot move it."""
    protects: tuple[str, ...]
    """The units for which its noise bounds what it tells."""
    assumption: str = ""
    """Of a ciphertext: under which assumption it tells nothing to those without its key."""


class SamplingRow(Row):
    """How the batches of the run were drawn, whether or not an adversary knows them."""

    batching: str
    description: str
    batch_size: int
    records: int
    fewest: int
    """Records in the smallest batch that was drawn."""
    most: int
