"""The models of claims that users add: in a configuration, or in the ledger file of a recorded training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator, model_validator

from vflpriv.common.toml import Section
from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError

__all__ = ["AttackClaimConfig", "ClaimConfig"]


class _Claimed(Section):
    """What every claim has: its name, its source, the unit and the view."""

    key: str = Field(pattern=r"^[\w.-]+$", description="short name")
    source: str = Field("this configuration", description="who makes the claim")
    where: str = Field("claim", description="the place in the source")
    statement: str = Field("", description="the claim as a sentence; without one it is made of the other fields")
    unit: Unit = Field(description="the unit of privacy")
    view: str = Field(description="the adversary")

    @field_validator("view")
    @classmethod
    def _known(cls, view: str) -> str:
        return str(Adversary.parse(view))

    @property
    def names(self) -> dict[str, Any]:
        made = f"{self.promise} for one {self.unit}, seen by {self.view}"
        return {"key": self.key, "source": self.source, "where": self.where, "statement": self.statement or made}

    @property
    def promise(self) -> str:
        """What is promised, as a phrase."""
        raise NotImplementedError


class ClaimConfig(_Claimed):
    """A guarantee that the user states: μ, or ε at δ, for a unit under an adversary's view.

    With `like` the numbers are those of one of the engine's claims, for another unit or another view.
    """

    epsilon: float | None = Field(None, ge=0, description="ε at δ; give this, mu or like")
    mu: float | None = Field(None, gt=0, description="μ of Gaussian differential privacy; give this, epsilon or like")
    like: str | None = Field(None, description="key of the engine's claim whose ε, μ and δ these are")
    delta: float = Field(1e-5, gt=0, lt=1, description="δ at which ε is read")

    @property
    def promise(self) -> str:
        if self.like is not None:
            return f"as much as {self.like} promises"
        return f"μ ≤ {self.mu:g}" if self.mu is not None else f"ε ≤ {self.epsilon:g} at δ = {self.delta:g}"

    @model_validator(mode="after")
    def _one(self) -> ClaimConfig:
        if [self.epsilon, self.mu, self.like].count(None) != 2:
            raise ValueError("a claim needs one of epsilon, mu and like")
        return self

    def claim(self, engine_claims: Mapping[str, Claim]) -> Claim:
        """The claim; `engine_claims` are those of the engine by key, for `like`."""
        if self.like is not None:
            if self.like not in engine_claims:
                known = f"one of {', '.join(engine_claims)}" if engine_claims else "nothing: the engine makes no claim"
                raise InputError("claim.like", self.like, known)
            other, view = engine_claims[self.like], Adversary.parse(self.view)
            return Claim(
                **self.names,
                unit=self.unit,
                adversary=view,
                epsilon=other.epsilon,
                delta=other.delta,
                mu=other.mu,
                stated=other.stated,
            )
        if self.mu is not None:
            return Claim.of_mu(self.mu, self.delta, unit=self.unit, view=self.view, **self.names)
        return Claim.of_epsilon(self.epsilon or 0.0, self.delta, unit=self.unit, view=self.view, **self.names)


class AttackClaimConfig(_Claimed):
    """A guarantee without an ε: the success rate of an attack is at most this."""

    attack: str = Field(description="an attack that `vflpriv attacks` lists")
    rate: float = Field(ge=0, le=1, description="the share of its guesses that may be right")

    @property
    def promise(self) -> str:
        return f"{self.attack} is right in at most {100 * self.rate:g} %"

    def claim(self, classes: int) -> SuccessClaim:
        """The claim, for data with this number of classes."""
        view = Adversary.parse(self.view)
        return SuccessClaim(
            **self.names, unit=self.unit, adversary=view, attack=self.attack, rate=self.rate, classes=classes
        )
