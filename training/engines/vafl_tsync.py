"""VAFL, t-synchronous: the server waits for t devices (VAFL, Algorithm 2)."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from vflpriv.common.registry import register
from vflpriv.core.schedules import Activation
from vflpriv.training.engines.vafl import VaflEngine, VaflSharedSettings
from vflpriv.training.settings import without_delays

__all__ = ["TsyncSettings", "VaflTsync"]


class TsyncSettings(VaflSharedSettings):
    """Settings of t-synchronous VAFL."""

    rates: tuple[float, ...] | None = Field(
        None, description="how often each device's clock rings, per second of the simulated clock; equal if not given"
    )
    together: int | None = Field(None, ge=1, description="t, devices in a round; all of them if not given")

    @field_validator("rates")
    @classmethod
    def _one_clock(cls, value: tuple[float, ...] | None, info: ValidationInfo) -> tuple[float, ...] | None:
        return without_delays(value, info)

    @property
    def activation(self) -> Activation:
        """The first t clocks to ring."""
        return Activation.SEVERAL


@register("engine")
class VaflTsync(VaflEngine):
    """The first t devices whose clocks ring send embeddings of the same batch; t = M is the synchronous baseline.

    With `aggregation = "weighted"` and all devices it is the VAFL that VIMADMM §VI compares with.
    """

    name = "vafl-tsync"
    summary = "VAFL whose server waits for t devices; all of them is the synchronous baseline"
    source = "VAFL, Algorithm 2"
    settings_type = TsyncSettings
    asynchronous = True

    @classmethod
    def devices_together(cls, settings: Any, devices: int) -> int:
        return settings.together or devices
