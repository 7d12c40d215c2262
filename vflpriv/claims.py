"""Claims: published guarantees, as data."""

from __future__ import annotations

from dataclasses import dataclass

from vflpriv.tradeoff import epsilon_of, mu_of
from vflpriv.units import Unit
from vflpriv.views import Adversary

__all__ = ["Claim"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One guarantee: who says it, where, and what it says about which unit under whose eyes.

    A claim is stated in mu (Gaussian DP) or in (epsilon, delta) for a mechanism that is Gaussian; either way `mu`
    holds the trade-off curve it promises and `delta` the point at which epsilon is read off.
    """

    key: str
    source: str
    where: str
    statement: str
    unit: Unit
    adversary: Adversary
    mu: float
    delta: float

    @property
    def epsilon(self) -> float:
        """The claimed epsilon at `delta`."""
        return epsilon_of(self.mu, self.delta)

    @staticmethod
    def mu_for(epsilon: float, delta: float) -> float:
        """The mu of a claim that is stated as (epsilon, delta)."""
        return mu_of(epsilon, delta)
