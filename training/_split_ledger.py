"""What split learning can be told, and what it lets out."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vflpriv.releases import Release
from vflpriv.schedules import Schedule
from vflpriv.training._mechanisms import NoNoise
from vflpriv.training._settings import TopSettings
from vflpriv.training._uplink_ledger import DEVICES, uplink_releases
from vflpriv.training._uplinks import UplinkSettings
from vflpriv.units import Unit

__all__ = ["SplitSettings", "gradient_releases", "releases"]

_LABEL_UNITS = frozenset({Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE})


class SplitSettings(UplinkSettings, TopSettings):
    """Settings of split learning."""

    aggregation: Literal["concat", "sum"] = Field(
        "concat", description="concatenated embeddings under a server model, or summed logits without one"
    )


def releases(settings: SplitSettings, schedule: Schedule) -> tuple[Release, ...]:
    """Embeddings (or logits) up, exact gradients down, and the trained models."""
    sums = settings.aggregation == "sum"
    return gradient_releases(settings, schedule, up="logits" if sums else "embeddings", logits=sums)


def gradient_releases(
    settings: UplinkSettings,
    schedule: Schedule,
    *,
    up: str,
    logits: bool,
    sent: NDArray[np.bool_] | None = None,
) -> tuple[Release, ...]:
    """What an engine with embeddings up and exact gradients down lets out; `sent` says who sends when, if not `active`.

    A gradient reads the other devices' features through their uplinks alone: where those are noised it is
    post-processing of them, otherwise it is exact in the features too. A device's own model read its raw features.
    """
    last = np.arange(schedule.rounds) == schedule.rounds - 1
    uplinks = uplink_releases(settings, schedule, kind=up, sent=schedule.active if sent is None else sent)
    down = NoNoise(depends_on=_LABEL_UNITS if settings.noise_std else frozenset(Unit)).describe(
        kind="logit-gradient" if logits else "embedding-gradient",
        what="exact per-record gradients, server to device",
        rounds=np.ones(schedule.rounds, dtype=np.bool_),
        seen_by=DEVICES,
    )
    model = NoNoise(depends_on=frozenset(Unit)).describe(
        kind="models", what="the trained models, moved by exact gradients", rounds=last, seen_by=frozenset({"model"})
    )
    return (*uplinks, down, model)
