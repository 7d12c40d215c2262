"""What ZOO-VFL, its relatives and CZOFO can be told, and what they let out.

No claims with an ε are declared: vfl-cascaded.txt Theorem V.1 ("can defend against existing privacy inference attacks
on VFL") speaks of attacks; `loss_claims` are the rates of its Table I. Losses leave without noise: for labels ε is
infinite unless the labels were noised.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from vflpriv.claims import Claim, SuccessClaim
from vflpriv.releases import Release
from vflpriv.schedules import Schedule
from vflpriv.training._async import AsyncSettings
from vflpriv.training._mechanisms import NoNoise
from vflpriv.training._uplink_ledger import DEVICES, uplink_releases
from vflpriv.training._uplinks import UplinkSettings
from vflpriv.training._zo_settings import ZoSettings
from vflpriv.units import Unit
from vflpriv.views import Adversary

__all__ = [
    "CzofoSettings",
    "SynZooSettings",
    "ZooSettings",
    "czofo_releases",
    "loss_claims",
    "no_claims",
    "pair_kind",
    "zoo_releases",
]

_LABEL_UNITS = frozenset({Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE})


class SynZooSettings(UplinkSettings, ZoSettings):
    """Settings of synchronous ZOO-VFL; μ = 1e-3 is the paper's."""

    aggregation: Literal["concat", "sum"] = Field(
        "concat", description="concatenated embeddings under a server model, or summed logits without one"
    )
    smoothing: float = Field(1e-3, gt=0, description="μ, the step of the finite difference")
    direction: Literal["sphere", "gaussian"] = Field(
        "sphere", description="uniform on the unit sphere with φ(d) = d, or N(0, I) with φ(d) = 1"
    )


class ZooSettings(AsyncSettings, SynZooSettings):
    """Settings of ZOO-VFL and VFL-Cascaded."""


class CzofoSettings(AsyncSettings, SynZooSettings):
    """Settings of VFL-CZOFO; n = 5 is that of the DPZV paper."""

    perturbations: int = Field(5, ge=1, le=100_000, description="n, perturbed embeddings a record and round")


def no_claims(settings: UplinkSettings, schedule: Schedule) -> tuple[Claim, ...]:
    """None with an ε; see above."""
    return ()


def loss_claims(settings: UplinkSettings, schedule: Schedule) -> tuple[SuccessClaim, ...]:
    """Theorem V.1 with the figures of Table I: direct label inference from losses, on MNIST's ten classes."""
    statement = "losses in place of gradients defend against existing label inference: direct inference is right in "
    found = (
        ("device", 0.117, "11.7 ± 0.07 % of its guesses for a curious client"),
        ("eavesdropper", 0.1, "10.0 ± 0.1 % of its guesses for an eavesdropper"),
    )
    return tuple(
        SuccessClaim(
            key=f"losses-{view}",
            source="vfl-cascaded",
            where="Theorem V.1, Table I",
            statement=statement + figure,
            unit=Unit.LABEL,
            adversary=Adversary.parse(view),
            attack="label_zo_query",
            rate=rate,
            classes=10,
        )
        for view, rate, figure in found
    )


def pair_kind(settings: SynZooSettings) -> str:
    """What a device's two outputs are called on the wire."""
    return "logit-pair" if settings.aggregation == "sum" else "embedding-pair"


def zoo_releases(settings: SynZooSettings, schedule: Schedule, *, down: str) -> tuple[Release, ...]:
    """Two embeddings of each record up, the batch's mean losses (or their difference) down, and the trained models.

    Each of the two is clipped and noised for itself, so that together they move by √2 times as much as one. Losses
    read features through the uplinks alone, and models, the devices' own too, move by losses alone: where the uplinks
    are noised, both are post-processing of them as far as features go.
    """
    noised = settings.noise_std > 0
    pairs = tuple(
        replace(
            one,
            sensitivity={unit: math.sqrt(2) * bound for unit, bound in one.sensitivity.items()},
            seen_by=one.seen_by | {"model"} if noised else one.seen_by,
            leak=None,
        )
        for one in uplink_releases(settings, schedule, kind=pair_kind(settings), sent=schedule.active)
    )
    units = _LABEL_UNITS if noised else frozenset(Unit)
    return *pairs, *_losses_and_models(schedule, down, "mean losses of the batch", units, units)


def czofo_releases(settings: CzofoSettings, schedule: Schedule) -> tuple[Release, ...]:
    """Embeddings and their perturbations up, per-record loss differences down, and the trained models.

    The perturbations are added to the embedding that leaves, noise included: they tell nothing more. Back-propagation
    reads raw features, so a device's model carries a record without noise into the rows of all later batches.
    """
    kind = "logits" if settings.aggregation == "sum" else "embeddings"
    ups = uplink_releases(settings, schedule, kind=kind, sent=schedule.active)
    read = _LABEL_UNITS if settings.noise_std > 0 else frozenset(Unit)
    what = "loss differences of each record"
    return *ups, *_losses_and_models(schedule, "loss-differences", what, read, frozenset(Unit))


def _losses_and_models(
    schedule: Schedule, kind: str, what: str, read: frozenset[Unit], trained: frozenset[Unit]
) -> tuple[Release, Release]:
    every, last = np.ones(schedule.rounds, dtype=np.bool_), np.arange(schedule.rounds) == schedule.rounds - 1
    down = NoNoise(depends_on=read).describe(kind=kind, what=f"{what}, server to device", rounds=every, seen_by=DEVICES)
    model = NoNoise(depends_on=trained).describe(
        kind="models", what="the trained models, moved by exact losses", rounds=last, seen_by=frozenset({"model"})
    )
    return down, model
