"""Protection of what devices send: the settings of its clip and noise, its ledger entries and its claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator
from scipy.optimize import brentq, minimize_scalar

from vflpriv.core.budgets import mu_of
from vflpriv.core.claims import Claim
from vflpriv.core.releases import Release, StateLeak
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import FEATURE_UNITS, Unit
from vflpriv.core.views import DOWNLINK_READERS, UPLINK_READERS
from vflpriv.errors import InputError
from vflpriv.training.mechanisms.base import Mechanism, NoNoise
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip, Emptied, Unclipped
from vflpriv.training.settings import NoisedSettings

__all__ = [
    "UplinkSettings",
    "client_claims",
    "client_noise",
    "no_formula",
    "row_noise",
    "uplink_mechanisms",
    "uplink_releases",
]

_JOINT = (Unit.RECORD, Unit.ADD_REMOVE)
_OF_ONE_DEVICE = (Unit.FEATURES, Unit.CLIENT_ZERO, Unit.CLIENT)


class UplinkSettings(NoisedSettings):
    """Clip and noise of the uplink."""

    noise_std: float = Field(0.0, ge=0, description="std of the noise on every entry of the uplink")
    protection: Literal["none", "client", "embedding", "unclipped"] = Field(
        "none",
        validate_default=True,
        description="of the uplink: Frobenius clip of the batch matrix (client), L2 clip of each row (embedding), or "
        "noise without a clip, which no ε bounds (unclipped); or none",
    )
    clip: float = Field(1.0, gt=0, description="C, the radius of the clip")

    @property
    def emptied(self) -> Emptied:
        """What a device sends when its block is all zeros."""
        return Emptied.by(self.bottom, logits=self.aggregation_rule == "sum")

    @property
    def published_unit(self) -> Unit:
        """A device for the clip of all its rows (VIMADMM, Theorem 2), a record's features for that of each (VAFL)."""
        return Unit.CLIENT_ZERO if self.protection == "client" else Unit.FEATURES

    @field_validator("protection")
    @classmethod
    def _of_chosen_noise(cls, value: str, info: ValidationInfo) -> str:
        noise = info.data.get("noise", "given")
        if (value == "none" and noise != "given") or (value == "unclipped" and noise == "calibrated"):
            raise ValueError(f"client or embedding with noise = '{noise}': without a clip no noise keeps a budget")
        return value

    @property
    def assumes_bound(self) -> bool:
        """Whether the engine's paper takes unclipped embeddings to lie within `clip`."""
        return False

    @model_validator(mode="after")
    def _clipped(self) -> Self:
        if self.protection == "none" and self.noise_std > 0:
            raise ValueError(
                "noise_std needs protection = 'client' or 'embedding': without a clip it protects nothing ('unclipped' "
                "adds it all the same, and ε is infinite)"
            )
        return self


def uplink_mechanisms(settings: UplinkSettings, schedule: Schedule) -> Mapping[str, Mechanism]:
    """The uplink's mechanism, by the name `embeddings`."""
    std, clip, emptied = settings.known_std, settings.clip, settings.emptied
    if settings.protection == "client":
        return {"embeddings": ClientClip(noise_std=std, clip=clip, emptied=emptied)}
    size = max(schedule.batch_size, int(schedule.size.max(initial=0)))  # a Poisson batch can be larger than B
    if settings.protection == "embedding":
        return {"embeddings": EmbeddingClip(noise_std=std, clip=clip, batch_size=size, emptied=emptied)}
    if settings.protection == "unclipped":
        assumed = settings.assumes_bound
        return {"embeddings": Unclipped(noise_std=std, clip=clip, batch_size=size, emptied=emptied, assumed=assumed)}
    return {"embeddings": NoNoise(depends_on=FEATURE_UNITS)}


def client_claims(settings: UplinkSettings, schedule: Schedule) -> tuple[Claim, ...]:
    """VIMADMM Theorem 2, where the uplink carries its noise."""
    if settings.protection != "client" or settings.noise_std == 0:
        return ()
    return (
        Claim.of_epsilon(
            _theorem_2(settings.noise_std / settings.clip, schedule.rounds, settings.delta),
            settings.delta,
            key="vimadmm-client",
            source="VIMADMM",
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


def client_noise(settings: UplinkSettings, schedule: Schedule) -> float:
    """The noise std σC with which VIMADMM's Theorem 2 gives ε at δ for a whole device."""
    if settings.protection != "client":
        raise no_formula(settings)

    def excess(log_sigma: float) -> float:
        return _theorem_2(math.exp(log_sigma), schedule.rounds, settings.delta) - settings.epsilon

    try:
        log_sigma = float(brentq(excess, -20.0, 40.0, xtol=1e-12))
    except ValueError as error:
        raise InputError("epsilon", settings.epsilon, "a budget that Theorem 2 of VIMADMM can give") from error
    return math.exp(log_sigma) * settings.clip


def row_noise(settings: UplinkSettings, schedule: Schedule) -> float:
    """c = S·N_m√K/(μN), VAFL's eq. (15), with S = 2·`clip`; K are the samples of a device, as Theorem 6 has it."""
    if settings.protection in ("none", "client"):
        raise no_formula(settings)
    samples = int(schedule.active.sum(axis=0).max(initial=0)) * schedule.batch_size
    mu = mu_of(settings.epsilon, settings.delta)
    return 2 * settings.clip * schedule.batch_size * math.sqrt(samples) / (mu * schedule.records)


def no_formula(settings: UplinkSettings) -> InputError:
    """The error of an engine whose paper says nothing of this clip."""
    reason = f"no formula is published for this engine with protection = '{settings.protection}'"
    return InputError("noise", "paper", f"calibrated or given: {reason}")


def uplink_releases(
    settings: UplinkSettings, schedule: Schedule, *, kind: str, sent: NDArray[np.bool_]
) -> tuple[Release, ...]:
    """The ledger's entries for uplinks of which `sent`, (rounds, devices), says who sends when.

    Without noise they are exact in everything. With it:
    - a whole record has a row in the message of every device that sends: √(senders) times one device's sensitivity;
    - one device's row of a record, and one device, meet that device's messages alone (`Release.senders`);
    - a device's model was moved by its raw features, and later messages of that device read it, whichever records they
      carry: after a record's first round every one may differ by all that the clip allows (`StateLeak`).
    Everyone sees noised uplinks: directly, or through the gradients that are computed from them. Without a clip nothing
    bounds them, for any unit.
    """
    mechanism, what = uplink_mechanisms(settings, schedule)["embeddings"], f"{kind}, device to server"
    anyone = np.asarray(sent.any(axis=1))
    if not settings.noise_std:
        return (mechanism.describe(kind=kind, what=what, rounds=anyone, seen_by=UPLINK_READERS),)
    senders = math.sqrt(int(sent.sum(axis=1).max()))
    parts = (
        (_JOINT, None, senders, f"{what}; a record's rows of all devices"),
        (_OF_ONE_DEVICE, sent, 1.0, f"{what}; all that one device sends"),
    )
    seen_by = UPLINK_READERS | DOWNLINK_READERS
    whole = mechanism.describe(kind=kind, what=what, rounds=anyone, seen_by=seen_by, reaches_all=True)
    if settings.protection == "unclipped":
        leak, unbounded = _carried(mechanism, tuple(FEATURE_UNITS), 1.0), f"{kind} with noise but without a clip"
        return (replace(whole, what=f"{unbounded}, device to server", leak=leak),)
    return tuple(
        replace(
            whole,
            what=described,
            senders=of_device,
            sensitivity={unit: scale * mechanism.sensitivity[unit] for unit in units},
            leak=_carried(mechanism, units, scale),
        )
        for units, of_device, scale, described in parts
    )


def _carried(mechanism: Mechanism, units: tuple[Unit, ...], scale: float) -> StateLeak:
    """What the devices' own models add, for units that belong to one record; a whole block leaves nothing to add."""
    # Any two clipped batches are at most as far apart as those of two different blocks.
    bound = scale * mechanism.sensitivity[Unit.CLIENT]
    by_unit = {unit: bound for unit in units if unit.per_record}
    return StateLeak(carrier="a device's own model", sensitivity=by_unit, own=True)
