"""The report of `vflpriv frontier`: at each ε the best accuracy that was reached, and what an audit says of it."""

from __future__ import annotations

from typing import Any, ClassVar

from vflpriv.common import formatting as f
from vflpriv.core.claims import Verdict
from vflpriv.experiments.curves import LearningCurve, Try
from vflpriv.report.rows import Displayed, Row

__all__ = ["Audit", "Entry", "FrontierReport", "FullSize", "Point", "Reduced"]


class Entry(Row):
    """One candidate at one ε: what its settings were chosen from, or why it cannot keep the budget."""

    key: str
    title: str
    epsilon: float
    tried: tuple[Try, ...] = ()
    accounted: float | None = None
    """The ε that is accounted with the chosen settings."""
    refusal: str | None = None

    @property
    def why_not(self) -> str | None:
        """The refusal, which names the setting without the section that it would be in."""
        return None if self.refusal is None else self.refusal.removeprefix(f"system.{self.key}.engine.")

    @property
    def validated(self) -> float | None:
        """The best accuracy on validation records."""
        return max(self.tried, key=Try.rank).accuracy if self.tried else None

    @property
    def finalists(self) -> tuple[Try, ...]:
        """The settings that were tried with more than one seed."""
        return tuple(attempt for attempt in self.tried if attempt.seeds > 1)


class Reduced(Row):
    """A setting that the audit of a point changes, since neither sensitivity nor noise depends on it."""

    setting: str
    point: str | int | float | bool | None
    audited: str | int | float | bool | None


class FullSize(Row):
    """Trials of a point without reduced settings, and with them: what either shows of the distance of the worlds.

    Distances are those of the releases on the wire, in units of the noise.
    """

    trials: int
    distance: float
    reduced_distance: float
    same: bool
    """Whether the two are the same; where they are not, nothing was reduced."""


class Audit(Row):
    """What trainings in two worlds measured of a point, with worst-case canaries."""

    verdict: Verdict
    accounted_mu: float | None
    measured_mu: float | None
    """A lower bound at the report's confidence."""
    trials: int
    records: int
    reduced: tuple[Reduced, ...] = ()
    full_size: FullSize | None = None
    accounted_epsilon: float | None = None
    """Where noised labels were drawn in two worlds instead: what they cost."""
    measured_epsilon: float | None = None
    """A lower bound on that, at the report's confidence."""
    draws: int | None = None
    """Noised labels that were drawn in each world."""

    @property
    def tightness(self) -> float | None:
        """Measured over accounted, ε of noised labels and μ elsewhere; None where one of them is missing."""
        if self.accounted_epsilon and self.measured_epsilon is not None:
            return self.measured_epsilon / self.accounted_epsilon
        if not self.accounted_mu or self.measured_mu is None:
            return None
        return self.measured_mu / self.accounted_mu


class Point(Row):
    """The candidate that was best on validation records at one ε, trained on all training records and tested."""

    epsilon: float
    accounted: float
    key: str
    title: str
    engine: str
    settings: dict[str, Any]
    mean: float
    low: float
    high: float
    curves: tuple[LearningCurve, ...]
    tuning_runs: int | None
    """Trainings that were counted against the budget; None if they were not counted."""
    audit: Audit | None = None


class FrontierReport(Displayed, Row):
    """The results of one run of `vflpriv frontier`. The same configuration, seed and machine give the same bytes."""

    stem: ClassVar[str] = "frontier"
    schema_version: str = "vflpriv-frontier/1"
    tool_version: str
    command: str
    versions: dict[str, str]
    hardware: dict[str, str | int]
    seed: int
    seeds: int
    confidence: float
    data: dict[str, Any]
    fitted: tuple[str, ...] = ()
    """What all training records decided of the features, which budgets take as public."""
    unit: str
    view: str
    delta: float
    validation: int
    """Records that settings were chosen by."""
    entries: tuple[Entry, ...]
    points: tuple[Point, ...]
    without: float | None = None
    """Test accuracy of the most accurate training without any protection; None if there was none."""

    @property
    def question(self) -> str:
        return f"{self.data.get('name', 'data')}: the {self.unit} unit, seen by {self.view}, δ = {f.delta(self.delta)}"

    @property
    def asked(self) -> Point | None:
        """The point whose ε is nearest to 1; None where there is no point."""
        return min(self.points, key=lambda p: abs(p.epsilon - 1.0), default=None)

    @property
    def choice(self) -> str:
        """What to use near ε = 1, in one sentence."""
        if (at := self.asked) is None:
            return "No candidate keeps any of these budgets; the reasons are in the table."
        interval = f" ({f.interval(at.low, at.high)})" if len(at.curves) > 1 else ""
        return f"At ε = {at.epsilon:g} use {at.title}: {f.percent(at.mean)} test accuracy{interval}."

    @property
    def advice(self) -> str:
        """What to use, in one or two sentences."""
        text, at = self.choice, self.asked
        if at is None:
            return text
        best = max(self.points, key=lambda p: p.mean)
        if best.epsilon != at.epsilon and best.mean > at.mean:
            text += f" More budget buys {f.percent(best.mean)} at ε = {best.epsilon:g}, with {best.title}."
        refused = {entry.title for entry in self.entries if entry.refusal} - {p.title for p in self.points}
        if refused:
            text += f" {len(refused)} candidate{'s' if len(refused) > 1 else ''} cannot keep a budget here."
        return text

    @property
    def headline(self) -> str:
        return f"{self.question}. {self.advice}"
