"""Claims: published guarantees, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vflpriv.core.tradeoff import epsilon_of, mu_of, mu_of_pure
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

__all__ = ["MIN_TRIALS", "SEVERITY", "Claim", "Judgement", "SuccessClaim", "Verdict"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One guarantee: who says it, where, and what it says about which unit under whose eyes.

    `mu` is the trade-off curve it promises, `epsilon` what it says at `delta`. A claim in (ε, δ) alone promises, for a
    Gaussian mechanism, the curve with that ε at that δ. A claim of pure ε (δ = 0) implies a Gaussian curve, the one
    that touches its own; whatever refutes that refutes the claim.
    """

    key: str
    source: str
    where: str
    statement: str
    unit: Unit
    adversary: Adversary
    epsilon: float
    delta: float
    mu: float

    @classmethod
    def of_mu(
        cls, mu: float, delta: float, *, key: str, source: str, where: str, statement: str, unit: Unit, view: str
    ) -> Claim:
        """A claim stated as μ-GDP."""
        return cls(
            key=key,
            source=source,
            where=where,
            statement=statement,
            unit=unit,
            adversary=Adversary.parse(view),
            epsilon=epsilon_of(mu, delta),
            delta=delta,
            mu=mu,
        )

    @classmethod
    def of_epsilon(
        cls, epsilon: float, delta: float, *, key: str, source: str, where: str, statement: str, unit: Unit, view: str
    ) -> Claim:
        """A claim stated as (ε, δ); with δ = 0, as pure ε."""
        if not 0 <= delta < 1:
            raise ValueError(f"Expected 0 <= delta={delta} < 1.")
        return cls(
            key=key,
            source=source,
            where=where,
            statement=statement,
            unit=unit,
            adversary=Adversary.parse(view),
            epsilon=epsilon,
            delta=delta,
            mu=mu_of(epsilon, delta) if delta > 0 else mu_of_pure(epsilon),
        )


@dataclass(frozen=True, kw_only=True)
class SuccessClaim:
    """A guarantee without an ε: who says that an attack is right no more often than at this rate, and where.

    The rate is that of data with so many `classes`; of other data it says nothing.
    """

    key: str
    source: str
    where: str
    statement: str
    unit: Unit
    adversary: Adversary
    attack: str
    rate: float
    classes: int

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"Expected 0 <= rate={self.rate} <= 1.")


# Verdicts: what is said of a claim.

MIN_TRIALS = 30
"""Trials in each world below which no test is said to refute a claim, unless a configuration says otherwise."""


class Verdict(StrEnum):
    """The four things that can be said of a claim. "Not refuted" is never "verified"."""

    CONSISTENT = "consistent"
    VIOLATED = "violated"
    UNSUPPORTED = "unsupported"
    NOT_APPLICABLE = "not applicable"

    @property
    def icon(self) -> str:
        """One character for tables, readable without colour."""
        return {"violated": "✗", "unsupported": "!", "consistent": "✓", "not applicable": "–"}[self.value]


SEVERITY = (Verdict.VIOLATED, Verdict.UNSUPPORTED, Verdict.CONSISTENT, Verdict.NOT_APPLICABLE)
"""The gravest first."""


@dataclass(frozen=True)
class Judgement:
    """One word, and the sentence that a reviewer can quote."""

    verdict: Verdict
    reason: str
