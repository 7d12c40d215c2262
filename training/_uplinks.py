"""The protection of what devices send: settings that any engine with embeddings on the uplink takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator
from scipy.optimize import minimize_scalar

from vflpriv.claims import Claim
from vflpriv.schedules import Schedule
from vflpriv.training._clips import ClientClip, EmbeddingClip
from vflpriv.training._emptied import Emptied
from vflpriv.training._mechanisms import Mechanism, NoNoise
from vflpriv.training._settings import EngineSettings
from vflpriv.units import Unit

__all__ = ["FEATURE_UNITS", "UplinkSettings", "client_claims", "uplink_mechanisms"]

FEATURE_UNITS = frozenset(Unit) - {Unit.LABEL}


class UplinkSettings(EngineSettings):
    """Clip and noise of the uplink."""

    protection: Literal["none", "client", "embedding"] = Field(
        "none", description="of the uplink: Frobenius clip of the batch matrix, L2 clip of each row, or none"
    )
    clip: float = Field(1.0, gt=0, description="C, the radius of the clip")
    noise_std: float = Field(0.0, ge=0, description="std of the noise on every entry of the uplink")
    delta: float = Field(1e-5, gt=0, lt=1, description="δ at which ε is read")
    secure_noise: bool = Field(False, description="noise from the operating system instead of the seeded stream")

    @property
    def emptied(self) -> Emptied:
        """What a device sends when its block is all zeros."""
        return Emptied.by(self.bottom, logits=getattr(self, "aggregation", "concat") == "sum")

    @model_validator(mode="after")
    def _clipped(self) -> Self:
        if self.protection == "none" and self.noise_std > 0:
            raise ValueError("noise_std needs protection = 'client' or 'embedding': without a clip it protects nothing")
        return self


def uplink_mechanisms(settings: UplinkSettings, schedule: Schedule) -> Mapping[str, Mechanism]:
    """The uplink's mechanism, by the name `embeddings`."""
    std, clip, emptied = settings.noise_std, settings.clip, settings.emptied
    if settings.protection == "client":
        return {"embeddings": ClientClip(noise_std=std, clip=clip, emptied=emptied)}
    if settings.protection == "embedding":
        size = max(schedule.batch_size, int(schedule.size.max(initial=0)))  # a Poisson batch can be larger than B
        return {"embeddings": EmbeddingClip(noise_std=std, clip=clip, batch_size=size, emptied=emptied)}
    return {"embeddings": NoNoise(depends_on=FEATURE_UNITS)}


def client_claims(settings: UplinkSettings, schedule: Schedule) -> tuple[Claim, ...]:
    """vimadmm.txt Theorem 2, where the uplink carries its noise."""
    if settings.protection != "client" or settings.noise_std == 0:
        return ()
    return (
        Claim.of_epsilon(
            _theorem_2(settings.noise_std / settings.clip, schedule.rounds, settings.delta),
            settings.delta,
            key="vimadmm-client",
            source="vimadmm",
            where="Theorem 2",
            statement="Frobenius clip C and noise N(0, σ²C²) on every uplink give client-level (ε, δ) by RDP",
            unit=Unit.CLIENT_ZERO,
            view="server",
        ),
    )


def _theorem_2(sigma: float, rounds: int, delta: float) -> float:
    """min over α of Tα/(2σ²) + log((α-1)/α) - (log δ + log α)/(α-1)."""

    def epsilon(log_order: float) -> float:
        alpha = 1 + math.exp(log_order)
        conversion = math.log((alpha - 1) / alpha) - (math.log(delta) + math.log(alpha)) / (alpha - 1)
        return rounds * alpha / (2 * sigma**2) + conversion

    return max(0.0, float(minimize_scalar(epsilon, bounds=(-8.0, 12.0), method="bounded").fun))
