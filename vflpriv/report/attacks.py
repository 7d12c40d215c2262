"""The report of `vflpriv attack`: engines × defences × attacks, what each cell leaks, and whether that is too much."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import Field

from vflpriv.common import formatting as f
from vflpriv.core.units import Unit
from vflpriv.errors import InputError
from vflpriv.report.formats import DEFAULT_FORMATS, save_result
from vflpriv.report.rows import Displayed, Row, read_row

__all__ = [
    "CORRECTIONS",
    "AttackReport",
    "Breach",
    "Cell",
    "ColumnRow",
    "Correction",
    "FeatureCell",
    "Limit",
    "TrainedRow",
    "applicable",
    "breach_lines",
    "check_correction",
    "judged",
    "limit_note",
    "read_attacks",
    "reasons_of",
    "worst_of",
]

Correction = Literal["holm", "none"]
CORRECTIONS: tuple[Correction, ...] = ("holm", "none")
_RULE = re.compile(r"^\s*(leakage|success)\s*>\s*(\d*\.?\d+)\s*$")


class Measured(Protocol):
    """A cell of the matrix: means over seeds, their intervals and standard errors."""

    @property
    def system(self) -> str: ...
    @property
    def defence(self) -> str: ...
    @property
    def attack(self) -> str: ...
    @property
    def adversary(self) -> str: ...
    @property
    def success(self) -> float | None: ...
    @property
    def success_low(self) -> float | None: ...
    @property
    def success_error(self) -> float | None: ...
    @property
    def leakage(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def leakage_error(self) -> float | None: ...


class Breach(Row):
    """One attack through one view of one system whose mean over seeds lies above a limit."""

    limit: str
    system: str
    defence: str
    attack: str
    adversary: str
    measure: str = "share"
    """Of what the limit speaks: the share of right guesses, or R², or the AUC."""
    low: float
    """The low end of the cell's own interval."""
    p_adjusted: float
    """Of the hypothesis that the mean is at the limit or below: two-sided, as the interval; adjusted if asked for."""

    @property
    def sentence(self) -> str:
        where = f"{self.attack} on {self.system}, defence {self.defence}, seen by {self.adversary}"
        return f"{self.limit}: {where}: {self.least} or more (p = {f.p_value(self.p_adjusted)})"

    @property
    def least(self) -> str:
        """The low end with its unit."""
        return f"{100 * self.low:.1f} %" if self.measure == "share" else f"{self.low:.3f} of {self.measure}"


@dataclass(frozen=True)
class Limit:
    """A rule such as `leakage>0.05`, broken by a mean over seeds that is sure to lie above it, not by a lucky one.

    >>> str(Limit.parse("leakage > 0.05"))
    'leakage>0.05'
    """

    what: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        match = _RULE.match(text)
        if match is None:
            raise InputError("--fail-on", text, "leakage>NUMBER or success>NUMBER")
        return cls(match[1], float(match[2]))

    def __str__(self) -> str:
        return f"{self.what}>{self.bound:g}"

    def numbers(self, cell: Measured) -> tuple[float | None, float | None, float | None]:
        """The mean that this limit is on, the low end of its interval, and its standard error."""
        if self.what == "leakage":
            return cell.leakage, cell.low, cell.leakage_error
        return cell.success, cell.success_low, cell.success_error


def check_correction(name: str) -> Correction:
    """A correction by its name."""
    for known in CORRECTIONS:
        if name == known:
            return known
    raise InputError("--correction", name, f"one of {', '.join(CORRECTIONS)}")


def judged(
    limits: Sequence[Limit], cells: Sequence[Measured], *, seeds: int, confidence: float, correction: Correction
) -> tuple[tuple[Breach, ...], int, int]:
    """The breaches; how many tests there were; and how many more break a limit by their own interval alone.

    A test for every limit and every cell that applies. With Holm's correction the chance that any limit is called
    broken that is not is at most one minus the confidence, however the cells depend on each other; without, each
    test has that chance for itself.
    """
    from vflpriv.audits.scoring.labels import p_above
    from vflpriv.audits.verdict import holm_adjusted

    found: list[tuple[Limit, Measured, float, float]] = []
    for limit in limits:
        for cell in cells:
            mean, low, error = limit.numbers(cell)
            if mean is not None and low is not None:
                found.append((limit, cell, low, p_above(mean, error, limit.bound, seeds)))
    raw = [p for *_, p in found]
    adjusted = holm_adjusted(raw) if correction == "holm" else raw
    alpha = 1 - confidence
    broken = [(*one, p) for one, p in zip(found, adjusted, strict=True) if p <= alpha]
    rows = tuple(
        Breach(
            limit=str(limit),
            **{name: getattr(cell, name) for name in ("system", "defence", "attack", "adversary")},
            measure=getattr(cell, "measure", "share"),
            low=low,
            p_adjusted=p,
        )
        for limit, cell, low, _, p in broken
    )
    return rows, len(found), sum(p <= alpha for p in raw) - len(rows)


def breach_lines(breaches: Sequence[Breach]) -> tuple[str, ...]:
    """One line for each limit, attack, system and defence."""
    groups: dict[tuple[str, str, str, str], list[Breach]] = {}
    for b in breaches:
        groups.setdefault((b.limit, b.attack, b.system, b.defence), []).append(b)
    return tuple(
        f"{limit}: {attack} on {system}, defence {defence}: {max(views, key=lambda b: b.low).least} or more, seen by "
        + ", ".join(b.adversary for b in views)
        for (limit, attack, system, defence), views in groups.items()
    )


def limit_note(tests: int, more: int, correction: Correction, confidence: float) -> str:
    """How many tests the limits were held to, and what was done about their number."""
    level = f.percent(1 - confidence)
    if correction == "none":
        return f"limits: {tests} tests, each for itself: any one is wrong with a chance of at most {level}"
    note = f"limits: {tests} tests, Holm's correction: one or more is wrong with a chance of at most {level}"
    others = "1 more lies" if more == 1 else f"{more} more lie"
    return note if not more else f"{note}; {others} above a limit by its own interval, not after the correction"


# The report of `vflpriv attack`: engines × defences × attacks, what each cell leaks, and whether that is too much.

C = TypeVar("C", bound="Cell")
Picture = Annotated[str, Field(pattern=r"^data:image/png;base64,[A-Za-z0-9+/=]*$")]


class Cell(Row):
    """One attack through one view of one system under one defence: means over seeds, or why it does not apply.

    `leakage` is success beyond the better of `chance` (the commonest label) and `blind` (the same adversary without the
    protocol); low and high are the ends of its interval over seeds, errors the means' standard errors. `epsilon` is
    accounted for what is attacked (labels, or features) under the adversary's eyes, `allowed` the most that this lets
    any attack on labels gain.
    """

    system: str
    defence: str
    attack: str
    adversary: str
    success: float | None = None
    success_low: float | None = None
    success_high: float | None = None
    success_error: float | None = None
    chance: float | None = None
    blind: float | None = None
    leakage: float | None = None
    low: float | None = None
    high: float | None = None
    leakage_error: float | None = None
    guesses: int = 0
    not_applicable: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    allowed: float | None = None


class ColumnRow(Row):
    """One feature: its mean squared error, that of predicting its mean, and R² (by chance 0) with its interval."""

    error: float
    mean_error: float
    value: float | None = None
    low: float | None = None
    high: float | None = None


class FeatureCell(Cell):
    """One attack on features, on a sensitive column of them or on membership: success is R² or the AUC (`measure`).

    `error` is the mean squared error, `mean_error` that of predicting every feature's mean, `columns` has both for each
    feature. `epsilon` is accounted for `unit`; for membership, under the eyes of who holds the model. `picture` holds
    originals above reconstructions, `map` the R² of each pixel. Membership has the `advantage` of saying *member*, and
    the share of members `found` where 1 % of the others are taken for members.
    """

    victim: int | None = None
    knows: tuple[str, ...]
    unit: Unit = Unit.FEATURES
    measure: str = "R²"
    error: float | None = None
    mean_error: float | None = None
    psnr: float | None = None
    ssim: float | None = None
    ssim_low: float | None = None
    ssim_high: float | None = None
    columns: tuple[ColumnRow, ...] = ()
    picture: Picture | None = None
    map: Picture | None = None
    advantage: float | None = None
    advantage_low: float | None = None
    advantage_high: float | None = None
    found: float | None = None
    found_low: float | None = None
    found_high: float | None = None

    @property
    def features_above(self) -> int:
        """How many features are told better than by their mean, their intervals say."""
        return sum(c.low is not None and c.low > 0 for c in self.columns)

    @property
    def best_feature(self) -> int | None:
        """The number of the one that is told best."""
        told = [k for k, c in enumerate(self.columns) if c.value is not None]
        return max(told, key=lambda k: self.columns[k].value or 0.0, default=None)


def worst_of(cells: Sequence[C], system: str, defence: str, attack: str) -> C | None:
    """The view through which this attack gains most, or one that says why none applies."""
    mine = [c for c in cells if (c.system, c.defence, c.attack) == (system, defence, attack)]
    open_ = [c for c in mine if c.leakage is not None]
    return max(open_, key=lambda c: c.leakage or 0.0) if open_ else next(iter(mine), None)


def applicable(cells: Sequence[Cell]) -> tuple[str, ...]:
    """The attacks that apply somewhere, in order."""
    return tuple(dict.fromkeys(c.attack for c in cells if c.leakage is not None))


def reasons_of(cells: Sequence[Cell]) -> dict[tuple[str, str], tuple[str, ...]]:
    """For each attack and reason why it does not apply, the systems."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for c in cells:
        if c.not_applicable is not None:
            found.setdefault((c.attack, c.not_applicable), {})[c.system] = None
    return {key: tuple(systems) for key, systems in found.items()}


class TrainedRow(Row):
    """One system under one defence."""

    system: str
    title: str
    engine: str
    defence: str
    settings: dict[str, Any]
    accuracy: float | None = None
    not_applicable: str | None = None


class AttackReport(Displayed, Row):
    """Everything one run of attacks found. The same configuration and seed give the same bytes."""

    stem: ClassVar[str] = "attacks"
    schema_version: str = "attacks/1"
    tool_version: str
    seed: int
    confidence: float
    seeds: int
    labels_per_class: int
    data: dict[str, Any]
    trained: tuple[TrainedRow, ...]
    cells: tuple[Cell, ...]
    features: tuple[FeatureCell, ...] = ()
    limits: tuple[str, ...] = ()
    correction: Correction = "holm"
    """For the number of tests that the limits are held to."""
    tests: int = 0
    breaches: tuple[Breach, ...] = ()
    nearly: int = 0
    """Tests that break a limit by their own interval, but not after the correction."""

    def held_to(self, limits: Sequence[Limit], correction: Correction) -> AttackReport:
        """The same report with these limits, and what breaks them."""
        cells = [*self.cells, *self.features]
        found, tests, nearly = judged(
            limits, cells, seeds=self.seeds, confidence=self.confidence, correction=correction
        )
        words = {"limits": tuple(map(str, limits)), "correction": correction}
        return self.model_copy(update=words | {"tests": tests, "breaches": found, "nearly": nearly})

    @property
    def broken(self) -> tuple[str, ...]:
        """A line for each limit, attack, system and defence."""
        return breach_lines(self.breaches)

    @property
    def limit_note(self) -> str | None:
        """How the limits were judged; None without limits."""
        return limit_note(self.tests, self.nearly, self.correction, self.confidence) if self.limits else None

    @property
    def exit_code(self) -> int:
        return 1 if self.breaches else 0

    @property
    def headline(self) -> str:
        """The worst leak in one line."""
        worst = max((c for c in self.cells if c.leakage is not None), key=lambda c: c.leakage or 0.0, default=None)
        if worst is None or worst.leakage is None or worst.success is None:
            return "no attack applies"
        where = f"{worst.attack} on {worst.system}" + ("" if worst.defence == "none" else f" with {worst.defence}")
        return f"worst leak: {where}, {100 * worst.success:.1f} % of guesses right, {100 * worst.leakage:+.1f} points"

    def worst(self, system: str, defence: str, attack: str) -> Cell | None:
        """The label attack's view that gains most, or one that says why none applies."""
        return worst_of(self.cells, system, defence, attack)

    @property
    def attacks(self) -> tuple[str, ...]:
        """Those on labels that apply somewhere, in order."""
        return applicable(self.cells)

    @property
    def reasons(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """For each attack on labels and reason why it does not apply, the systems."""
        return reasons_of(self.cells)

    def to_json(self) -> str:
        """Canonical JSON: stable key order, two spaces, a final newline."""
        return json.dumps(json.loads(self.model_dump_json()), indent=2, ensure_ascii=False) + "\n"

    def save(self, folder: str | Path, formats: Sequence[str] = DEFAULT_FORMATS) -> list[Path]:
        """Write the matrix in these formats, and return the paths."""
        return save_result(self, Path(folder), formats)


def read_attacks(path: Path) -> AttackReport:
    """Read `attacks.json` back, or say what is wrong with it in one line."""
    return read_row(AttackReport, path, "attacks.json")
