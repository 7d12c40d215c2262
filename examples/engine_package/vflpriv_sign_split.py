"""Split learning on summed logits whose server sends back only the signs of each record's gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from vflpriv.core import Adversary, Claim, Release, Schedule, SuccessClaim, Unit
from vflpriv.training import Bank, Engine, EngineSettings, NoNoise, Payload, Sgd, constant

__all__ = ["SignSplit"]


class SignSplit(Engine):
    """A sign is one bit, but the bit of the true class is the only one that is set: it does not hide the label."""

    name = "sign-split"
    summary = "first-order, synchronous; signs of per-record gradients on the downlink"
    source = "examples/engine_package"
    settings_type: ClassVar[type[EngineSettings]] = EngineSettings
    asynchronous = False

    @staticmethod
    def releases(settings: EngineSettings, schedule: Schedule) -> tuple[Release, ...]:
        every, last = np.ones(schedule.rounds, dtype=np.bool_), np.arange(schedule.rounds) == schedule.rounds - 1
        features = NoNoise(depends_on=frozenset(Unit) - {Unit.LABEL})
        everything = NoNoise(depends_on=frozenset(Unit))
        wire, devices = frozenset({"eavesdropper", "outsider"}), frozenset({"device", "devices"})
        return (
            features.describe(kind="logits", what="exact logits", rounds=every, seen_by=wire | {"server"}),
            everything.describe(kind="logit-gradient", what="exact signs", rounds=every, seen_by=wire | devices),
            everything.describe(kind="models", what="the trained models", rounds=last, seen_by=frozenset({"model"})),
        )

    @staticmethod
    def claims(settings: EngineSettings, schedule: Schedule) -> tuple[Claim, ...]:
        return ()

    @staticmethod
    def success_claims(settings: EngineSettings, schedule: Schedule) -> tuple[SuccessClaim, ...]:
        return (
            SuccessClaim(
                key="signs-hide-labels",
                source="examples/engine_package",
                where="README",
                statement="a sign is one bit, which is not enough for a label",
                unit=Unit.LABEL,
                adversary=Adversary.parse("device"),
                attack="label_direct",
                rate=0.2,
                classes=10,
            ),
        )

    @staticmethod
    def mechanisms(settings: EngineSettings, schedule: Schedule) -> Mapping[str, NoNoise]:
        return {}

    def setup(self) -> None:
        self.bank = Bank(self.device_models(self.data.classes, activate=False), self.stream("init"))

    def uplinks(self, round_: int, members: Sequence[int], records: Tensor) -> Mapping[int, Payload]:
        self._passes = self.bank.start(self.bank.inputs(self.data, records))
        sent = self.bank.split([own.outputs for own in self._passes])
        return {m: Payload("logits", {"embedding": sent[m]}) for m in members}

    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        logits = torch.stack([uplink["embedding"] for uplink in uplinks.values()]).sum(0)
        truth = torch.nn.functional.one_hot(self.labels_of(records, lambda: logits), self.data.classes)
        signs = (logits.softmax(-1) - truth).sign()
        return {m: Payload("logit-gradient", {"gradient": signs}) for m in uplinks}

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        gradients = self.bank.join([replies[m]["gradient"] / len(records) for m in sorted(replies)])
        slopes = [constant(gradient) for gradient in gradients]
        self.bank.descend(self._passes, slopes, Sgd(rate=self.settings.device_rate))

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        return torch.stack(self.bank.predict(blocks, replicas)).sum(0)
