"""What the ADMM engines share: settings, ledger, the duals of every record, the server's and the devices' steps.

"Improving Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM" (Xie et al., here
VIMADMM); equation, lemma and theorem numbers are that paper's.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from vflpriv.common.devices import widest_float
from vflpriv.common.lazy import no_grad, torch
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.wire import Payload
from vflpriv.training.engine import Engine
from vflpriv.training.engines.split import gradient_releases
from vflpriv.training.held import HeldOutputs
from vflpriv.training.mechanisms.labels import as_target
from vflpriv.training.mechanisms.uplink import Emptied
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.layers import join_rows
from vflpriv.training.models.passes import Pass, Sgd, Slope
from vflpriv.training.settings import SubsetSettings
from vflpriv.training.uplink import UplinkSettings, client_claims, client_noise, uplink_mechanisms

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "AdmmEngine",
    "AdmmSettings",
    "Reused",
    "auxiliary_and_duals",
    "newton_steps",
    "pull",
    "pull_through",
    "residuals",
]

_DOWNLINK = "admm-variables"


class AdmmSettings(UplinkSettings, SubsetSettings):
    """Settings of every ADMM engine.

    Rates, momentum, ρ and τ are those of VIMADMM, Appendix D, and of its experiments on MNIST. As in the published
    code, β is 0.001, a device's velocity is carried over from round to round, and heads have none. The paper prints
    β = 0.005, with which MNIST stays two points below its Table III.
    """

    device_rate: float = Field(0.1, gt=0, description="learning rate of the devices")
    server_rate: float = Field(0.1, gt=0, description="learning rate of the server's heads")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of the devices' extractors")
    restart_momentum: bool = Field(False, description="every round's local steps begin at rest")
    server_momentum: float | None = Field(0.0, ge=0, lt=1, description="momentum of the heads")
    weight_decay: float = Field(0.001, ge=0, description="β, with the regulariser ½‖w‖² on every parameter")
    penalty: float = Field(1.0, ge=0.01, description="ρ, the weight of the quadratic penalty")
    local_steps: int = Field(20, ge=1, le=100_000, description="τ, a device's SGD steps in a round")

    @property
    def emptied(self) -> Emptied:
        return Emptied.by(self.bottom, logits=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Solved:
    """The server's variables of a round's batch: ŷ, labels or a posterior of them, z and λ."""

    total: Tensor
    labels: Tensor
    auxiliary: Tensor
    duals: Tensor


class AdmmEngine(Engine):
    """Synchronous: outputs up; z (eq. 5) and λ (eq. 6) at the server; λ and each device's residuals s down.

    λ of every record and replica is kept, (N, R, C) and at first zero. A record's z is read in its own round only, and
    is found anew there. Devices minimise λᵀo + ρ/2 ‖s - o‖² in their own, neither clipped nor noised, outputs o.
    Client-level DP is Theorem 2's, of the uplink; it says nothing of labels, which λ shows as they are (Lemma 1).
    With `together` a random subset of devices sends, is answered and steps; ŷ and the heads' steps take the last
    outputs of the others, as every block of a randomised ADMM does.
    """

    asynchronous = False
    uplink_kind: ClassVar[Literal["embeddings", "logits"]] = "logits"
    settings: Any

    mechanisms = staticmethod(uplink_mechanisms)
    claims = staticmethod(client_claims)
    published_noise = staticmethod(client_noise)

    @abstractmethod
    def build(self) -> Bank:
        """The devices' models."""

    @abstractmethod
    def descend_locally(self, round_: int, group: int, inputs: Tensor, reply: Mapping[str, Tensor]) -> None:
        """The update of a group of devices of one shape: replies (devices · R, …), inputs (devices, R, B, n)."""

    def setup(self) -> None:
        self.bank = self.build()
        shape = (self.data.records, len(self.replicas), self.data.classes)
        self.duals = torch.zeros(shape, device=self.torch_device)
        mechanism = self.mechanisms(self.settings, self.schedule)["embeddings"]
        self.uplink_point = self.release_point(self.uplink_kind, mechanism)
        self._inputs: list[Tensor] = []
        self._passes: list[Pass] = []
        self.part = self.bank
        width = self.embedding if self.uplink_kind == "embeddings" else self.data.classes
        self._held = HeldOutputs(self.schedule, replicas=len(self.replicas), width=width, device=self.torch_device)

    @no_grad
    def uplinks(self, round_: int, members: Sequence[int], records: Tensor) -> Mapping[int, Payload]:
        self.part, point = self.bank.part(members), self.uplink_point
        self._inputs = self.part.inputs(self.data, records)
        outputs = self.part.split(self.outputs(self._inputs))
        clipped = {m: point.mechanism.noiseless(own) for m, own in zip(members, outputs, strict=True)}
        return {m: Payload(point.kind, point.rows(round_, m, records, {"embedding": clipped[m]})) for m in members}

    def outputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """(devices · R, B, …) of each group: what active devices send but for its protection."""
        self._passes = self.part.start(inputs)
        return [own.outputs for own in self._passes]

    @no_grad
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        received = join_rows(self._held.of(records, {m: sent["embedding"] for m, sent in uplinks.items()}), 0)
        outputs = self.shares(received)
        total = outputs.sum(0)
        labels = self.labels_of(records, lambda: total)
        old = self.duals.index_select(0, records).transpose(0, 1)
        z, duals = auxiliary_and_duals(total, labels, old, penalty=self.settings.penalty)  # eqs (5), (6)
        self.duals.index_copy_(0, records, duals.transpose(0, 1))
        self._solved = _Solved(total=total, labels=labels, auxiliary=z, duals=duals)
        outputs = self.learn(round_, received, outputs, z, duals)
        by_device = residuals(outputs, z)  # eq. (8)
        return {
            m: Payload(_DOWNLINK, {"duals": duals, "residuals": by_device[m], **self.heads_of(m)})
            for m in sorted(uplinks)
        }

    def by_device(self, stacked: Tensor) -> Tensor:
        """(M, R, …) of (M · R, …)."""
        by_device: Tensor = stacked.unflatten(0, (self.data.devices, len(self.replicas)))
        return by_device

    def shares(self, received: Tensor) -> Tensor:
        """Each device's share of the logits, (M, R, B, C); what it sent, unless the server has heads."""
        return self.by_device(received)

    def learn(self, round_: int, received: Tensor, outputs: Tensor, z: Tensor, duals: Tensor) -> Tensor:
        """The server's own update, and the devices' shares after it."""
        return outputs

    def heads_of(self, m: int) -> dict[str, Tensor]:
        """What else device m is sent."""
        return {}

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        if self.settings.restart_momentum:
            self.bank.reset_velocity()
        names = next(iter(replies.values()))
        joined = {name: self.part.join([replies[m][name] for m in sorted(replies)]) for name in names}
        for g, inputs in enumerate(self._inputs):
            self.descend_locally(round_, g, inputs, {name: joined[name][g] for name in names})
        self.part.write_back()

    def constant(self, reply: Mapping[str, Tensor]) -> tuple[Tensor, float]:
        """What `pull_through` takes: (k, C, B), and how much an output weighs beside it."""
        rho, batch = self.settings.penalty, self.schedule.batch_size
        fixed = torch.sub(reply["duals"], reply["residuals"], alpha=rho) / batch
        return fixed.transpose(1, 2).contiguous(), rho / batch

    def descend_group(self, group: int, slope: Slope, *, together: bool = False) -> None:
        """τ SGD steps of a group's extractors on eq. (9) or (23), given the gradient by their outputs."""
        s, velocity = self.settings, self.part.velocity(self.settings.momentum)[group]
        sgd = Sgd(rate=s.device_rate, momentum=s.momentum, weight_decay=s.weight_decay)
        self._passes[group].descend(slope, velocity, sgd, steps=s.local_steps, together=together)

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        return torch.stack(self.outputs_read(blocks, replicas)).sum(0)

    @no_grad
    def constrained_loss(self) -> Tensor:
        """(R,): eq. (4) without its regularisers, over the last round's batch after its z and λ steps.

        Its outputs are those that the server received, of the models before their own steps of that round.
        """
        solved, batch = self._solved, self.schedule.batch_size
        gap = solved.total - solved.auxiliary
        losses = -(as_target(solved.labels, gap) * torch.log_softmax(solved.auxiliary, -1)).sum(-1)
        penalties = (solved.duals * gap).sum(-1) + self.settings.penalty / 2 * gap.square().sum(-1)
        loss: Tensor = (losses + penalties).sum(-1) / batch
        return loss

    @no_grad
    def regularisers(self) -> Tensor:
        """(R,): β/2 ‖w‖² of all parameters as they are now."""
        parties = [*self.bank.parameters, self.server_parameters()]
        squares = [value.flatten(1).square().sum(1) for own in parties for value in own.values()]
        regularisers: Tensor = self.settings.weight_decay / 2 * torch.stack(squares).sum(0)
        return regularisers

    @classmethod
    def releases(cls, settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        """As split learning's, with λ, s and the heads in the gradients' place.

        Those read features through the uplinks alone, and labels as they are: λ = softmax(z) - onehot(y).
        """
        *up, down, model = gradient_releases(settings, schedule, up=cls.uplink_kind, logits=True)
        what = "exact duals (each shows its record's label), residuals and heads, server to device"
        return (*up, replace(down, kind=_DOWNLINK, what=what), replace(model, what="the trained models"))


def auxiliary_and_duals(outputs: Tensor, labels: Tensor, duals: Tensor, *, penalty: float) -> tuple[Tensor, Tensor]:
    """The new z and λ, (…, C) each, from ŷ (…, C), the labels (…) or a posterior of them (…, C), and the old λ (…, C).

    Eq. (5): z = argmin CE(z, y) - λᵀz + ρ/2 ‖ŷ - z‖². Eq. (6): λ += ρ(ŷ - z). At the minimum the new λ is
    softmax(z) - onehot(y) (Lemma 1): whoever is sent λ reads the label off its one negative entry. A posterior q takes
    the place of onehot(y): the gradient of cross-entropy against it is softmax(z) - q.

    Computed in float64, so that Lemma 1 holds to float32's last digit; in float32 where the device has nothing wider.
    """
    wide = widest_float(outputs.device)
    # Classes before records: sums over a short last axis are several times slower.
    y_hat, old = (t.transpose(-1, -2).to(wide).contiguous() for t in (outputs, duals))
    rho, target = penalty, as_target(labels, outputs).transpose(-1, -2)
    z = _proximal_log_sum_exp(y_hat + (old + target) / rho, rho)
    new = old + rho * (y_hat - z)
    return z.to(outputs.dtype).transpose(-1, -2), new.to(outputs.dtype).transpose(-1, -2)


def newton_steps(penalty: float) -> int:
    """How many steps reach float64's precision: 9 at ρ = 1, 11 at 0.1, 38 at 0.01. Known to the host: nothing waits."""
    return 8 + math.ceil(0.3 / penalty)


def _proximal_log_sum_exp(centre: Tensor, rho: float) -> Tensor:
    """argmin over z of logsumexp(z) + ρ/2 ‖z - a‖², for every column a of `centre` (…, C, B): eq. (5).

    Newton, with the Hessian diag(p + ρ) - ppᵀ inverted by Sherman-Morrison; its denominator 1 - Σ p²/(p + ρ) is
    ρ Σ p/(p + ρ), which cannot cancel. The step along the direction n has the length t = log(1 + r)/r with
    r = max n - min n: log-sum-exp's third derivative along n is at most r times its second, so that this t minimises an
    upper bound of the objective and every step descends, from any start; t → 1 keeps the convergence quadratic.
    The solution is a - p/ρ with p in the simplex: the start a - softmax(a)/ρ is never farther away than √2/ρ.
    """
    a = centre
    z = a - torch.softmax(a, -2) / rho
    for _ in range(newton_steps(rho)):
        p = torch.softmax(z, -2)
        share = p / (p + rho)
        n = (p + rho * (z - a)) / (p + rho)
        n = n + share * (p * n).sum(-2, keepdim=True) / (rho * share.sum(-2, keepdim=True))
        r = (n.amax(-2, keepdim=True) - n.amin(-2, keepdim=True)).clamp(min=1e-12)
        z = z - torch.log1p(r) / r * n
    return z


def residuals(outputs: Tensor, auxiliary: Tensor) -> Tensor:
    """Each device's s (M, R, B, C) = z minus what the other devices' outputs (M, R, B, C) add up to (eqs 8, 21)."""
    return outputs + (auxiliary - outputs.sum(0))


def pull(outputs: Tensor, duals: Tensor, residual: Tensor, *, penalty: float) -> Tensor:
    """The gradient, by the outputs o, of Σ λᵀo + ρ/2 ‖s - o‖²: what heads and bottoms descend (eqs 7, 9, 22, 23)."""
    return torch.add(duals, outputs - residual, alpha=penalty)


def pull_through(embedding: Tensor, head: Tensor, constant: Tensor, scale: float) -> Tensor:
    """`pull` by o = hW for linear heads, over the batch size b, records last: (k, C, B).

    It is constant + scale · o with scale = ρ/b and the constant (λ - ρs)/b, which a device's steps do not change.
    """
    return torch.baddbmm(constant, head.transpose(1, 2), embedding.transpose(1, 2), alpha=scale)


class Reused:
    """Matrix products whose memory is used again by the next one of the same shape."""

    def __init__(self) -> None:
        self._room: dict[tuple[int, ...], Tensor] = {}

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        """(left · right)ᵀ for every model."""
        shape = (len(left), left.shape[1], right.shape[2])
        if shape not in self._room:
            self._room[shape] = left.new_empty(shape)
        return torch.bmm(left, right, out=self._room[shape]).transpose(1, 2)
