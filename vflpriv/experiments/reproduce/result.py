"""The report of `vflpriv reproduce`: a published table beside what this program reaches, with the curves behind it."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import Field

from vflpriv.experiments.curves import LearningCurve, Try
from vflpriv.report.rows import Displayed, Row

__all__ = ["MEASURES", "SHARES", "Figure", "Guarantee", "Reproduction", "TrainedLine"]

MEASURES = {
    "accuracy": "test accuracy, %",
    "auc": "test AUC, %",
    "rises": "rounds in which the Lagrangian rose",
    "megabytes": "MB on the wire until the target",
    "mebibytes": "MiB on the wire until the target",
    "seconds": "simulated seconds until the target",
}
"""What is compared, and how tables call it."""
SHARES = ("accuracy", "auc")
"""Those that are shares, in percent, at the end of a training; the others are counts."""
_LARGE = 1.0
"""A difference of more points than this is explained, or named as not explained."""
_LARGE_SHARE = 0.1
"""The same for amounts of which there is one seed, as a share of the paper's."""


class Guarantee(Row):
    """The ε that is printed beside a row, and the one that is accounted for what was trained."""

    claimed: float
    accounted: float
    delta: float
    unit: str
    view: str
    unprotected: tuple[str, ...] = ()
    """What that view sees of that unit without noise, where ε is infinite."""


class Figure(Row):
    """One printed figure beside ours: the mean over seeds and its interval; None where a target was not reached."""

    measure: str
    paper: float | None
    """None where the paper prints none, infinite where it prints that the target was never reached."""
    values: tuple[float | None, ...]
    mean: float | None
    low: float | None = None
    high: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's; None where one of the two is not a number."""
        if self.mean is None or self.paper is None or math.isinf(self.paper):
            return None
        return self.mean - self.paper

    @property
    def large(self) -> bool:
        """Whether it is off by more than a point; amounts that are no shares are off where their interval excludes the
        paper's or, of one seed, by more than a tenth of it. Never where the paper prints none."""
        if self.paper is None:
            return False
        if self.difference is None:
            return (self.mean is None) != math.isinf(self.paper)
        if self.measure in SHARES:
            return abs(self.difference) > _LARGE
        if self.measure == "rises":
            return self.difference != 0
        if len(self.values) == 1:
            return abs(self.difference) > _LARGE_SHARE * self.paper
        return self.low is not None and self.high is not None and not self.low <= self.paper <= self.high


class TrainedLine(Row):
    """One row of the table: what was trained, its figures, and a curve for each seed."""

    key: str
    title: str
    engine: str
    settings: dict[str, Any]
    figures: tuple[Figure, ...]
    guarantee: Guarantee | None = None
    explained: str = ""
    tried: tuple[Try, ...] = ()
    """What the settings were chosen from, on validation records; empty where there was no choice."""
    curves: tuple[LearningCurve, ...]

    @property
    def accuracy(self) -> float:
        """The mean test accuracy of the rounds that are reported."""
        return sum(curve.reached for curve in self.curves) / len(self.curves)

    @property
    def diverged(self) -> str:
        """Of which trainings outputs became infinite or NaN, so that they guess the first class; empty if of none."""
        rounds = [curve.diverged for curve in self.curves if curve.diverged is not None]
        if not rounds:
            return ""
        several = f"{len(rounds)} of {len(self.curves)} trainings " if len(self.curves) > 1 else ""
        return f"{several}diverged: outputs are no numbers by round {min(rounds):,}"

    @property
    def reason(self) -> str:
        """Why ours differs, as it is explained, or the conditions of a theorem that the training did not meet."""
        unmet = dict.fromkeys(condition for curve in self.curves for condition in curve.unmet)
        return self.explained or " ".join(unmet)

    @property
    def open(self) -> bool:
        """Whether a figure is off by more than a point and nobody has said why."""
        return not self.reason and any(figure.large for figure in self.figures)


class Reproduction(Displayed, Row):
    """The results of one run of `vflpriv reproduce`. The same profile, seeds and machine give the same bytes."""

    stem: ClassVar[str] = "reproduction"
    schema_version: str = "vflpriv-reproduction/1"
    tool_version: str
    name: str
    title: str
    source: str
    setting: str
    chosen: str
    command: str
    versions: dict[str, str]
    hardware: dict[str, str | int]
    seed: int
    seeds: int
    quick: bool
    smaller: dict[str, Any] = Field(default_factory=dict)
    """Settings that a quick look has in place of the published ones, beside its rounds."""
    share: float = 1.0
    """Of each row's rounds that were trained, where it was asked for; a quick look has its own."""
    drop: float | None = None
    """Trainings end so many points below their best accuracy on validation records, and report the best round; None
    where they train all rounds and report the last."""
    confidence: float
    target: float | None
    data: dict[str, Any]
    lines: tuple[TrainedLine, ...]

    @property
    def shortened(self) -> str:
        """What was left out of the trainings, in one sentence; empty if nothing was."""
        if self.share < 1:
            return f"Trained for {100 * self.share:.3g} % of the rounds."
        if not self.quick:
            return ""
        smaller = [f"{name} = {value}" for name, value in self.smaller.items()]
        return f"A quick look, with {', '.join(['fewer rounds than published', *smaller])}."

    @property
    def stopping(self) -> str:
        """Which round is reported and which rounds ε counts, where validation records decide; otherwise empty."""
        if self.drop is None:
            return ""
        reported = (
            "Reported is the round that is best on validation records; test records have no say in it. A training ends "
            f"when its accuracy on them is more than {self.drop:g} points below the best."
        )
        if not any(line.guarantee for line in self.lines):
            return reported
        return (
            f"{reported} The accounted ε is of all rounds up to that end, the most of any seed; what it tells "
            "about validation records when that is, is not counted."
        )

    @property
    def headline(self) -> str:
        """How many figures agree, in one line."""
        figures = [figure for line in self.lines for figure in line.figures if figure.paper is not None]
        if self.shortened:
            return f"{self.title}: {self.shortened[0].lower()}{self.shortened[1:-1]}"
        if not figures:
            return f"{self.title}: nothing is printed to compare with"
        shares = [figure for figure in figures if figure.measure in SHARES]
        near = sum(not figure.large for figure in shares or figures)
        unexplained = sum(line.open for line in self.lines)
        differ = "1 row differs" if unexplained == 1 else f"{unexplained} rows differ"
        unknown = f"; {differ} for no known reason" if unexplained else ""
        agree = "percentages are reached within a point" if shares else "figures agree"
        return f"{self.title}: {near} of {len(shares or figures)} printed {agree}{unknown}"
