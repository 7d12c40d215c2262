"""Audits as everyone else sees them: the base class, what an audit may ask for, its findings and its measurements.

An audit of another package derives from `Audit`, is registered under the entry point `vflpriv.audits`, says what it
needs of a source, and returns findings. It runs on every source that offers what it needs. Holm's correction, the
verdicts, the report and every output format treat a finding without knowing who made it. A measurement bounds ε or μ of
the program that ran from below, or gives them exactly, and claims are tested by it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from vflpriv.common.store import Steps
from vflpriv.common.tasks import Executor, InProcess, NoProgress, Progress
from vflpriv.core.claims import MIN_TRIALS, Claim, Verdict
from vflpriv.core.releases import Release
from vflpriv.core.systems import Offer, Source
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary, View

__all__ = [
    "AT_CLIP",
    "EPSILON",
    "GAUSSIAN_NOISE",
    "KNOWN_NOISE",
    "MU",
    "ROUNDING",
    "Audit",
    "AuditContext",
    "Bound",
    "ClaimTest",
    "Errors",
    "Finding",
    "Measurement",
    "NoProgress",
    "NoSettings",
    "Progress",
    "above",
    "measured",
    "untested",
]

MU = "μ"
"""The measure of a figure that is compared with the claimed μ."""
EPSILON = "ε"
"""The measure of a figure that is compared with the claimed ε, at the claim's δ."""
AT_CLIP = "at_clip"
"""The fact that the pair of a figure is the mechanism's own worst: a contribution at the clip."""
KNOWN_NOISE = "noise of the declared size"
"""The basis of bounds that believe the ledger's noise: they decide nothing."""
GAUSSIAN_NOISE = "the noise is Gaussian, of whatever size"
"""The assumption under which a bound on μ refutes a claim of (ε, δ)."""
ROUNDING = 1e-4
"""A figure that is computed and not estimated may lie above what is claimed by this share: trainings compute in single
precision."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """The errors of a test that was fixed before the trials.

    Trials of world 0 ("in") are the positives, trials of world 1 ("out") the negatives; a false positive is a trial of
    world 1 that the test takes for world 0.
    """

    false_positives: int
    negatives: int
    false_negatives: int
    positives: int

    def __post_init__(self) -> None:
        for errors, trials in (self.false_positives, self.negatives), (self.false_negatives, self.positives):
            if trials < 1 or not 0 <= errors <= trials:
                raise ValueError(f"Expected 0 <= errors={errors} <= trials={trials} and trials >= 1.")

    @property
    def total(self) -> int:
        """Errors in both worlds together."""
        return self.false_positives + self.false_negatives

    @property
    def trials(self) -> int:
        """Trials in both worlds together."""
        return self.negatives + self.positives

    @property
    def balanced(self) -> bool:
        """Whether both worlds had the same number of trials."""
        return self.negatives == self.positives


class Bound(NamedTuple):
    """A further bound from the same observations, which decides nothing."""

    measure: str
    """`MU` or `EPSILON`."""
    value: float
    basis: str
    """How it is computed, or what it assumes."""


class ClaimTest(NamedTuple):
    """What a measurement says of one claim: the figure that is compared with it, and its p-value."""

    measure: str
    figure: float
    p_value: float | None
    assumptions: tuple[str, ...] = ()
    """What this comparison assumes beside the assumptions of the measurement."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Measurement:
    """What one view tells of one unit: ε and μ, exact or bounded from below at a confidence.

    `decides` says which of the two is compared with the claim, and has the p-value. The other one is shown beside it.
    """

    unit: Unit
    view: Adversary
    method: str
    """How the observations were made into figures, such as "likelihood ratio"."""
    outcome: str
    """What was counted, as reports quote it."""
    decides: str
    """`MU` or `EPSILON`."""
    mu: float | None = None
    epsilon: float | None = None
    """At `delta`, of any mechanism."""
    delta: float = 0.0
    exact: bool = False
    """Whether the figures are exact; otherwise they are lower bounds."""
    confidence: float = 0.95
    """Of a bound."""
    assumptions: tuple[str, ...] = ()
    witness: str = ""
    """An input, a pair of worlds or a file that shows it again."""
    p_value: float | None = None
    """Of the claim that is tested, before any correction; None where it is no statistical test."""
    trials: int | None = None
    """Trials in each world, or guesses; None where they are not counted."""
    against: Callable[[Claim], ClaimTest] | None = None
    """The same test of any claim about this view, such as one of the accounted budget; None if there is none."""
    power: Callable[[float], float | None] | None = None
    """How likely a mechanism well beyond the claim is refuted at a level, by so many trials."""
    strength: int = -3
    """Among the tests of one claim the strongest is shown, chosen before any outcome is known."""
    tool: str = ""
    """What tests a claim so, in a few words: "trials in two worlds"."""
    description: str = ""
    """What the subject of the finding is, such as a kind of canary."""
    effort: str = ""
    """The trainings and guesses that it took."""
    errors: Errors | None = None
    curve: tuple[tuple[float, float], ...] = ()
    """Observed (false-positive rate, false-negative rate) over thresholds, for a plot only."""
    bounds: tuple[Bound, ...] = ()
    facts: Mapping[str, float | bool | str] = field(default_factory=dict)
    """What else is known of it, by name, for whoever reads the JSON."""
    notes: tuple[str, ...] = ()
    """Sentences about how the trials were made."""

    def __post_init__(self) -> None:
        if self.decides not in (MU, EPSILON):
            raise ValueError(f"Expected decides={self.decides!r} to be {MU!r} or {EPSILON!r}.")
        if (self.mu if self.decides == MU else self.epsilon) is None:
            raise ValueError(f"Expected a figure for decides={self.decides!r}, found mu={self.mu}, {self.epsilon=}.")

    @property
    def figure(self) -> float:
        """The figure that decides."""
        figure = self.mu if self.decides == MU else self.epsilon
        assert figure is not None
        return figure

    def claimed(self, claim: Claim) -> float:
        """What a claim allows of the figure that decides."""
        return claim.mu if self.decides == MU else claim.epsilon

    @property
    def proves(self) -> bool:
        """Whether it is no statistical test: its figure holds with certainty, and decides alone."""
        return self.p_value is None

    @property
    def relation(self) -> str:
        """The sign between a measure and its figure."""
        return "=" if self.exact else "≥"

    @property
    def assumes_gaussian(self) -> bool:
        """Whether the figure that decides says something of the claim under Gaussian noise alone."""
        return GAUSSIAN_NOISE in self.assumptions


@dataclass(frozen=True, eq=False, kw_only=True)
class Finding:
    """One result of one audit of one system: a test of a claim, or a check of a premise that claims rest on.

    * A test of a claim names it (`claim`) and has a `p_value`, the claim's own under this test before any correction.
      Holm's procedure over all such tests of the report decides whether it refutes the claim.
    * A check of a premise has no `claim`. If its verdict is "violated", so is every claim that rests on the premise:
      all claims, or those about one of `claim_units`, or of these those in `claim_keys`. A p-value of a premise is the
      audit's own affair, corrected by it already, and `verdict` is what follows from it.
    * A finding about a claim without a p-value speaks for itself: "violated" is a proof that the claim does not hold,
      "unmeasured" that something reaches the view which the audit cannot explain, so that the claim is not consistent,
      "not applicable" says in `sentence` why the audit could not test it. Where it has a measurement, that is a row of
      the claim, and refutes it by its figure alone.
    """

    audit: str
    subject: str
    """What was tested: a kind of message, a mechanism, a kind of canary."""
    verdict: Verdict
    """What this finding supports by itself, before the correction for the number of tests."""
    sentence: str
    """What was seen, as a report quotes it."""
    figure: float
    measure: str
    """What the figure is: `MU`, `EPSILON`, or words of the audit's own with the unit of measurement."""
    interval: tuple[float, float] | None = None
    """Of the figure, at the confidence of the context."""
    limit: float | None = None
    """The largest figure with which the premise holds, such as a declared bound; None where there is no one number."""
    claim: str | None = None
    """The key of the claim that it tests; None for a premise."""
    claim_units: frozenset[Unit] | None = None
    """The units whose claims rest on this premise; None if all claims do."""
    claim_keys: frozenset[str] | None = None
    """The claims about these units that rest on this premise, such as those of a paper on its own bound; None if all
    do."""
    unit: Unit | None = None
    adversary: Adversary | None = None
    p_value: float | None = None
    trials: int | None = None
    """Trials in each world, or guesses: with too few a test never refutes a claim. None where they are not counted."""
    note: str = ""
    """What the report adds to the sentence where the finding has a row of its own."""
    basis: str = ""
    """Of a bound: how it is known, "proved" for all inputs or "searched" without exceeding it."""
    reproduce: str = ""
    """The command that shows the finding again; the command of the whole audit if empty."""
    repair: str = ""
    """What to change where the premise is broken, as a sentence; the report's words for the audit if empty."""
    decides_alone: bool = False
    """Whether "unsupported" counts for the exit code even if no claim rests on the premise; "violated" always does."""
    measures: bool = True
    """Whether it looked at values that left; False for a premise that was only read off declarations."""
    undeclared: tuple[Release, ...] = ()
    """Releases that were found on the wire and that the ledger lacks; they count as part of it."""
    evidence: Any = None
    """The audit's own object, for its tests."""
    measurement: Measurement | None = None
    """What was measured, where the figure bounds ε or μ; `measuring` makes it of the other fields if need be."""

    @property
    def is_test(self) -> bool:
        """Whether it goes into Holm's procedure."""
        return self.claim is not None and self.p_value is not None and self.verdict is not Verdict.NOT_APPLICABLE

    @property
    def is_proof(self) -> bool:
        """Whether it compares a figure with a claim that needs no statistics."""
        proves = self.measurement is not None and self.measurement.proves
        return self.claim is not None and proves and not self.is_untested

    @property
    def compares(self) -> bool:
        """Whether it compares a claim with what was measured, by statistics or without."""
        return self.is_test or self.is_proof

    @property
    def is_untested(self) -> bool:
        """Whether it says no more than that a claim could not be tested."""
        return self.claim is not None and self.verdict is Verdict.NOT_APPLICABLE

    def measuring(self, claim: Claim, confidence: float) -> Finding:
        """The finding with its measurement: where it tests a claim by a bound on ε or μ, that bound is one."""
        if self.measurement is not None or not self.is_test or self.measure not in (MU, EPSILON):
            return self
        measurement = Measurement(
            unit=self.unit or claim.unit,
            view=self.adversary or claim.adversary,
            method=self.audit,
            outcome=self.sentence,
            decides=self.measure,
            mu=self.figure if self.measure == MU else None,
            epsilon=self.figure if self.measure == EPSILON else None,
            delta=claim.delta,
            confidence=confidence,
            p_value=self.p_value,
            trials=self.trials,
        )
        return replace(self, measurement=measurement)

    def bears_on(self, claim: Claim) -> bool:
        """Whether the claim would not hold if this finding's verdict is "violated"."""
        if self.claim is not None:
            return self.claim == claim.key
        named = self.claim_keys is None or claim.key in self.claim_keys
        return named and (self.claim_units is None or claim.unit in self.claim_units)


def measured(
    audit: str, subject: str, claim: Claim, measurement: Measurement, context: AuditContext, *, sentence: str = ""
) -> Finding:
    """The finding that a claim was tested by a measurement."""
    enough = measurement.trials is None or measurement.trials >= context.min_trials
    p = measurement.p_value
    refutes = (p is None or p <= context.verdict_alpha) and enough and above(measurement, claim)
    return Finding(
        audit=audit,
        subject=subject,
        verdict=Verdict.VIOLATED if refutes else Verdict.CONSISTENT,
        sentence=sentence or measurement.outcome,
        figure=measurement.figure,
        measure=measurement.decides,
        interval=(measurement.figure, measurement.figure if measurement.exact else math.inf),
        claim=claim.key,
        unit=measurement.unit,
        adversary=measurement.view,
        p_value=p,
        trials=measurement.trials,
        measurement=measurement,
    )


def above(measurement: Measurement, claim: Claim) -> bool:
    """Whether the figure of a measurement is above the claim."""
    claimed = measurement.claimed(claim)
    return measurement.figure > (claimed * (1 + ROUNDING) if measurement.proves else claimed)


def untested(audit: str, claim: Claim, reason: str) -> Finding:
    """The finding that an audit cannot test a claim, and why."""
    return Finding(
        audit=audit,
        subject=claim.key,
        verdict=Verdict.NOT_APPLICABLE,
        sentence=reason,
        figure=0.0,
        measure="tests",
        claim=claim.key,
        unit=claim.unit,
        adversary=claim.adversary,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class AuditContext:
    """Everything beside the system that an audit may ask for."""

    claims: tuple[Claim, ...] = ()
    """The system's claims that are to be tested."""
    confidence: float = 0.95
    """Of every interval and lower bound."""
    verdict_confidence: float = 0.999
    """A claim is called violated at a family-wise error of one minus this."""
    seed: int = 0
    min_trials: int = MIN_TRIALS
    """Trials in each world below which no claim is called violated."""
    systems: int = 1
    """Systems in the same report: their tests are corrected together."""
    settings: Any = None
    """The audit's own settings, of its `settings_type`; None stands for their defaults."""
    store: Path | None = None
    """The folder for finished trials, with which an interrupted audit goes on; None stores none."""
    witnesses: Path | None = None
    """The folder for inputs that show a finding again; None saves none."""
    progress: Progress = field(default_factory=NoProgress)
    executor: Executor = field(default_factory=InProcess)
    """Runs trainings that do not depend on each other."""
    steps: Steps = field(default_factory=Steps)
    """Computes what takes long in a recorded audit, or takes it from an earlier run."""
    views: Sequence[View] = ()
    """What adversaries see of a recorded training."""
    asked_views: Sequence[View] = ()
    """What adversaries are answered when they ask a recorded model about candidates for membership."""
    refuted: frozenset[str] = frozenset()
    """The keys of the claims that an audit before this one refuted with certainty."""
    reached: frozenset[str] = frozenset()
    """The keys of the claims that an exact figure of an audit before this one is nearly as large as."""
    attempts: Sequence[Any] = ()
    """What attacks on labels and on membership reached through these views."""

    @property
    def alpha(self) -> float:
        """The error of each interval."""
        return 1 - self.confidence

    @property
    def verdict_alpha(self) -> float:
        """The family-wise error of all tests of the report."""
        return 1 - self.verdict_confidence

    def published(self, source: Source) -> frozenset[str]:
        """The keys of the claims that are published for the source; the others are a user's own."""
        published = source.claims
        return frozenset(claim.key for claim in self.claims if claim in published)


class NoSettings(BaseModel, frozen=True, extra="forbid"):
    """The settings of an audit that has none."""


S = TypeVar("S", bound=Source)


class Audit(ABC, Generic[S]):
    """One way to check a source. It is made without arguments and keeps nothing between calls."""

    name: ClassVar[str]
    summary: ClassVar[str]
    order: ClassVar[int] = 100
    """Audits of smaller order run, and are reported, first; those of the same order by name."""
    needs: ClassVar[frozenset[Offer]] = frozenset()
    """What a source must offer. On one that does not, the report says under "not tested" what was missing."""
    topic: ClassVar[str] = ""
    """The name of the audit that checks the same of other kinds of sources, whose findings have that name, too."""
    settings_type: ClassVar[type[BaseModel]] = NoSettings
    """What the table of its name in the section `audit` may hold; `NAME = false` turns it off."""
    on_request: ClassVar[bool] = False
    """Whether it runs only where the section `audit` has its table, or `NAME = true`."""

    def refusal(self, source: S, context: AuditContext) -> str | None:
        """Why it says nothing about this source, or None. The report lists the reason as not tested."""
        del source, context
        return None

    def work(self, source: S, context: AuditContext) -> int:
        """How many replica-rounds `run` will tell `context.progress` of."""
        del source, context
        return 0

    @abstractmethod
    def run(self, source: S, context: AuditContext) -> Sequence[Finding]:
        """Audit the source."""
