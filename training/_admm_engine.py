"""What the ADMM engines share: settings, ledger, the duals of every record, the server's and the devices' steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from vflpriv.data import VerticalData
from vflpriv.releases import Release
from vflpriv.schedules import Schedule
from vflpriv.training._admm import auxiliary_and_duals, residuals
from vflpriv.training._bank import Bank
from vflpriv.training._base import Engine
from vflpriv.training._emptied import Emptied
from vflpriv.training._local import Slope, local_steps
from vflpriv.training._models import Parameters
from vflpriv.training._noise import NoiseSource
from vflpriv.training._outlet import let_out
from vflpriv.training._payload import Payload
from vflpriv.training._split_ledger import gradient_releases
from vflpriv.training._uplinks import UplinkSettings, client_claims, uplink_mechanisms

__all__ = ["AdmmEngine", "AdmmSettings", "leaves_of"]

_DOWNLINK = "admm-variables"


class AdmmSettings(UplinkSettings):
    """What every ADMM engine can be told.

    Momentum, ρ and τ are those of vimadmm.txt, Appendix D. The rates are lower: the devices step at once, each against
    the others' old outputs, and 14 of them overshoot at its 0.1. It gives β = 0.005. Every round has its own objective:
    a velocity that is carried over overshoots it, and the duals with it.
    """

    device_rate: float = Field(0.03, gt=0, description="learning rate of the devices")
    server_rate: float = Field(0.001, gt=0, description="learning rate of the server's heads")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of the devices")
    restart_momentum: bool = Field(True, description="every round's local steps begin at rest")
    server_momentum: float | None = Field(0.0, ge=0, lt=1, description="momentum of the server's heads")
    weight_decay: float = Field(0.001, ge=0, description="β, with the regulariser ½‖w‖² on every parameter")
    penalty: float = Field(1.0, ge=0.01, description="ρ, the weight of the quadratic penalty")
    local_steps: int = Field(20, ge=1, le=100_000, description="τ, a device's SGD steps in a round")

    @property
    def emptied(self) -> Emptied:
        return Emptied.by(self.bottom, logits=True)


def leaves_of(parameters: Parameters) -> dict[str, Tensor]:
    """The same parameters as leaves that autograd can differentiate by."""
    return {name: value.detach().requires_grad_() for name, value in parameters.items()}


class AdmmEngine(Engine):
    """Synchronous: outputs up; z (eq. 5) and λ (eq. 6) at the server; λ and each device's residuals s down.

    λ of every record and replica is kept, (N, R, C) and at first zero. A record's z is read in its own round only, and
    is found anew there. Devices minimise λᵀo + ρ/2 ‖s - o‖² in their own, neither clipped nor noised, outputs o.
    Client-level DP is Theorem 2's, of the uplink; it says nothing of labels, which λ shows as they are (Lemma 1).
    """

    asynchronous = False
    uplink_kind: ClassVar[Literal["embeddings", "logits"]] = "logits"
    settings: Any

    mechanisms = staticmethod(uplink_mechanisms)
    claims = staticmethod(client_claims)

    @classmethod
    def state_bytes(cls, settings: Any, data: VerticalData) -> int:
        return super().state_bytes(settings, data) + 4 * data.records * data.classes

    @abstractmethod
    def build(self) -> Bank:
        """The devices' models."""

    @abstractmethod
    def descend_locally(self, round_: int, group: int, inputs: Tensor, reply: Mapping[str, Tensor]) -> None:
        """The update of a group of devices of one shape: (devices · R, …), or (B, …) inputs that replicas share."""

    def setup(self) -> None:
        self.bank = self.build()
        shape = (self.data.records, len(self.replicas), self.data.classes)
        self.duals = torch.zeros(shape, device=self.torch_device)
        self.mechanism = self.mechanisms(self.settings, self.schedule)["embeddings"]
        self.noise = NoiseSource(self.stream("noise"), secure=self.settings.secure_noise)
        self._inputs: list[Tensor] = []

    @torch.no_grad()
    def uplinks(self, round_: int, members: Sequence[int], records: Tensor) -> Mapping[int, Payload]:
        self._inputs = self.bank.inputs(self.data, records)
        raw = self.bank.forward(self._inputs)
        clipped = {m: self.mechanism.noiseless(raw[m]) for m in members}
        return {m: let_out(self, self.uplink_kind, round_, m, records, {"embedding": clipped[m]}) for m in members}

    @torch.no_grad()
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        received = [uplinks[m]["embedding"] for m in sorted(uplinks)]
        outputs = self.shares(received)
        labels = self.labels_of(records, lambda: outputs.sum(0))
        old = self.duals.index_select(0, records).transpose(0, 1)
        z, duals = auxiliary_and_duals(outputs.sum(0), labels, old, penalty=self.settings.penalty)  # eqs (5), (6)
        self.duals.index_copy_(0, records, duals.transpose(0, 1))
        outputs = self.learn(round_, received, outputs, z, duals)
        each = residuals(outputs, z)  # eq. (8)
        return {
            m: Payload(_DOWNLINK, {"duals": duals, "residuals": s, **self.heads_of(m)})
            for m, s in zip(sorted(uplinks), each, strict=True)
        }

    def shares(self, received: Sequence[Tensor]) -> Tensor:
        """Each device's share of the logits, (M, R, B, C); what it sent, unless the server has heads."""
        return torch.stack(list(received))

    def learn(self, round_: int, received: Sequence[Tensor], outputs: Tensor, z: Tensor, duals: Tensor) -> Tensor:
        """The server's own update, and the devices' shares after it."""
        return outputs

    def heads_of(self, m: int) -> dict[str, Tensor]:
        """What else device m is sent."""
        return {}

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        if self.settings.restart_momentum:
            self.bank.rest()
        names = replies[0]
        joined = {name: self.bank.join([replies[m][name] for m in sorted(replies)]) for name in names}
        for g, inputs in enumerate(self._inputs):
            self.descend_locally(round_, g, inputs, {name: joined[name][g] for name in names})

    def constant(self, reply: Mapping[str, Tensor]) -> tuple[Tensor, float]:
        """What `pull_through` takes: (k, C, B), and how much an output weighs beside it."""
        rho, batch = self.settings.penalty, self.schedule.batch_size
        fixed = torch.sub(reply["duals"], reply["residuals"], alpha=rho) / batch
        return fixed.transpose(1, 2).contiguous(), rho / batch

    def descend_group(self, group: int, inputs: Tensor, slope: Slope, *, together: bool = False) -> None:
        """τ SGD steps of a group's extractors on eq. (9) or (23), given the gradient by their outputs."""
        s, model, stacked = self.settings, self.bank.models[self.bank.groups[group][0]], self.bank.stacked[group]
        local_steps(
            model,
            {name: value for name, value in stacked.items() if name != "head"},
            self.bank.velocity(s.momentum)[group],
            inputs,
            slope,
            steps=s.local_steps,
            rate=s.device_rate,
            momentum=s.momentum,
            weight_decay=s.weight_decay,
            together=together,
        )

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        return torch.stack(self.bank.predict(blocks, replicas)).sum(0)

    @classmethod
    def releases(cls, settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        """As split learning's, with λ, s and the heads in the gradients' place.

        Those read features through the uplinks alone, and labels as they are: λ = softmax(z) - onehot(y).
        """
        *up, down, model = gradient_releases(settings, schedule, up=cls.uplink_kind, logits=True)
        what = "exact duals (each shows its record's label), residuals and heads, server to device"
        return (*up, replace(down, kind=_DOWNLINK, what=what), replace(model, what="the trained models"))
