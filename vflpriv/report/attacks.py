"""The report of `vflpriv attack`: what each attack learns from each system under each defence, and broken limits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from pydantic import Field

from vflpriv.common import formatting as f
from vflpriv.core.units import Unit
from vflpriv.report.formats import DEFAULT_FORMATS, save_result
from vflpriv.report.rows import Produced, Row, read_row

__all__ = [
    "CORRECTIONS",
    "ONLY_STATIC",
    "AttackReport",
    "Breach",
    "Cell",
    "ColumnRow",
    "Contest",
    "Correction",
    "FeatureCell",
    "IntegrityCell",
    "TrainedRow",
    "applicable",
    "breach_lines",
    "contests_of",
    "limit_note",
    "read_attacks",
    "reasons_of",
    "worst_of",
]

Correction = Literal["holm", "none"]
CORRECTIONS: tuple[Correction, ...] = ("holm", "none")
Picture = Annotated[str, Field(pattern=r"^data:image/png;base64,[A-Za-z0-9+/=]*$")]
C = TypeVar("C", bound="Cell")
ONLY_STATIC = (
    "† stops static attacks alone: the best of them gains nothing for sure (its interval reaches zero), or at most "
    "half of what the best gains without the defence; the interval of the best attack that knows the defence lies "
    "above zero and above that of the best static one"
)
"""The legend of the mark † of `Contest.only_static`."""


class Breach(Row):
    """A broken limit: one attack through one view of one system, whose mean over seeds lies significantly above it."""

    limit: str
    system: str
    defence: str
    attack: str
    adversary: str
    measure: str = "share"
    """What the limit is on: the share of right guesses, or R², or the AUC."""
    low: float
    """The low end of the cell's own interval."""
    p_adjusted: float
    """The p-value of the mean being at most the limit: two-sided, as the interval is; adjusted by the correction."""

    @property
    def sentence(self) -> str:
        """The limit, what breaks it, and by how much."""
        where = f"{self.attack} on {self.system}, defence {self.defence}, seen by {self.adversary}"
        return f"{self.limit}: {where}: {self.least} or more (p = {f.p_value(self.p_adjusted)})"

    @property
    def least(self) -> str:
        """The low end of the interval with its unit."""
        return f"{100 * self.low:.1f} %" if self.measure == "share" else f"{self.low:.3f} of {self.measure}"


def breach_lines(breaches: Sequence[Breach]) -> tuple[str, ...]:
    """One line per limit, attack, system and defence, with the views in which the limit is broken."""
    groups: dict[tuple[str, str, str, str], list[Breach]] = {}
    for b in breaches:
        groups.setdefault((b.limit, b.attack, b.system, b.defence), []).append(b)
    return tuple(
        f"{limit}: {attack} on {system}, defence {defence}: {max(views, key=lambda b: b.low).least} or more, seen by "
        + ", ".join(b.adversary for b in views)
        for (limit, attack, system, defence), views in groups.items()
    )


def limit_note(tests: int, more: int, correction: Correction, confidence: float) -> str:
    """How many tests the limits take, how they are corrected for their number, and how many more fail uncorrected."""
    level = f.percent(1 - confidence)
    if correction == "none":
        return f"limits: {tests} tests without a correction: each is a false alarm with a chance of at most {level}"
    note = f"limits: {tests} tests with Holm's correction: the chance of any false alarm is at most {level}"
    others = "1 more lies" if more == 1 else f"{more} more lie"
    return note if not more else f"{note}; {others} above a limit before the correction, but not after it"


class Cell(Row):
    """One attack through one view of one system under one defence: means over seeds, or why it does not apply.

    `leakage` is success beyond the better of `chance` (the commonest label) and `blind` (the same adversary without the
    protocol); `low` and `high` are the ends of its interval over seeds, errors are the means' standard errors.
    `epsilon` is the accounted budget of what is attacked (labels, or features) against this adversary, `allowed` the
    most that any attack on labels can gain under that budget. `adaptive` says whether the attack knows the defence.
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
    population: int | None = None
    """How many records those guessed about were drawn from at random; None where all are guessed about."""
    not_applicable: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    allowed: float | None = None
    adaptive: bool = False

    @property
    def attack_name(self) -> str:
        """The attack, and whether it knows the defence."""
        return f"{self.attack} (adaptive)" if self.adaptive else self.attack


class ColumnRow(Row):
    """One feature: its mean squared error, that of predicting its mean, and R² (chance 0) with its interval."""

    error: float
    mean_error: float
    value: float | None = None
    low: float | None = None
    high: float | None = None


class FeatureCell(Cell):
    """One attack on features, texts, a sensitive column or membership: success is R², a share of tokens or the AUC.

    `error` is the mean squared error, `mean_error` that of predicting every feature's mean; `columns` has both for each
    feature. `epsilon` is the accounted budget of `unit`; for membership, against the holder of the model. `picture`
    shows originals above reconstructions, `map` the R² of each pixel. For membership, `advantage` is the true-positive
    rate less the false-positive rate of the attack's answers, and `found` and `rarely_found` the shares of members
    that it finds where 1 %, and 0.1 %, of the non-members are taken for members. For texts, `exact` is the share of
    texts of which every token is right, and `rouge` their mean ROUGE-L.
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
    rarely_found: float | None = None
    rarely_found_low: float | None = None
    rarely_found_high: float | None = None
    exact: float | None = None
    exact_low: float | None = None
    exact_high: float | None = None
    rouge: float | None = None
    rouge_low: float | None = None
    rouge_high: float | None = None

    @property
    def features_above(self) -> int:
        """How many features are predicted better than by their mean: R² with an interval above 0."""
        return sum(c.low is not None and c.low > 0 for c in self.columns)

    @property
    def best_feature(self) -> int | None:
        """The index of the feature with the largest R²."""
        varying = [k for k, c in enumerate(self.columns) if c.value is not None]
        return max(varying, key=lambda k: self.columns[k].value or 0.0, default=None)


class IntegrityCell(Cell):
    """Dishonest devices that went after the model's predictions in a training of their own.

    Success is the share of test records that are predicted as the devices want it; `chance` and `blind` are the same
    shares of an honestly trained model, asked about records as they are and as the devices change them. `main` is the
    accuracy on records as they are, `main_honest` that without the attack.
    """

    main: float | None = None
    main_honest: float | None = None


def worst_of(cells: Sequence[C], system: str, defence: str, attack: str) -> C | None:
    """The cell of the view through which this attack leaks most, or one that says why it does not apply."""
    views = [c for c in cells if (c.system, c.defence, c.attack) == (system, defence, attack)]
    tried = [c for c in views if c.leakage is not None]
    return max(tried, key=lambda c: c.leakage or 0.0) if tried else next(iter(views), None)


class Contest(NamedTuple, Generic[C]):
    """A defence against attacks of two kinds: the cells in which those that do not know it, and those that do, leak
    most; and the cell in which the former leak most without a defence."""

    system: str
    defence: str
    static: C | None
    adaptive: C
    undefended: C | None

    @property
    def only_static(self) -> bool:
        """Whether the defence stops static attacks alone, by the rule that `ONLY_STATIC` states."""
        static, before = self.static, self.undefended
        if static is None or static.leakage is None or static.low is None or static.high is None:
            return False
        halved = before is not None and static.leakage <= (before.leakage or 0.0) / 2
        return (static.low <= 0 or halved) and (self.adaptive.low or 0.0) > max(0.0, static.high)


def contests_of(cells: Sequence[C]) -> tuple[Contest[C], ...]:
    """One contest for each system, defence and measure that an adaptive attack was tried on, in order."""
    groups: dict[tuple[str, str, str], list[C]] = {}
    for c in cells:
        if c.leakage is not None:
            groups.setdefault((c.system, c.defence, _measure(c)), []).append(c)
    contests = []
    for (system, defence, measure), here in groups.items():
        adaptive, static = (_most([c for c in here if c.adaptive is known]) for known in (True, False))
        if adaptive is not None:
            before = _most([c for c in groups.get((system, "none", measure), ()) if not c.adaptive])
            contests.append(Contest(system, defence, static, adaptive, before))
    return tuple(contests)


def _measure(cell: Cell) -> str:
    return cell.measure if isinstance(cell, FeatureCell) else "share"


def _most(cells: Sequence[C]) -> C | None:
    return max(cells, key=lambda c: c.leakage or 0.0, default=None)


def applicable(cells: Sequence[Cell]) -> tuple[str, ...]:
    """The attacks that apply to at least one system, in order."""
    return tuple(dict.fromkeys(c.attack for c in cells if c.leakage is not None))


def reasons_of(cells: Sequence[Cell]) -> dict[tuple[str, str], tuple[str, ...]]:
    """The systems to which an attack does not apply, by attack and reason."""
    systems: dict[tuple[str, str], dict[str, None]] = {}
    for c in cells:
        if c.not_applicable is not None:
            systems.setdefault((c.attack, c.not_applicable), {})[c.system] = None
    return {key: tuple(names) for key, names in systems.items()}


class TrainedRow(Row):
    """One system under one defence: its settings and test accuracy, or why the defence does not apply.

    The accuracy is the mean over seeds on held-out records, with its interval over the seeds.
    """

    system: str
    title: str
    engine: str
    defence: str
    settings: dict[str, Any]
    accuracy: float | None = None
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    not_applicable: str | None = None


class AttackReport(Produced):
    """The results of one run of `vflpriv attack`."""

    stem: ClassVar[str] = "attacks"
    schema_version: str = "attacks/1"
    seeds: int
    labels_per_class: int
    quick: bool = False
    """Whether defences were left out, and seeds, rounds and candidates capped (`vflpriv attack --quick`)."""
    affordable_loss: float = 0.05
    """The test accuracy, as a share, that a defence may cost and still be recommended."""
    data: dict[str, Any]
    trained: tuple[TrainedRow, ...]
    cells: tuple[Cell, ...]
    features: tuple[FeatureCell, ...] = ()
    integrity: tuple[IntegrityCell, ...] = ()
    limits: tuple[str, ...] = ()
    correction: Correction = "holm"
    """The correction for the number of tests."""
    tests: int = 0
    """How many tests the limits take: one per limit and cell."""
    breaches: tuple[Breach, ...] = ()
    nearly: int = 0
    """Tests that break a limit without the correction, but not with it."""

    @property
    def every_cell(self) -> tuple[Cell, ...]:
        """The cells of all attacks."""
        return (*self.cells, *self.features, *self.integrity)

    @property
    def broken(self) -> tuple[str, ...]:
        """One line per broken limit, attack, system and defence."""
        return breach_lines(self.breaches)

    @property
    def limit_note(self) -> str | None:
        """How the limits were tested; None without limits."""
        return limit_note(self.tests, self.nearly, self.correction, self.confidence) if self.limits else None

    @property
    def sample_note(self) -> str | None:
        """Which attacks guessed about a random sample of the records; None if none did."""
        samples = {c.attack: f"{f.sampled(c.guesses, c.population)} records" for c in self.cells if c.population}
        lines = [f"{attack} ({sample})" for attack, sample in samples.items()]
        return f"random samples of the records were attacked by {', '.join(lines)}" if lines else None

    @property
    def exit_code(self) -> int:
        return 1 if self.breaches else 0

    @property
    def headline(self) -> str:
        """The largest leak in one line."""
        worst = max((c for c in self.cells if c.leakage is not None), key=lambda c: c.leakage or 0.0, default=None)
        if worst is None or worst.leakage is None or worst.success is None:
            return "no attack applies"
        where = f"{worst.attack} on {worst.system}" + ("" if worst.defence == "none" else f" with {worst.defence}")
        success, leakage = f"{100 * worst.success:.1f} % of guesses right", f"{100 * worst.leakage:+.1f} points"
        return f"worst leak: {where}, {success}, {leakage} over the baseline"

    def worst(self, system: str, defence: str, attack: str) -> Cell | None:
        """The cell of the view through which this attack on labels leaks most."""
        return worst_of(self.by_variant.get((system, defence), ()), system, defence, attack)

    @property
    def by_variant(self) -> dict[tuple[str, str], list[Cell]]:
        """The cells of attacks on labels, by system and defence."""
        cells, groups = self._grouped
        return groups if cells is self.cells else _grouped(self.cells)[1]  # a copy may have other cells

    @cached_property
    def _grouped(self) -> tuple[tuple[Cell, ...], dict[tuple[str, str], list[Cell]]]:
        return _grouped(self.cells)

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attacks on labels that apply to at least one system, in order."""
        return applicable(self.cells)

    @property
    def contests(self) -> tuple[Contest[Cell], ...]:
        """Static and adaptive attacks on labels, by system and defence."""
        return contests_of(self.cells)

    @property
    def reasons(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """The systems to which an attack on labels does not apply, by attack and reason."""
        return reasons_of(self.cells)

    @property
    def left_out(self) -> dict[tuple[tuple[str, ...], str], tuple[str, ...]]:
        """The defences that do not apply and why, and the systems that this is so for."""
        systems: dict[tuple[str, str], list[str]] = {}
        for row in self.trained:
            if row.not_applicable is not None:
                systems.setdefault((row.defence, row.not_applicable), []).append(row.system)
        defences: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for (defence, why), who in systems.items():
            defences.setdefault((why, tuple(who)), []).append(defence)
        return {(tuple(names), why): who for (why, who), names in defences.items()}

    def save(self, folder: str | Path, formats: Sequence[str] = DEFAULT_FORMATS) -> list[Path]:
        """Write the matrix in these formats, and return the paths."""
        return save_result(self, Path(folder), formats)


def _grouped(cells: tuple[Cell, ...]) -> tuple[tuple[Cell, ...], dict[tuple[str, str], list[Cell]]]:
    """These cells, and the same by system and defence."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.system, cell.defence), []).append(cell)
    return cells, groups


def read_attacks(path: Path) -> AttackReport:
    """Read `attacks.json`; raises `InputError` with one line on what is wrong with it."""
    return read_row(AttackReport, path, "attacks.json")
