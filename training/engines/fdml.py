"""FDML: devices send logits, get their sum back, and own the labels (VIMADMM §VI-2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from vflpriv.common.lazy import no_grad, torch
from vflpriv.common.registry import register
from vflpriv.core.releases import Release, StateLeak
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import FEATURE_UNITS, Unit
from vflpriv.core.views import DOWNLINK_READERS, UPLINK_READERS
from vflpriv.core.wire import Payload
from vflpriv.training.engines.split import Split, SplitSettings
from vflpriv.training.mechanisms.base import NoNoise
from vflpriv.training.models.base import Mlp, Model
from vflpriv.training.models.heads import Headed
from vflpriv.training.uplink import UplinkSettings, uplink_mechanisms, uplink_releases

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Fdml", "FdmlSettings"]


class FdmlSettings(SplitSettings):
    """Settings of FDML; `top_hidden` is not used, since there is no top, nor is `embedding` without linear heads."""

    aggregation: Literal["sum"] = Field("sum", description="summed logits, always")
    heads: Literal["none", "linear"] = Field(
        "none",
        description="what devices' models end with: their last layer (none), or a linear head without a bias behind "
        "`embedding` outputs with ReLU (linear), as in VIMADMM's published code",
    )


@register("engine")
class Fdml(Split):
    """Synchronous and without a server model. Every device computes the gradient of the loss from the sum by itself.

    With cross-entropy it is softmax(sum) - onehot(y), the same for all devices. Labels that a label mechanism noised
    are what the devices are given.
    """

    name = "fdml"
    summary = "logits up, their sum down; the devices own the labels, there is no server model"
    source = "Hu et al. 2019; VIMADMM, §VI-2"
    settings_type = FdmlSettings
    label_holders = frozenset({"device", "devices"})
    settings: FdmlSettings

    def device_models(self, width: int, *, activate: bool, mlp: Callable[..., Model] = Mlp) -> list[Model]:
        if self.settings.heads == "none":
            return super().device_models(width, activate=activate, mlp=mlp)
        extractors = super().device_models(self.embedding, activate=True, mlp=mlp)
        return [Headed(own, self.embedding, width) for own in extractors]

    @staticmethod
    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        """Logits up, their sum down, and the trained models.

        Devices own the labels, so that nothing a device receives is a release of labels. Onlookers see logits of models
        that exact labels moved. The sum tells every device of the others' features; with noised logits it is
        post-processing of them.
        """
        down = NoNoise(depends_on=frozenset() if settings.noise_std else FEATURE_UNITS).describe(
            kind="summed-logits",
            what="the devices' summed logits, server to device",
            rounds=schedule.every_round,
            seen_by=DOWNLINK_READERS,
        )
        model = NoNoise(depends_on=frozenset(Unit)).describe_models("exact labels", schedule)
        up = uplink_releases(settings, schedule, kind="logits", sent=schedule.active)
        return (*up, _labels(settings, schedule), down, model)

    @no_grad
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        received = self._held.of(records, {m: sent["embedding"] for m, sent in uplinks.items()})
        total = torch.stack(list(received)).sum(0)
        return {m: Payload("summed-logits", {"logits": total}) for m in uplinks}

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        # All devices are sent the same sum and know the same labels: the gradient is computed once for all of them.
        gradient = self._slope(next(iter(replies.values()))["logits"], records)
        self._step([gradient.repeat(len(group), 1, 1) for group in self._part.groups])


def _labels(settings: UplinkSettings, schedule: Schedule) -> Release:
    """What logits tell onlookers of a label: nothing before its first round, then all that the clip allows."""
    mechanism = uplink_mechanisms(settings, schedule)["embeddings"]
    noised = settings.noise_std > 0
    bound = math.sqrt(schedule.devices) * mechanism.sensitivity[Unit.CLIENT] if noised else math.inf
    return Release(
        kind="logits",
        what="logits of models that exact labels moved",
        noise=mechanism.on_grid,
        sensitivity={Unit.LABEL: bound},
        rounds=schedule.every_round,
        seen_by=UPLINK_READERS,
        leak=StateLeak(carrier="the devices' models", sensitivity={Unit.LABEL: bound}) if noised else None,
    )
