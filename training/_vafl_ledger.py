"""What VAFL can be told, what it lets out, and what its paper promises about it."""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from vflpriv.claims import Claim
from vflpriv.releases import Release
from vflpriv.schedules import Activation, Schedule
from vflpriv.training._async import AsyncSettings
from vflpriv.training._delays import senders
from vflpriv.training._downlinks import DownlinkSettings
from vflpriv.training._mechanisms import NoNoise
from vflpriv.training._settings import TopSettings
from vflpriv.training._split_ledger import gradient_releases
from vflpriv.training._uplinks import UplinkSettings, client_claims
from vflpriv.units import Unit

__all__ = ["TsyncSettings", "VaflBase", "VaflSettings", "claims", "releases"]


class VaflBase(UplinkSettings, DownlinkSettings, TopSettings):
    """What both kinds of VAFL can be told. Its random neurons are `hidden_noise` and `protection = "embedding"`."""

    aggregation: Literal["concat", "sum", "weighted"] = Field(
        "concat",
        description="concatenated embeddings, summed logits without a server model, or a learned linear combination",
    )
    combination_rate: float | None = Field(
        None, gt=0, description="learning rate of the combination's weights; the server's if not given"
    )
    regulariser: float = Field(0.0, ge=0, description="ℓ2 regulariser of the devices; 0.001 in the logistic runs")
    hidden_noise: float = Field(0.0, ge=0, description="c_l, std of the uniform noise at hidden layers, eq. (11b)")
    max_delay: int | None = Field(
        None, ge=1, description="D, rounds after which a stored embedding is asked for anew; unbounded if not given"
    )

    @model_validator(mode="after")
    def _neurons(self) -> Self:
        if self.hidden_noise and self.bottom != "mlp":
            raise ValueError("hidden_noise needs bottom = 'mlp': only its hidden layers are given noise")
        return self


class VaflSettings(VaflBase, AsyncSettings):
    """Settings of asynchronous VAFL."""


class TsyncSettings(VaflBase):
    """Settings of t-synchronous VAFL."""

    rates: tuple[float, ...] | None = Field(None, description="clock rate of each device; equal if not given")
    together: int | None = Field(None, ge=1, description="t, devices in a round; all of them if not given")

    @property
    def activation(self) -> Activation:
        """The first t clocks to ring."""
        return Activation.SEVERAL


def releases(settings: VaflBase, schedule: Schedule) -> tuple[Release, ...]:
    """Embeddings (or logits) up, active or asked; exact gradients down; and the trained models.

    A refreshed batch counts with all its records, although only those that are too old are asked for.
    """
    logits = settings.aggregation == "sum"
    sent = senders(schedule, settings.max_delay)
    found = gradient_releases(settings, schedule, up="logits" if logits else "embeddings", logits=logits, sent=sent)
    if settings.max_delay is None:
        return found
    request = NoNoise(depends_on=frozenset()).describe(
        kind="refresh-request",
        what="the ids of records whose embeddings are too old; they follow from the schedule alone",
        rounds=np.asarray((sent & ~schedule.active).any(axis=1)),
        seen_by=frozenset({"device", "devices", "eavesdropper", "outsider"}),
    )
    return (*found, request)


def claims(settings: VaflBase, schedule: Schedule) -> tuple[Claim, ...]:
    """Theorem 6 where embeddings are clipped and noised row by row, vimadmm.txt Theorem 2 where by the batch."""
    if settings.protection != "embedding" or not settings.noise_std:
        return client_claims(settings, schedule)
    queries = int(schedule.active.sum(axis=0).max(initial=0))
    diameter = 2 * settings.clip
    # vafl.txt eq. (15), c = O(N_m √K / (μN)), with the diameter S of the embeddings as its constant.
    mu = diameter * schedule.batch_size * math.sqrt(queries) / (settings.noise_std * schedule.records)
    return (
        Claim.of_mu(
            mu,
            settings.delta,
            key="vafl-features",
            source="vafl",
            where="Theorem 6",
            statement="last-layer noise c = O(N_m√K/(μN)) gives μ-GDP for the data of a device",
            unit=Unit.FEATURES,
            view="server",
        ),
    )
