"""What DPZV can be told."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from vflpriv.training._async import AsyncSettings
from vflpriv.training._zo_settings import ZoSettings
from vflpriv.views import Adversary

__all__ = ["DpzvSettings"]


class DpzvSettings(AsyncSettings, ZoSettings):
    """Settings of DPZV; C = 10 and λ = 1e-3 are the paper's."""

    smoothing: float = Field(1e-3, gt=0, description="λ, the step of the finite difference")
    clip: float = Field(10.0, gt=0, description="C, the bound of each record's finite difference")
    clip_rule: Literal["two-sided", "paper"] = Field(
        "two-sided", description="clamp to [-C, C], or the published min(δ, C), which bounds nothing"
    )
    server_update: Literal["sgd", "zo", "joint", "dp-sgd", "dp-zo"] = Field(
        "sgd", description="how the server learns: sgd and zo as published, the others with a guarantee"
    )
    noise: Literal["paper", "calibrated", "given"] = Field(
        "paper", description="noise std by Theorem VI.5, by calibration for `protect`, or as given in noise_std"
    )
    noise_std: float | None = Field(None, ge=0, description="std of the scalar's noise")
    epsilon: float = Field(1.0, gt=0, description="target ε of `noise`")
    delta: float = Field(1e-3, gt=0, lt=1, description="δ at which ε is read")
    protect: str = Field("device", description="the view that calibrated noise is for")
    server_clip: float = Field(1.0, gt=0, description="clip of the server's own update, for dp-sgd and dp-zo")
    server_noise_std: float = Field(0.0, ge=0, description="noise std of the server's own update")
    lean: bool = Field(False, description="regenerate directions parameter by parameter instead of holding them")
    secure_noise: bool = Field(False, description="noise from the operating system instead of the seeded stream")

    @model_validator(mode="after")
    def _consistent(self) -> DpzvSettings:
        if self.noise == "given" and self.noise_std is None:
            raise ValueError("noise_std must be given when noise = 'given'")
        if self.server_update in ("dp-sgd", "dp-zo") and self.server_noise_std == 0:
            raise ValueError(f"server_noise_std must be > 0 for server_update = '{self.server_update}'")
        return self

    @field_validator("protect")
    @classmethod
    def _view(cls, value: str) -> str:
        return str(Adversary.parse(value))
