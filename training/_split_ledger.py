"""What split learning can be told, what it lets out, and what is promised about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from scipy.optimize import minimize_scalar

from vflpriv.claims import Claim
from vflpriv.ledger import Ledger
from vflpriv.schedules import Schedule
from vflpriv.training._base import EngineSettings
from vflpriv.training._mechanisms import ClientClip, EmbeddingClip, Mechanism, NoNoise
from vflpriv.units import Unit

__all__ = ["SplitSettings", "claims", "ledger", "mechanisms"]

_FEATURE_UNITS = frozenset(Unit) - {Unit.LABEL}
_LABEL_UNITS = frozenset({Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE})
_ONLOOKERS = frozenset({"server", "eavesdropper", "outsider"})
_DEVICES = frozenset({"device", "devices", "eavesdropper", "outsider"})


class SplitSettings(EngineSettings):
    """Settings of split learning."""

    aggregation: Literal["concat", "sum"] = Field(
        "concat", description="concatenated embeddings under a server model, or summed logits without one"
    )
    protection: Literal["none", "client", "embedding"] = Field(
        "none", description="of the uplink: Frobenius clip of the batch matrix, L2 clip of each row, or none"
    )
    clip: float = Field(1.0, gt=0, description="C, the radius of the clip")
    noise_std: float = Field(0.0, ge=0, description="std of the noise on every entry of the uplink")
    delta: float = Field(1e-5, gt=0, lt=1, description="δ at which ε is read")
    secure_noise: bool = Field(False, description="noise from the operating system instead of the seeded stream")

    @model_validator(mode="after")
    def _consistent(self) -> SplitSettings:
        if self.protection == "none" and self.noise_std > 0:
            raise ValueError("noise_std needs protection = 'client' or 'embedding': without a clip it protects nothing")
        return self


def mechanisms(settings: SplitSettings, schedule: Schedule) -> Mapping[str, Mechanism]:
    """The uplink's mechanism."""
    if settings.protection == "client":
        return {"embeddings": ClientClip(noise_std=settings.noise_std, clip=settings.clip)}
    if settings.protection == "embedding":
        size = schedule.batch_size
        return {"embeddings": EmbeddingClip(noise_std=settings.noise_std, clip=settings.clip, batch_size=size)}
    return {"embeddings": NoNoise(depends_on=_FEATURE_UNITS)}


def ledger(settings: SplitSettings, schedule: Schedule) -> Ledger:
    """Embeddings (or logits) up, exact gradients down, and the trained models.

    A gradient reads the other devices' features through their uplinks alone: where those are noised it is
    post-processing of them, otherwise it is exact in the features too. A device's own model read its raw features.
    """
    every = np.ones(schedule.rounds, dtype=np.bool_)
    last = np.arange(schedule.rounds) == schedule.rounds - 1
    sums, protected = settings.aggregation == "sum", settings.noise_std > 0
    up = mechanisms(settings, schedule)["embeddings"].describe(
        kind="logits" if sums else "embeddings",
        what=f"{'logits' if sums else 'embeddings'}, device to server",
        rounds=every,
        seen_by=_ONLOOKERS | _DEVICES if protected else _ONLOOKERS,
        reaches_all=protected,
    )
    down = NoNoise(depends_on=_LABEL_UNITS if protected else frozenset(Unit)).describe(
        kind="logit-gradient" if sums else "embedding-gradient",
        what="exact per-record gradients, server to device",
        rounds=every,
        seen_by=_DEVICES,
    )
    model = NoNoise(depends_on=frozenset(Unit)).describe(
        kind="models", what="the trained models, moved by exact gradients", rounds=last, seen_by=frozenset({"model"})
    )
    return Ledger(schedule=schedule, releases=(up, down, model))


def claims(settings: SplitSettings, schedule: Schedule) -> tuple[Claim, ...]:
    """vimadmm.txt Theorem 2 where the uplink carries its noise; split learning itself promises nothing."""
    if settings.protection != "client" or settings.noise_std == 0:
        return ()
    multiplier = settings.noise_std / settings.clip
    return (
        Claim.of_epsilon(
            _theorem_2(multiplier, schedule.rounds, settings.delta),
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
