"""Measurements: what an audit found out about what one view tells of one unit, in one shape for every audit.

A measurement bounds ε or μ of the program that ran from below, or gives them exactly. Claims are tested by it, the
report shows it, and every output format prints it, whoever made it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from vflpriv.core.claims import Claim
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

__all__ = ["EPSILON", "GAUSSIAN_NOISE", "KNOWN_NOISE", "MU", "Bound", "ClaimTest", "Errors", "Measurement"]

MU = "μ"
"""The measure of a figure that is compared with the claimed μ."""
EPSILON = "ε"
"""The measure of a figure that is compared with the claimed ε, at the claim's δ."""
KNOWN_NOISE = "noise of the declared size"
"""The basis of bounds that believe the ledger's noise: they decide nothing."""
GAUSSIAN_NOISE = "the noise is Gaussian, of whatever size"
"""The assumption under which a bound on μ refutes a claim of (ε, δ)."""


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

    @property
    def relation(self) -> str:
        """The sign between a measure and its figure."""
        return "=" if self.exact else "≥"

    @property
    def assumes_gaussian(self) -> bool:
        """Whether the figure that decides says something of the claim under Gaussian noise alone."""
        return GAUSSIAN_NOISE in self.assumptions
