"""Guarantees of a user's own, as a configuration or a ledger file holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError

__all__ = ["AttackClaimConfig", "ClaimConfig"]


class _Named(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    key: str = Field(pattern=r"^[\w.-]+$", description="short name")
    source: str = Field("this configuration", description="who says so")
    where: str = Field("claim", description="the place in the source")
    statement: str = Field("", description="what it says, in words")
    unit: Unit = Field(description="the unit of privacy")
    view: str = Field(description="who looks")

    @field_validator("view")
    @classmethod
    def _known(cls, view: str) -> str:
        return str(Adversary.parse(view))

    @property
    def names(self) -> dict[str, Any]:
        return {"key": self.key, "source": self.source, "where": self.where, "statement": self.statement}


class ClaimConfig(_Named):
    """A guarantee of the user's own: μ, or ε, at δ for a unit under an adversary's eyes.

    With `like` the numbers are those of one of the engine's claims, read for another unit or another view.
    """

    epsilon: float | None = Field(None, ge=0, description="ε at δ; give this, mu or like")
    mu: float | None = Field(None, gt=0, description="μ of Gaussian differential privacy; give this, epsilon or like")
    like: str | None = Field(None, description="key of the engine's claim whose ε, μ and δ these are")
    delta: float = Field(1e-5, gt=0, lt=1, description="δ at which ε is read")

    @model_validator(mode="after")
    def _one(self) -> ClaimConfig:
        if [self.epsilon, self.mu, self.like].count(None) != 2:
            raise ValueError("a claim needs one of epsilon, mu and like")
        return self

    def claim(self, own: Mapping[str, Claim]) -> Claim:
        """The claim as data, given the engine's by key."""
        if self.like is not None:
            if self.like not in own:
                raise InputError("claim.like", self.like, f"one of {', '.join(own)}" if own else "no claim to be like")
            other, view = own[self.like], Adversary.parse(self.view)
            return Claim(
                **self.names,
                unit=self.unit,
                adversary=view,
                epsilon=other.epsilon,
                delta=other.delta,
                mu=other.mu,
            )
        if self.mu is not None:
            return Claim.of_mu(self.mu, self.delta, unit=self.unit, view=self.view, **self.names)
        return Claim.of_epsilon(self.epsilon or 0.0, self.delta, unit=self.unit, view=self.view, **self.names)


class AttackClaimConfig(_Named):
    """A guarantee without an ε: an attack is right no more often than at this rate."""

    attack: str = Field(description="an attack that `vflpriv attacks` lists")
    rate: float = Field(ge=0, le=1, description="the share of its guesses that may be right")

    def claim(self, classes: int) -> SuccessClaim:
        """The claim as data, of the classes at hand."""
        view = Adversary.parse(self.view)
        return SuccessClaim(
            **self.names, unit=self.unit, adversary=view, attack=self.attack, rate=self.rate, classes=classes
        )
