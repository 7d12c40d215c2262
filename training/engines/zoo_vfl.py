"""ZOO-VFL: zeroth-order on both sides, asynchronous, two losses on the downlink; and what its relatives share with it.

As "Secure and Fast Asynchronous Vertical Federated Learning via Cascaded Hybrid Optimization" (Wang et al., here
VFL-Cascaded) describes it in §VI. Its Theorem V.1 ("can defend against existing privacy inference attacks on VFL")
gives no ε: it is a claim about attacks, with the rates of Table I. Losses leave without noise: for labels ε is infinite
unless the labels were noised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from vflpriv.common.lazy import no_grad
from vflpriv.common.registry import register
from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Payload
from vflpriv.training.engines.zeroth_order import Losses, ZoEngine, ZoSettings, losses_and_models
from vflpriv.training.models.finite_differences import Change, Direction, Directions, Shift, nearby
from vflpriv.training.settings import AggregationSettings, AsyncSettings
from vflpriv.training.uplink import UplinkSettings, row_noise, uplink_mechanisms, uplink_releases

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "LABEL_UNITS",
    "OneSidedEngine",
    "OneSidedSettings",
    "ZooSettings",
    "ZooVfl",
    "compared_claims",
    "zoo_releases",
]

LABEL_UNITS = frozenset({Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE})
"""The units that a value which reads labels, and features through noise only, depends on."""


class OneSidedSettings(AggregationSettings, UplinkSettings, ZoSettings):
    """Settings of engines that take one-sided finite differences; μ = 1e-3 is VFL-Cascaded's."""

    aggregation: Literal["concat", "sum"] = Field(
        "concat", description="concatenated embeddings under a server model, or summed logits without one"
    )
    smoothing: float = Field(1e-3, gt=0, description="μ, the step of the finite difference")
    direction: Literal["sphere", "gaussian"] = Field(
        "sphere", description="uniform on the unit sphere with φ(d) = d, or N(0, I) with φ(d) = 1"
    )

    @property
    def pair_kind(self) -> str:
        """The kind of message that holds a device's two outputs."""
        return "logit-pair" if self.aggregation == "sum" else "embedding-pair"


class ZooSettings(AsyncSettings, OneSidedSettings):
    """Settings of ZOO-VFL and VFL-Cascaded."""


class OneSidedEngine(ZoEngine):
    """h(w) and h(w + μu) up; w -= η φ(d)/μ [f(w + μu) - f(w)] u (VFL-Cascaded eq. 3). Subclasses compute the losses.

    u is one direction per round and device, over all of its parameters, uniform on the unit sphere with φ(d) = d or
    standard normal with φ(d) = 1: the same step up to scale.
    """

    settings: OneSidedSettings
    mechanisms = staticmethod(uplink_mechanisms)

    def setup(self) -> None:
        super().setup()
        s, models = self.settings, [*self.bank.models, self.top]
        self.directions = Directions(self.public_stream("directions"), models, self.schedule.turns, law=s.direction)
        self.uplink_point = self.release_point(s.pair_kind, self.mechanisms(s, self.schedule)["embeddings"])
        self._direction: dict[int, Direction] = {}

    @no_grad
    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        assert self.directions is not None
        self._direction[m] = self.directions.at(round_, m)
        outputs = nearby(self.bank.models[m], self.bottom_parameters[m], self.inputs(m, records))
        shift, clip = Shift(self._direction[m], self.settings.smoothing), self.uplink_point.mechanism.noiseless
        pair = {
            "embedding": clip(outputs.here().transpose(1, 2)),
            "perturbed": clip(outputs.ahead(shift).transpose(1, 2)),
        }
        return Payload(self.uplink_point.kind, self.uplink_point.rows(round_, m, records, pair))

    def step_device(self, round_: int, m: int, difference: Tensor) -> None:
        """Eq. (3), given f(w + μu) - f(w), (R,)."""
        direction = self._direction.pop(m)
        self.move(round_, m, direction, difference * (direction.factor / self.settings.smoothing))

    @staticmethod
    def claims(settings: UplinkSettings, schedule: Schedule) -> tuple[Claim, ...]:
        """None with an ε: Theorem V.1 speaks of attacks (`success_claims`)."""
        return ()

    @staticmethod
    def success_claims(settings: UplinkSettings, schedule: Schedule) -> tuple[SuccessClaim, ...]:
        """Theorem V.1 with the figures of Table I: direct label inference from losses, on MNIST's ten classes."""
        statement = (
            "losses in place of gradients defend against existing label inference: direct inference is right in "
        )
        table = (
            ("device", 0.117, "11.7 ± 0.07 % of its guesses for a curious client"),
            ("eavesdropper", 0.1, "10.0 ± 0.1 % of its guesses for an eavesdropper"),
        )
        return _about_texts(settings) + tuple(
            SuccessClaim(
                key=f"losses-{view}",
                source="VFL-Cascaded",
                where="Theorem V.1, Table I",
                statement=statement + figure,
                unit=Unit.LABEL,
                adversary=Adversary.parse(view),
                attack="label_zo_query",
                rate=rate,
                classes=10,
            )
            for view, rate, figure in table
        )


def _about_texts(settings: UplinkSettings) -> tuple[SuccessClaim, ...]:
    """Theorem V.1 where the device of §VI-A holds an encoder's embedding layer and sends a state for each token."""
    if settings.bottom != "transformer-embedding":
        return ()
    statement = (
        "the framework defends against existing privacy inference attacks: no figure is given for features, so that a "
        "curious server may read tokens as often as whoever always names the commonest one"
    )
    about = SuccessClaim(
        key="losses-tokens",
        source="VFL-Cascaded",
        where="Theorem V.1",
        statement=statement,
        unit=Unit.FEATURES,
        adversary=Adversary.parse("server"),
        attack="text_nearest",
        rate=0.0,
        classes=None,
    )
    return (about,)


def compared_claims(settings: UplinkSettings, schedule: Schedule) -> tuple[Claim, ...]:
    """With `noise = "paper"`: what DPZV takes for granted when it gives its baselines the noise of VAFL."""
    if settings.noise != "paper":
        return ()
    return (
        Claim.of_epsilon(
            settings.epsilon,
            settings.delta,
            key="vafl-formula",
            source="DPZV",
            where="§VII",
            statement="clipped embeddings with the noise of VAFL's Theorem 6 keep (ε, δ)",
            unit=Unit.FEATURES,
            view="server",
        ),
    )


def zoo_releases(settings: OneSidedSettings, schedule: Schedule, *, down: str) -> tuple[Release, ...]:
    """Two embeddings of each record up, the batch's mean losses (or their difference) down, and the trained models.

    Each of the two is clipped and noised by itself, so that together they move by √2 times as much as one. Losses read
    features through the uplinks alone, and models, the devices' own too, move by losses alone: where the uplinks are
    noised, both are post-processing of them as far as features go.
    """
    noised = settings.noise_std > 0
    pairs = tuple(
        replace(
            single,
            sensitivity={unit: math.sqrt(2) * bound for unit, bound in single.sensitivity.items()},
            seen_by=single.seen_by | {"model"} if noised else single.seen_by,
            leak=None,
        )
        for single in uplink_releases(settings, schedule, kind=settings.pair_kind, sent=schedule.active)
    )
    units = LABEL_UNITS if noised else frozenset(Unit)
    return *pairs, *losses_and_models(schedule, down, "mean losses of the batch", units, units)


@register("engine")
class ZooVfl(OneSidedEngine):
    """The device sends h(w) and h(w + μu), the server replies the batch's mean loss with either; both step by eq. (3).

    The unperturbed embedding refreshes the server's table, and the server learns from the refreshed rows. Means divide
    by the nominal batch size B, also where a batch is short. The losses carry no noise, so that trials in two worlds
    have no likelihood ratio to score.
    """

    name = "zoo-vfl"
    summary = "zeroth-order on both sides, asynchronous; two exact losses on the downlink"
    source = "VFL-Cascaded, §VI"
    settings_type = ZooSettings
    asynchronous = True
    settings: ZooSettings
    server_update: ClassVar[str] = "zo-one-sided"

    published_noise = staticmethod(row_noise)
    claims = staticmethod(compared_claims)
    releases = staticmethod(partial(zoo_releases, down="losses"))

    @no_grad
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        ((m, pair),) = uplinks.items()
        step = self.server_step(round_, records, self.refresh(m, records, pair["embedding"]))
        change = Change(self.columns(m), pair["perturbed"] - pair["embedding"])
        perturbed = Losses(step.outputs.ahead(change=change)).of(step.labels)
        losses = {"loss": step.mean(step.plain), "perturbed": step.mean(perturbed)}
        self.learn(self.server_update, step)
        return {m: Payload("losses", losses)}

    @no_grad
    def update(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> None:
        self.step_device(round_, m, reply["perturbed"] - reply["loss"])
