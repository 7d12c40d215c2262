"""Claims (published guarantees, as data) and verdicts on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from vflpriv.core.budgets import epsilon_of, mu_of, mu_of_pure
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

__all__ = ["MIN_TRIALS", "SEVERITY", "Claim", "Judgement", "SuccessClaim", "Verdict"]

_CERTAIN = 1 - 1e-12
"""A claim with such a δ promises nothing."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One guarantee: its source, the place in it, and its numbers for one unit against one adversary.

    A claim `stated` as μ-GDP promises the whole trade-off curve of `mu`, and whatever lies below it anywhere refutes
    it; `epsilon` is its value at `delta`. A claim stated as (ε, δ) promises that alone. Its `mu` is the curve with that
    ε at that δ: what it promises of a mechanism whose own curve is Gaussian, and of no other. With δ = 0 it is the
    Gaussian curve that touches the claim's own, which every such mechanism keeps.
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
    stated: Literal["mu", "epsilon"]

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
            stated="mu",
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
            stated="epsilon",
        )

    def of_replacement(self) -> Claim:
        """What a claim about absence promises of a record that is replaced: left out, and then another one added.

        Two steps cost (2ε, (1 + e^ε) δ) by group privacy, and 2μ where the claim is a trade-off curve.
        """
        if self.stated == "mu":
            epsilon, delta = epsilon_of(2 * self.mu, self.delta), self.delta
        else:
            epsilon, delta = 2 * self.epsilon, min(_CERTAIN, (1 + math.exp(min(700.0, self.epsilon))) * self.delta)
        return replace(self, unit=Unit.RECORD, epsilon=epsilon, delta=delta, mu=2 * self.mu)

    def promises_as_much_as(self, other: Claim) -> bool:
        """Whether the numbers of this claim, of whatever unit and view, keep those of the other.

        A claim of (ε, δ) says nothing of a whole trade-off curve, so it never keeps one.
        """
        if other.stated == "mu":
            return self.stated == "mu" and self.mu <= other.mu
        if self.stated == "mu":
            return other.delta > 0 and epsilon_of(self.mu, other.delta) <= other.epsilon
        return self.epsilon <= other.epsilon and self.delta <= other.delta


@dataclass(frozen=True, kw_only=True)
class SuccessClaim:
    """A guarantee without an ε: an attack is right no more often than at this rate.

    The rate holds for data with so many `classes`, or for any data if None; about other data the claim says nothing. A
    rate of 0 stands for a claim without a figure: what blind guesses reach is allowed in any case.
    """

    key: str
    source: str
    where: str
    statement: str
    unit: Unit
    adversary: Adversary
    attack: str
    rate: float
    classes: int | None

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"Expected 0 <= rate={self.rate} <= 1.")


MIN_TRIALS = 30
"""Trials in each world below which no test refutes a claim, unless a configuration sets another number."""


class Verdict(StrEnum):
    """The verdicts on a claim. "Not refuted" is never "verified"."""

    CONSISTENT = "consistent"
    VIOLATED = "violated"
    UNSUPPORTED = "unsupported"
    UNMEASURED = "unmeasured"
    """Within what is accounted from the ledger, but nothing was measured."""
    NOT_APPLICABLE = "not applicable"

    @property
    def icon(self) -> str:
        """One character for tables, readable without colour."""
        icons = {"violated": "✗", "unsupported": "!", "unmeasured": "?", "consistent": "✓", "not applicable": "–"}
        return icons[self.value]


SEVERITY = (
    Verdict.VIOLATED,
    Verdict.UNSUPPORTED,
    Verdict.UNMEASURED,
    Verdict.CONSISTENT,
    Verdict.NOT_APPLICABLE,
)
"""The gravest first."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim, and the sentence that a reviewer can quote."""

    verdict: Verdict
    reason: str
