"""What FDML can be told, and what it lets out."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from vflpriv.releases import Release, StateLeak
from vflpriv.schedules import Schedule
from vflpriv.training._mechanisms import NoNoise
from vflpriv.training._split_ledger import SplitSettings
from vflpriv.training._uplink_ledger import DEVICES, ONLOOKERS, uplink_releases
from vflpriv.training._uplinks import FEATURE_UNITS, UplinkSettings, uplink_mechanisms
from vflpriv.units import Unit

__all__ = ["FdmlSettings", "releases"]


class FdmlSettings(SplitSettings):
    """Settings of FDML; `embedding` and `top_hidden` are not used, since devices send logits and there is no top."""

    aggregation: Literal["sum"] = Field("sum", description="summed logits, always")


def releases(settings: UplinkSettings, schedule: Schedule) -> tuple[Release, ...]:
    """Logits up, their sum down, and the trained models.

    Devices own the labels, so that no release before a device's eyes is one of labels. Onlookers see logits of models
    that exact labels moved. The sum tells every device of the others' features; with noised logits it is
    post-processing of them.
    """
    down = NoNoise(depends_on=frozenset() if settings.noise_std else FEATURE_UNITS).describe(
        kind="summed-logits",
        what="the devices' summed logits, server to device",
        rounds=np.ones(schedule.rounds, dtype=np.bool_),
        seen_by=DEVICES,
    )
    model = NoNoise(depends_on=frozenset(Unit)).describe(
        kind="models",
        what="the trained models, moved by exact labels",
        rounds=np.arange(schedule.rounds) == schedule.rounds - 1,
        seen_by=frozenset({"model"}),
    )
    up = uplink_releases(settings, schedule, kind="logits", sent=schedule.active)
    return (*up, _labels(settings, schedule), down, model)


def _labels(settings: UplinkSettings, schedule: Schedule) -> Release:
    """What logits tell onlookers of labels: nothing before a label's first round, then all that the clip allows."""
    mechanism = uplink_mechanisms(settings, schedule)["embeddings"]
    noised = settings.noise_std > 0
    bound = math.sqrt(schedule.devices) * mechanism.sensitivity[Unit.CLIENT] if noised else math.inf
    return Release(
        kind="logits",
        what="logits of models that exact labels moved",
        noise=mechanism.noise,
        sensitivity={Unit.LABEL: bound},
        rounds=np.ones(schedule.rounds, dtype=np.bool_),
        seen_by=ONLOOKERS,
        leak=StateLeak(carrier="the devices' models", sensitivity={Unit.LABEL: bound}) if noised else None,
    )
