"""Claims: published guarantees, as data."""

from __future__ import annotations

from dataclasses import dataclass

from vflpriv.tradeoff import epsilon_of, mu_of
from vflpriv.units import Unit
from vflpriv.views import Adversary

__all__ = ["Claim", "SuccessClaim"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One guarantee: who says it, where, and what it says about which unit under whose eyes.

    `mu` is the trade-off curve it promises, `epsilon` what it says at `delta`. A claim in (ε, δ) alone promises, for a
    Gaussian mechanism, the curve with that ε at that δ.
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
        """A claim stated as (ε, δ), δ > 0."""
        if not 0 < delta < 1:
            raise ValueError(f"Expected 0 < delta={delta} < 1: a claim with δ = 0 promises no Gaussian curve.")
        return cls(
            key=key,
            source=source,
            where=where,
            statement=statement,
            unit=unit,
            adversary=Adversary.parse(view),
            epsilon=epsilon,
            delta=delta,
            mu=mu_of(epsilon, delta),
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
