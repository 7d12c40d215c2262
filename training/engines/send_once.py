"""Send once: devices send features that no other record has shaped, once; the server alone learns, with noise.

What devices see of the training is noised at every step and every step is counted, so that the guarantee is the
published accounting of differentially private gradient descent (Abadi et al. 2016), for all devices together and with
nothing secret but the noise. There is no guarantee against the server, which is sent the features as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from vflpriv.common.lazy import no_grad, torch
from vflpriv.common.registry import register
from vflpriv.core.claims import Claim
from vflpriv.core.data import BaseData
from vflpriv.core.engine import Contributions
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Batching, Schedule
from vflpriv.core.units import FEATURE_UNITS, Unit
from vflpriv.core.views import DOWNLINK_READERS, ON_THE_WIRE, UPLINK_READERS
from vflpriv.core.wire import Payload
from vflpriv.training.engine import Engine
from vflpriv.training.mechanisms.base import Mechanism, NoNoise, OuterMean, VectorMean
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.base import Model, descend, loss_gradient
from vflpriv.training.models.features.fixed import Identity
from vflpriv.training.models.features.joint import JointFeatures, JointKind, image_shape, scaled_to_one
from vflpriv.training.models.heads import Linear
from vflpriv.training.models.rows import CentredRows
from vflpriv.training.settings import NoiseChoice, NoisedSettings, WholeData

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SendOnce", "SendOnceSettings"]

_CENTRE = 2.0
"""Steps that the noised mean of the rows costs as much as."""


class SendOnceSettings(NoisedSettings):
    """Settings of send-once; the devices train nothing, so that their learning rate has no effect."""

    schedule: WholeData = Field(Batching.FULL, description="full, always: every record in every step")
    batch_size: int = Field(1, ge=1, description="not used: every step is over all records")
    features: Literal["raw", "random"] = Field(
        "raw",
        description="what devices send of each record: its features as they are, or the outputs of a bottom model "
        "whose random weights are never trained",
    )
    joint_features: JointKind = Field(
        "none",
        description="what the server makes of them before it learns: nothing, or wavelet moduli of the image that "
        "bands of rows make up (scattering), which depend on no other record",
    )
    grid: int = Field(4, ge=1, le=64, description="cells per side over which scattering averages")
    clip: float = Field(0.5, gt=0, description="C, the bound of the norm of each record's gradient")
    noise: NoiseChoice = Field(
        "calibrated",
        description="noise std by calibration to `epsilon` for `unit` and `protect`, or as given in noise_std",
    )
    protect: str = Field("devices(all)", description="the view that calibrated noise is for")
    centre: bool = Field(
        True,
        description="take the noised mean of all rows off each of them before learning: the first round is for it, and "
        "counts as much as two steps",
    )
    share_model: bool = Field(
        True, description="send all that is noised to the devices, who then hold a copy of the server's model"
    )
    encrypted_uplink: bool = Field(
        False, description="features travel encrypted: only the server reads them, nobody on the wire"
    )

    @field_validator("joint_features")
    @classmethod
    def _of_images(cls, value: str, info: ValidationInfo) -> str:
        if value == "scattering" and info.data.get("features") == "random":
            raise ValueError("none with features = 'random': scattering needs the images themselves")
        return value


@register("engine")
class SendOnce(Engine):
    """Full-batch gradient descent of a linear model at the server, each record's gradient clipped, each step noised.

    A record's row is scaled to norm 1, before and after the noised mean is taken off it, and has a constant beside it,
    for the biases.
    """

    name = "send-once"
    summary = "fixed features up once; the server alone learns, by clipped and noised steps"
    source = "DP-SGD (Abadi et al. 2016), on features that depend on no other record"
    settings_type = SendOnceSettings
    asynchronous = False
    settings: SendOnceSettings
    top: Model
    _rows: CentredRows | None
    """What the server learns from, once it has the features."""

    @classmethod
    def check(cls, settings: Any, data: BaseData) -> None:
        super().check(settings, data)
        if settings.joint_features == "scattering":
            image_shape([block.shape[1:] for block in data.blocks])

    # The training --------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        s, blocks = self.settings, self.data.blocks
        raw = s.features == "raw"
        models = [Identity(b[0].numel()) for b in blocks] if raw else self.device_models(self.embedding, activate=True)
        self.bank = Bank(models, self.stream("init"))
        self._join = JointFeatures(s.joint_features, [block.shape[1:] for block in blocks], grid=s.grid)
        self.top = Linear(self._width(), self.data.classes)
        device, replicas = self.torch_device, len(self.replicas)
        shapes = {**self.top.shapes, "centre": (self._width() - 1,)}
        self.top_parameters = {name: torch.zeros(replicas, *shape, device=device) for name, shape in shapes.items()}
        self._velocity: dict[str, Tensor] = {}
        mechanisms, kept = self.mechanisms(s, self.schedule), not s.share_model
        self.step_point = self.release_point("model-step", mechanisms["model-step"], internal=kept)
        if s.centre:
            centre = mechanisms["model-centre"]
            self.centre_point = self.release_point("model-centre", centre, stream="server-noise", internal=kept)
        self._rows = None

    def _width(self) -> int:
        """Of a record's row at the server, its constant included."""
        raw = self.settings.features == "raw"
        return 1 + self._join.size([block[0].numel() if raw else self.embedding for block in self.data.blocks])

    def uplinks(self, round_: int, members: Sequence[int], records: Tensor) -> Mapping[int, Payload]:
        """Features of all records in the first round, or when a training goes on; nothing where the server has them."""
        if self._rows is not None:
            return {}
        outputs, encrypted = self._outputs(records), self.settings.encrypted_uplink
        return {m: Payload("embeddings", {"embedding": outputs[m]}, encrypted=encrypted) for m in members}

    def _outputs(self, records: Tensor) -> list[Tensor]:
        """(R, B, width) of each device, expanded where replicas share them."""
        if self.settings.features == "random":
            # Each device by itself: in one pass over all, the features of one would lie in the memory of another's.
            parts = [self.bank.part([m]) for m in range(self.data.devices)]
            return [part.split(part.outputs(part.inputs(self.data, records)))[0] for part in parts]
        features = [self.data.features(m, records) for m in range(self.data.devices)]
        alike = [not self.data.differs(m) for m in range(self.data.devices)]
        rows = [
            x.flatten(1).unsqueeze(0) if shared else x.flatten(2) for x, shared in zip(features, alike, strict=True)
        ]
        return [x.expand(len(self.replicas), -1, -1) for x in rows]

    @no_grad
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        if uplinks:
            joint = self._joint([uplinks[m]["embedding"] for m in sorted(uplinks)])
            if self.settings.centre and not round_:
                return self._told(round_, Payload("model-centre", {"centre": self._learn_centre(joint, records)}))
            self._rows = self._seen(joint, len(self.replicas))
        return self._told(round_, Payload("model-step", {"step": self._step(round_, records)}))

    def _told(self, round_: int, payload: Payload) -> Mapping[int, Payload]:
        return dict.fromkeys(self.schedule.members(round_) if self.settings.share_model else (), payload)

    def _learn_centre(self, joint: Tensor, records: Tensor) -> Tensor:
        """(R, width) the noised mean of the rows, which are then moved by it."""
        rows = joint.expand(len(self.replicas), -1, -1)
        contributions = Contributions(round=0, party=self.data.devices, records=records, values=rows)
        centre = self.centre_point.vector(contributions, joint.shape[2])
        self.top_parameters["centre"].copy_(centre)
        self._rows = self._seen(joint, len(self.replicas))
        return centre

    def _step(self, round_: int, records: Tensor) -> Tensor:
        """Clip, noise and go down one step; (R, width · classes) the noised gradient."""
        s, weight = self.settings, self.top_parameters["weight0"]
        assert self._rows is not None
        logits = self._rows.times(weight)
        slopes = loss_gradient(logits, self.labels_of(records, lambda: logits), 1)
        contributions = Contributions(
            round=round_, party=self.data.devices, records=records, values=slopes, rows=self._rows
        )
        released = self.step_point.vector(contributions, weight[0].numel())
        descend(
            {"weight0": weight},
            {"weight0": released.unflatten(1, weight.shape[1:])},
            rate=s.server_rate,
            momentum=s.top_momentum,
            velocity=self._velocity,
            weight_decay=s.weight_decay,
        )
        return released

    def _joint(self, parts: Sequence[Tensor]) -> Tensor:
        """(R or 1, B, width) the features of all devices together, of norm 1; 1 where replicas share them."""
        joint = self._join(parts)
        return joint if self.settings.joint_features == "scattering" else scaled_to_one(joint)

    def _seen(self, joint: Tensor, replicas: int) -> CentredRows:
        """What the first replicas learn from, or predict from: the features, seen from the noised mean."""
        return CentredRows.of(joint[:replicas], self.top_parameters["centre"][:replicas])

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Devices that are sent a step take it in their copy of the server's model, which is equal to it."""

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        rows = self._seen(self._joint(self.bank.predict(blocks, replicas)), replicas)
        return rows.times(self.top_parameters["weight0"][:replicas])

    # Releases and claims -------------------------------------------------------------------------------------------

    @staticmethod
    def mechanisms(settings: SendOnceSettings, schedule: Schedule) -> Mapping[str, Mechanism]:
        std, clip, size = settings.known_std, settings.clip, schedule.batch_size
        step = OuterMean(noise_std=std, clip=clip, batch_size=size)
        centre = VectorMean(noise_std=std / clip / math.sqrt(_CENTRE), clip=1.0, batch_size=size)
        return {"model-step": step, **({"model-centre": centre} if settings.centre else {})}

    @staticmethod
    def releases(settings: SendOnceSettings, schedule: Schedule) -> tuple[Release, ...]:
        """Features up in the first round, the noised mean of them, and a noised step in every round after it."""
        first = np.arange(schedule.rounds) == 0
        mechanisms = SendOnce.mechanisms(settings, schedule)
        seen_by = DOWNLINK_READERS | {"model"} if settings.share_model else frozenset({"model"})
        up = NoNoise(depends_on=FEATURE_UNITS).describe(
            kind="embeddings",
            what="features of all records, device to server, once",
            rounds=first,
            seen_by=UPLINK_READERS - ON_THE_WIRE if settings.encrypted_uplink else UPLINK_READERS,
        )
        step = mechanisms["model-step"].describe(
            kind="model-step",
            what="the clipped and noised gradient of the server's model",
            rounds=~first if settings.centre else np.ones(schedule.rounds, dtype=np.bool_),
            seen_by=seen_by,
            fresh=True,
        )
        if not settings.centre:
            return (up, step)
        centre = mechanisms["model-centre"].describe(
            kind="model-centre",
            what="the noised mean of the records' rows",
            rounds=first,
            seen_by=seen_by,
            fresh=True,
        )
        return (up, replace(centre, sensitivity=_of_features(centre.sensitivity)), step)

    @staticmethod
    def claims(settings: SendOnceSettings, schedule: Schedule) -> tuple[Claim, ...]:
        """None: the configuration's own where the noise is calibrated, nothing where it is given."""
        return ()


def _of_features(bounds: Mapping[Unit, float]) -> dict[Unit, float]:
    """The bounds of a release that reads no label."""
    return {unit: bound for unit, bound in bounds.items() if unit != Unit.LABEL}
