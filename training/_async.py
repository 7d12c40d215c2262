"""What every asynchronous engine can be told about who is active when."""

from __future__ import annotations

from pydantic import Field, field_validator

from vflpriv.schedules import Activation
from vflpriv.training._settings import EngineSettings

__all__ = ["AsyncSettings"]

_ALONE = (Activation.CLOCKS, Activation.ROUND_ROBIN)


class AsyncSettings(EngineSettings):
    """One device a round. Mix it into the settings of an engine whose `asynchronous` is true."""

    activation: Activation = Field(Activation.CLOCKS, description="independent Poisson clocks, or round-robin")
    rates: tuple[float, ...] | None = Field(None, description="clock rate of each device; equal if not given")

    @field_validator("activation")
    @classmethod
    def _alone(cls, value: Activation) -> Activation:
        if value not in _ALONE:
            raise ValueError(f"activation must be clocks or round-robin: one device a round, not '{value}'")
        return value
