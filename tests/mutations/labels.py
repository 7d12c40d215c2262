"""Mutations of label noise: the labels that a training reads show more than their claim says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import PrivateAttr
from torch import Tensor

from tests.mutations.case import Mutation, Trained, small_data
from vflpriv.common.random import Stream
from vflpriv.core.data import VerticalData
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import DOWNLINK_READERS
from vflpriv.core.wire import SERVER, Payload, Wire, device
from vflpriv.laws import Alibi, RandomizedResponse
from vflpriv.training.engine import Engine
from vflpriv.training.engines.split import Split
from vflpriv.training.engines.zoo_vfl import ZooSettings, ZooVfl
from vflpriv.training.mechanisms.base import NoNoise
from vflpriv.training.mechanisms.labels import LabelMechanism, NoisedBefore

__all__ = ["MUTATIONS", "labels_case"]


def labels_case(engine: type[Engine], *, classes: int = 3, **settings: Any) -> Trained:
    """An engine with label protection, whose own claim about labels is the one that is checked."""
    common: dict[str, Any] = {"rounds": 12, "batch_size": 10, "embedding": 3}
    if issubclass(engine, ZooVfl):
        common["smoothing"] = 0.05
    return Trained(
        engine=engine,
        settings={**common, **settings},
        claims=lambda system: [],
        keep=("labels",),
        data=small_data(classes=classes),
        canaries=("natural", "crafted"),
    )


class _Used(ZooSettings):
    """Settings with another label mechanism than the one that they declare."""

    _mechanism: LabelMechanism | None = PrivateAttr(None)

    @property
    def label_mechanism(self) -> LabelMechanism | None:
        return self._mechanism


class _Noised(ZooVfl):
    """ZOO-VFL whose labels are noised by another mechanism than the declared one."""

    def __init__(self, data: VerticalData, settings: Any, **rest: Any) -> None:
        used = _Used.model_validate(settings.model_dump())
        used._mechanism = self.used(settings)
        super().__init__(data, used, **rest)

    def used(self, settings: ZooSettings) -> LabelMechanism | None:
        """The mechanism that is used."""
        return None


class TwiceEpsilon(_Noised):
    name = "rr-twice-epsilon"

    def used(self, settings: ZooSettings) -> LabelMechanism:
        return NoisedBefore(law=RandomizedResponse(2 * settings.label_noise))


@dataclass(frozen=True, kw_only=True)
class _LastClassKept(NoisedBefore):
    def observe(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        drawn = super().observe(labels, classes, stream)
        truth = torch.nn.functional.one_hot(labels, classes).to(drawn.dtype)
        return torch.where((labels == classes - 1).unsqueeze(-1), truth, drawn)


@dataclass(frozen=True, kw_only=True)
class _BinaryFormula(NoisedBefore):
    def observe(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        wrong = math.log((classes - 1) * math.exp(self.epsilon))
        return NoisedBefore(law=RandomizedResponse(wrong)).observe(labels, classes, stream)


@dataclass(frozen=True, kw_only=True)
class _Voted(NoisedBefore):
    def observe(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        replicas, records = labels.shape
        five = super().observe(labels.repeat(1, 5), classes, stream).reshape(replicas, 5, records, classes)
        return torch.nn.functional.one_hot(five.sum(1).argmax(-1), classes).to(torch.float32)


@dataclass(frozen=True, kw_only=True)
class _Fixed(NoisedBefore):
    def observe(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        same = Stream.of(0, "labels", [0] * len(labels), labels.device)
        return super().observe(labels, classes, same)


@dataclass(frozen=True, kw_only=True)
class _SinglePrecision(NoisedBefore):
    """ALIBI's Laplace noise, drawn and added in single precision."""

    def observe(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        onehot = torch.nn.functional.one_hot(labels, classes)
        centred = stream.uniform(onehot[0].numel()).reshape(onehot.shape) - 0.5
        noise = -centred.sign() * torch.log1p(-2 * centred.abs().clamp(max=0.4999999))
        return onehot + noise * (self.law.level / math.sqrt(2))


class SinglePrecision(_Noised):
    name = "alibi-single-precision"

    def used(self, settings: ZooSettings) -> LabelMechanism:
        return _SinglePrecision(law=Alibi(settings.label_noise))


class LastClassKept(_Noised):
    name = "rr-last-class"

    def used(self, settings: ZooSettings) -> LabelMechanism:
        return _LastClassKept(law=RandomizedResponse(settings.label_noise))


class BinaryFormula(_Noised):
    name = "rr-binary-formula"

    def used(self, settings: ZooSettings) -> LabelMechanism:
        return _BinaryFormula(law=RandomizedResponse(settings.label_noise))


class Voted(_Noised):
    name = "rr-voted"

    def used(self, settings: ZooSettings) -> LabelMechanism:
        return _Voted(law=RandomizedResponse(settings.label_noise))


class FixedSeed(_Noised):
    name = "rr-fixed-seed"

    def used(self, settings: ZooSettings) -> LabelMechanism:
        return _Fixed(law=RandomizedResponse(settings.label_noise))


class HalfScale(_Noised):
    name = "alibi-half-scale"

    def used(self, settings: ZooSettings) -> LabelMechanism:
        return NoisedBefore(law=Alibi(settings.label_noise / 2))


class Redrawn(_Noised):
    """Draws the response anew whenever a label is read."""

    name = "rr-redrawn"
    _reads = 0

    def labels_of(self, records: Tensor, logits: Callable[[], Tensor]) -> Tensor:
        self._reads += 1
        labels = self.data.labels_of(records).expand(len(self.replicas), -1)
        classes, keep = self.data.classes, self._keep()
        uniform = self.stream("labels").uniform(2 * len(records), self._reads).reshape(len(self.replicas), -1, 2)
        shift = 1 + (uniform[..., 1] * (classes - 1)).long().clamp(max=classes - 2)
        return torch.where(uniform[..., 0] <= keep, labels, (labels + shift) % classes)

    def _keep(self) -> float:
        return 1 / (1 + (self.data.classes - 1) * math.exp(-self.settings.label_noise))


class TrueEvaluation(ZooVfl):
    """Trains on noised labels, and sends how many of the batch the model got right by the true ones."""

    name = "true-evaluation"

    @staticmethod
    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        every = np.ones(schedule.rounds, dtype=np.bool_)
        evaluation = NoNoise(depends_on=frozenset(Unit)).describe(
            kind="evaluation", what="accuracy on the batch", rounds=every, seen_by=DOWNLINK_READERS
        )
        return (*ZooVfl.releases(settings, schedule), evaluation)

    def __init__(self, data: VerticalData, settings: Any, **rest: Any) -> None:
        self._true = data
        super().__init__(data, settings, **rest)

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        records = torch.from_numpy(self.schedule.batch(round_))
        rows = self.table.index_select(0, records).transpose(0, 1)
        guesses = self.top.apply(self.top_parameters, rows).argmax(-1)
        right = (guesses == self._true.labels_of(records)).sum(1).to(torch.float32)
        for m in self.schedule.members(round_):
            Payload("evaluation", {"right": right}).send(wire, round_, SERVER, device(m), records)


class TrueGradient(Split):
    """Its loss reads noised labels, and the gradients that are sent read the true ones."""

    name = "true-gradient"

    def __init__(self, data: VerticalData, settings: Any, **rest: Any) -> None:
        self._true = data
        super().__init__(data, settings, **rest)

    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        noised, self.data = self.data, self._true
        replies = super().serve(round_, records, uplinks)
        self.data = noised
        return replies


def _label(name: str, fault: str, change: str, case: Trained, **fields: Any) -> Mutation:
    common: dict[str, Any] = {"family": "labels", "expected": "flow, two-world", "accepted": (1, 3)}
    return Mutation(name=name, fault=fault, change=change, case=case, **{**common, **fields})


_RR: dict[str, Any] = {"label_protection": "rr", "label_noise": 1.0}
_ALIBI: dict[str, Any] = {"label_protection": "alibi", "label_noise": 2.0}

MUTATIONS = (
    _label("rr-twice-epsilon", "randomised response with twice the ε", "+100 % of ε", labels_case(TwiceEpsilon, **_RR)),
    _label(
        "rr-redrawn",
        "randomised response is drawn anew for every batch",
        "ε times the rounds",
        labels_case(Redrawn, **_RR),
    ),
    _label(
        "rr-last-class",
        "labels of the last class are kept as they are",
        "total leak",
        labels_case(LastClassKept, **_RR),
    ),
    _label(
        "rr-binary-formula",
        "labels are kept with the probability for two classes, of five",
        "+139 % of ε",
        labels_case(BinaryFormula, classes=5, **_RR),
    ),
    _label(
        "rr-voted", "the majority of five responses is used", "about +70 % of ε", labels_case(Voted, classes=2, **_RR)
    ),
    _label(
        "rr-fixed-seed",
        "responses come from a seed that is the same in all trainings",
        "total leak",
        labels_case(FixedSeed, **_RR),
    ),
    _label(
        "alibi-single-precision",
        "Laplace noise is drawn and added in single precision",
        "total leak",
        labels_case(SinglePrecision, **_ALIBI),
    ),
    _label("alibi-half-scale", "half the declared Laplace scale", "+100 % of ε", labels_case(HalfScale, **_ALIBI)),
    _label(
        "true-evaluation",
        "an evaluation message reads the true labels",
        "total leak",
        labels_case(TrueEvaluation, **_RR),
        expected="wire, two-world",
    ),
    _label(
        "true-gradient",
        "gradients are taken of the true labels",
        "total leak",
        labels_case(TrueGradient, aggregation="sum", **_RR),
    ),
)
