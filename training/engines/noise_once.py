"""Noise once: features go up once, labels are drawn once, each with noise where it is asked for, and all else is free.

Whatever the server does with what was noised is post-processing of it (Dwork and Roth 2014, Proposition 2.1): it may
look at it as often as it likes, with any model. Randomised labels protect labels from all devices; noise on the
features protects these from the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from vflpriv.common.lazy import no_grad, torch
from vflpriv.common.random import Stream
from vflpriv.common.registry import register
from vflpriv.core.claims import Claim
from vflpriv.core.data import BaseData
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Batching, Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import DOWNLINK_READERS
from vflpriv.core.wire import Payload
from vflpriv.errors import InputError
from vflpriv.training.engine import Engine
from vflpriv.training.mechanisms.base import NoNoise
from vflpriv.training.mechanisms.labels import as_target
from vflpriv.training.mechanisms.uplink import Emptied
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.base import Mlp, Model, first_replicas, initialise, loss_gradient
from vflpriv.training.models.features.fixed import Cosines, Identity
from vflpriv.training.models.features.joint import JointFeatures, JointKind, image_shape
from vflpriv.training.models.features.principal import fitted, in_coordinates, shape_of
from vflpriv.training.models.passes import Sgd, constant, start
from vflpriv.training.settings import WholeData
from vflpriv.training.uplink import UplinkSettings, uplink_mechanisms, uplink_releases

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["NoiseOnce", "NoiseOnceSettings"]

_RIDGE = 1e-3
"""Added to every variance, of which the mean is 1."""
_COORDINATES = "coordinates"
_LABEL_UNITS = frozenset({Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE})


class NoiseOnceSettings(UplinkSettings):
    """Settings of noise-once; the devices train nothing, so that their learning rate has no effect."""

    schedule: WholeData = Field(Batching.FULL, description="full, always: every record in every round")
    batch_size: int = Field(
        500, ge=1, description="number of records in each of the server's steps; a round goes over all records"
    )
    frequencies: tuple[int, int] | None = Field(
        None,
        description="for image blocks: how many of the lowest frequencies of the cosine transform a device sends, down "
        "and across; its features as they are if not given",
    )
    joint_features: JointKind = Field(
        "none",
        description="what the server makes of the features before it learns: nothing, or wavelet moduli of the image "
        "that bands of rows make up (scattering)",
    )
    grid: int = Field(4, ge=1, le=64, description="cells per side over which scattering averages")
    components: int = Field(
        0,
        ge=0,
        description="number of principal axes of all records' features that the server learns from, each half "
        "whitened; 0 for the features themselves",
    )
    learner: Literal["descent", "means"] = Field(
        "descent",
        description="how the server learns: by steps down the loss (descent), or by the mean row of each class, the "
        "nearest of which says what class a record is of (means)",
    )
    server_rate: float = Field(0.3, gt=0, description="learning rate of the server's first step; it falls to 0")
    momentum: float = Field(0.9, ge=0, lt=1, description="heavy-ball momentum of the updates")
    share_model: bool = Field(True, description="tell the devices in every round how far the server's model has moved")

    @field_validator("learner")
    @classmethod
    def _linear(cls, value: str, info: ValidationInfo) -> str:
        if value == "means" and info.data.get("top_hidden"):
            raise ValueError("descent with top_hidden: means are a linear model")
        return value

    @property
    def emptied(self) -> Emptied:
        return Emptied.ZEROS

    @field_validator("frequencies")
    @classmethod
    def _some(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and min(value) < 1:
            raise ValueError("two numbers >= 1, such as [2, 8]")
        return value

    @field_validator("joint_features")
    @classmethod
    def _of_images(cls, value: JointKind, info: ValidationInfo) -> JointKind:
        if value == "scattering" and info.data.get("frequencies") is not None:
            raise ValueError("none with frequencies: scattering needs the images themselves")
        return value


@register("engine")
class NoiseOnce(Engine):
    """The server takes minibatch steps on features and labels that were noised before, or not at all.

    The order of the records is the same in every training: nothing rests on its being secret.
    """

    name = "noise-once"
    summary = "features up once, labels drawn once, noised where asked for; the server alone learns, freely"
    source = "post-processing of one release (Dwork and Roth 2014)"
    settings_type = NoiseOnceSettings
    asynchronous = False
    settings: NoiseOnceSettings
    top: Model
    _rows: Tensor | None
    """(R or 1, N, k) what the server learns from, once it has the features."""

    mechanisms = staticmethod(uplink_mechanisms)

    @classmethod
    def check(cls, settings: Any, data: BaseData) -> None:
        super().check(settings, data)
        shapes = [block.shape[1:] for block in data.blocks]
        if settings.joint_features == "scattering":
            image_shape(shapes)
        if settings.frequencies is not None and any(len(shape) != 2 for shape in shapes):
            sizes = ", ".join("x".join(map(str, shape)) for shape in shapes)
            raise InputError("frequencies", f"of blocks of {sizes}", "grey images (data.keep_shape = true), or none")

    # The training --------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        s, shapes = self.settings, [tuple(block.shape[1:]) for block in self.data.blocks]
        models = [self._model(shape) for shape in shapes]
        self.bank = Bank(models, self.stream("init"))
        self._join = JointFeatures(s.joint_features, shapes, grid=s.grid)
        width = self._join.size([model.width for model in models])
        self._components = min(s.components, width, self.data.records)
        self.top = Mlp((self._components or width, *s.top_hidden, self.data.classes), activate=False)
        coordinates = torch.zeros(len(self.replicas), *shape_of(width, self._components), device=self.torch_device)
        self.top_parameters = initialise(self.top, self.stream("init"), self.data.devices)
        for name in list(self.top.shapes)[-2:]:
            self.top_parameters[name].zero_()
        self.top_parameters[_COORDINATES] = coordinates
        self._velocity: dict[str, Tensor] = {}
        self._point = self.release_point("embeddings", self.mechanisms(s, self.schedule)["embeddings"])
        self._shuffled = Stream.of(0, "shuffles", [0], self.torch_device)
        self._rows = None

    @property
    def _learnt(self) -> dict[str, Tensor]:
        """The parameters that steps move."""
        return {name: self.top_parameters[name] for name in self.top.shapes}

    def _model(self, shape: tuple[int, ...]) -> Identity | Cosines:
        kept = self.settings.frequencies
        if kept is None:
            return Identity(int(np.prod(shape)))
        height, width = shape
        return Cosines((height, width), kept)

    @no_grad
    def uplinks(self, round_: int, members: Sequence[int], records: Tensor) -> Mapping[int, Payload]:
        """Features of all records in the first round."""
        if round_:
            return {}
        rows = {m: {"embedding": self._clipped(m, records)} for m in members}
        return {m: Payload("embeddings", self._point.rows(0, m, records, own)) for m, own in rows.items()}

    def _clipped(self, m: int, records: Tensor) -> Tensor:
        """(R, N, width) what device m would send without noise, expanded where replicas share it."""
        features = self.data.features(m, records)
        rows = features.flatten(2) if self.data.differs(m) else features.flatten(1).unsqueeze(0)
        sent = self._point.mechanism.noiseless(self.bank.models[m].apply({}, rows))
        return sent.expand(len(self.replicas), -1, -1)

    def _sent_before(self, records: Tensor) -> list[Tensor]:
        """What devices sent in the first round: the server of a training that goes on still has it."""
        sent = []
        for m in range(self.data.devices):
            rows = self._clipped(m, records)
            normals = self._point.noise.tensor(tuple(rows.shape[1:]), 0, m) if self.settings.noise_std else rows
            sent.append(self._point.mechanism.release(rows, normals))
        return sent

    @no_grad
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        if self._rows is None:
            sent = [uplinks[m]["embedding"] for m in sorted(uplinks)]
            joint = self._join(sent or self._sent_before(records))
            coordinates = fitted(joint, self._components)
            self.top_parameters[_COORDINATES].copy_(coordinates)
            self._rows = in_coordinates(joint, coordinates, self._components)
        before = _flat(self._learnt)
        if self.settings.learner == "means":
            self._take_means(records)
        else:
            self._descend(round_, records)
        payload = Payload("model-step", {"step": _flat(self._learnt) - before})
        return dict.fromkeys(self.schedule.members(round_) if self.settings.share_model else (), payload)

    def _descend(self, round_: int, records: Tensor) -> None:
        """One pass over all records; the learning rate falls evenly over all steps of all rounds."""
        s, size, number = self.settings, self.settings.batch_size, len(records)
        batches = self._shuffled.uniform(number, round_)[0].argsort().split(size)
        for step, batch in enumerate(batches, start=round_ * len(batches)):
            left = 1 - step / (len(batches) * self.schedule.rounds)
            self._step(batch, Sgd(rate=s.server_rate * left, momentum=s.top_momentum, weight_decay=s.weight_decay))

    def _step(self, batch: Tensor, sgd: Sgd) -> None:
        assert self._rows is not None
        rows = self._rows.index_select(1, batch)
        pass_ = start(self.top, self._learnt, rows[0] if len(rows) == 1 else rows)
        logits = pass_.outputs
        slope = loss_gradient(logits, self.labels_of(batch, lambda: logits), len(batch))
        pass_.descend(constant(slope), self._velocity, sgd)

    def _take_means(self, records: Tensor) -> None:
        """Linear discriminant analysis: logits x Σ⁻¹ m - m Σ⁻¹ m / 2 of class means m and covariance Σ of all rows.

        How common classes are is left out: noise on features makes rows alike, and all would be of the commonest class.
        """
        assert self._rows is not None
        rows, replicas = self._rows, len(self.replicas)
        logits = self.top.apply(self.top_parameters, rows[0] if len(rows) == 1 else rows)
        shares = as_target(self.labels_of(records, lambda: logits), logits).expand(replicas, -1, -1)
        means = torch.matmul(shares.transpose(1, 2), rows) / shares.sum(1).clamp(min=1.0).unsqueeze(2)
        spread = torch.matmul(rows.transpose(1, 2), rows) / len(records)
        spread = spread + _RIDGE * torch.eye(rows.shape[2], device=rows.device)
        turned = torch.linalg.solve(spread, means.transpose(1, 2))
        self.top_parameters["weight0"].copy_(turned)
        self.top_parameters["bias0"].copy_(-0.5 * (turned * means.transpose(1, 2)).sum(1))

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Devices learn nothing."""

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        outputs = [self._point.mechanism.noiseless(own) for own in self.bank.predict(blocks, replicas)]
        parameters = first_replicas(self.top_parameters, replicas)
        rows = in_coordinates(self._join(outputs), parameters[_COORDINATES], self._components)
        return self.top.apply(parameters, rows)

    # Releases and claims -------------------------------------------------------------------------------------------

    @staticmethod
    def releases(settings: NoiseOnceSettings, schedule: Schedule) -> tuple[Release, ...]:
        """Features up in the first round; then steps that read labels, and features through what was sent alone."""
        first = np.arange(schedule.rounds) == 0
        sent = np.repeat(first[:, None], schedule.devices, axis=1)
        # No device has a model that could carry a record from one message to another.
        up = [replace(r, leak=None) for r in uplink_releases(settings, schedule, kind="embeddings", sent=sent)]
        if settings.noise_std:
            up = [replace(r, seen_by=r.seen_by | {"model"}) for r in up]
        reads = _LABEL_UNITS if settings.noise_std else frozenset(Unit)
        step = NoNoise(depends_on=reads).describe(
            kind="model-step" if settings.share_model else "models",
            what="how the server's model moves",
            rounds=np.ones(schedule.rounds, dtype=np.bool_),
            seen_by=DOWNLINK_READERS | {"model"} if settings.share_model else frozenset({"model"}),
        )
        return (*up, step)

    @staticmethod
    def claims(settings: NoiseOnceSettings, schedule: Schedule) -> tuple[Claim, ...]:
        """None: the configuration's own where the noise is calibrated, those of the label protection elsewhere."""
        return ()


def _flat(parameters: Mapping[str, Tensor]) -> Tensor:
    """(R, number of parameters) in new memory."""
    return torch.cat([value.flatten(1) for value in parameters.values()], dim=1)
