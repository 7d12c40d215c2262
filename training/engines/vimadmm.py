"""VIMADMM: one head per device at the server, ADMM variables instead of gradients (VIMADMM, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from vflpriv.common.lazy import gradients_along, no_grad, torch
from vflpriv.common.registry import register
from vflpriv.core.engine import Importance
from vflpriv.training.engines.admm import AdmmEngine, AdmmSettings, Reused, pull, pull_through, residuals
from vflpriv.training.mechanisms.uplink import Emptied
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.base import Parameters, initialise
from vflpriv.training.models.heads import DropoutMlp, Linear, mask_name
from vflpriv.training.models.mlp import FusedMlp
from vflpriv.training.models.passes import Sgd, constant, start

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Vimadmm", "VimadmmSettings"]


class VimadmmSettings(AdmmSettings):
    """Settings of VIMADMM."""

    heads: Literal["linear", "mlp"] = Field(
        "linear", description="bias-free linear heads, or MLPs with the hidden widths `top_hidden`"
    )
    residual: Literal["old-heads", "printed"] = Field(
        "old-heads",
        description="old-heads: devices are sent residuals of the heads before the server's step, as in the published "
        "code; printed: of the heads after it, as eq. (8) has it, which is unstable unless the server's rate is low",
    )
    dropout: float = Field(0.25, ge=0, lt=1, description="of the MLP heads' hidden units, in every gradient step")

    @property
    def emptied(self) -> Emptied:
        return Emptied.by(self.bottom, logits=False)


@register("engine")
class Vimadmm(AdmmEngine):
    """Embeddings up; z, λ and one SGD step of every head at the server; λ, s and its head down to each device.

    With MLP heads every h W becomes g(h; W) (§III-B, d). Dropout acts where a gradient is taken, at the server (eq. 7)
    and at the devices (eq. 9); the outputs that define z, λ and s, and predictions, are those of the whole heads.
    """

    name = "vimadmm"
    summary = "ADMM with a head for each device; duals that show the labels on the downlink"
    source = "VIMADMM, Algorithm 1"
    settings_type = VimadmmSettings
    uplink_kind = "embeddings"
    settings: VimadmmSettings

    def build(self) -> Bank:
        s, data, init = self.settings, self.data, self.stream("init")
        linear = s.heads == "linear"
        widths = [self.embedding, *s.top_hidden, data.classes]
        self.head: Linear | DropoutMlp = Linear(self.embedding, data.classes) if linear else DropoutMlp(widths)
        self.heads = self._first_heads()
        self._velocity: dict[str, Tensor] = {}
        self._dropout = self.public_stream("dropout")
        self._numbers = torch.arange(data.devices, device=self.torch_device)
        return Bank(self.device_models(self.embedding, activate=True, mlp=FusedMlp), init)

    def _first_heads(self) -> dict[str, Tensor]:
        """The random heads that the training starts from, drawn anew."""
        init, devices = self.stream("init"), self.data.devices
        heads = [initialise(self.head, init, devices + m) for m in range(devices)]
        return {n: self.head.stored(torch.cat([head[n] for head in heads])) for n in self.head.shapes}

    def server_parameters(self) -> Mapping[str, Tensor]:
        split = {name: self.by_device(value) for name, value in self.heads.items()}
        return {f"head.{m}.{name}": value[m] for name, value in split.items() for m in range(self.data.devices)}

    def shares(self, received: Tensor) -> Tensor:
        return self.by_device(self.head.apply(self.heads, received))

    def learn(self, round_: int, received: Tensor, outputs: Tensor, z: Tensor, duals: Tensor) -> Tensor:
        """One SGD step of every head on eq. (7): eq. (9)'s objective, s taken with the old heads.

        Devices are sent the residuals of the outputs that this returns.
        """
        s = self.settings
        own = start(
            self.head, self.heads, received, self._masks(round_, 0, range(self.data.devices), received.shape[1])
        )
        pulls = pull(self.by_device(own.outputs), duals, residuals(outputs, z), penalty=s.penalty)
        sgd = Sgd(rate=s.server_rate, momentum=s.top_momentum, weight_decay=s.weight_decay)
        own.descend(constant(pulls.flatten(0, 1) / self.schedule.batch_size), self._velocity, sgd)
        return outputs if s.residual == "old-heads" else self.shares(received)

    @no_grad
    def embeddings(self) -> Tensor:
        """(devices · R, B, width): what its devices would send of the last batch now, neither clipped nor noised."""
        return torch.cat(self.part.outputs(self._inputs))

    def heads_of(self, m: int) -> dict[str, Tensor]:
        return {f"head.{name}": self.by_device(value)[m].clone() for name, value in self.heads.items()}

    def descend_locally(self, round_: int, group: int, inputs: Tensor, reply: Mapping[str, Tensor]) -> None:
        """τ steps on eq. (9)."""
        if self.settings.heads == "mlp":
            self._descend_under_mlps(round_, group, inputs, reply)
            return
        head, (fixed, scale) = reply["head.weight0"], self.constant(reply)
        by_outputs = Reused()

        def slope(rows: slice, step: int, embedding: Tensor) -> Tensor:
            pulled = pull_through(embedding, head[rows], fixed[rows], scale)
            return by_outputs.product(head[rows], pulled)

        self.descend_group(group, slope)

    def _descend_under_mlps(self, round_: int, group: int, inputs: Tensor, reply: Mapping[str, Tensor]) -> None:
        s, members = self.settings, [self.part.members[k] for k in self.part.groups[group]]
        head = {name: reply[f"head.{name}"] for name in self.head.shapes}

        def slope(rows: slice, step: int, embedding: Tensor) -> Tensor:
            masks = self._masks(round_, 1 + step, members, inputs.shape[-2])
            with torch.enable_grad():
                leaf = embedding.detach().requires_grad_()
                own = self.head.apply({**head, **masks}, leaf)
            pulled = pull(own.detach(), reply["duals"], reply["residuals"], penalty=s.penalty)
            return gradients_along(own, [leaf], pulled / self.schedule.batch_size)[0]

        # All at once: a step's masks are drawn for all devices.
        self.descend_group(group, slope, together=True)

    def _masks(self, round_: int, step: int, members: Sequence[int], batch: int) -> Parameters:
        """Dropout masks (devices · R, B, width) of the MLP heads' hidden layers: 0, or 1/(1 - rate)."""
        rate, hidden = self.settings.dropout, self.settings.top_hidden
        if self.settings.heads == "linear" or not hidden or not rate:
            return {}
        numbers = torch.stack([self._numbers[m] for m in members])
        drawn = self._dropout.uniform(batch * sum(hidden), round_, step, numbers)
        uniform = drawn.transpose(0, 1).flatten(0, 1)
        kept = (uniform > rate).to(torch.float32).mul_(1 / (1 - rate)).unflatten(1, (batch, sum(hidden)))
        return {mask_name(i): part for i, part in enumerate(kept.split(list(hidden), dim=-1))}

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        embeddings = self.outputs_read(blocks, replicas)
        heads = {name: self.by_device(value)[:, :replicas].flatten(0, 1) for name, value in self.heads.items()}
        outputs = self.head.apply(heads, torch.cat(embeddings))
        return outputs.reshape(-1, replicas, *outputs.shape[1:]).sum(0)

    def importance(self) -> Importance:
        """The norm of each device's head; a device whose features tell nothing has a small one (§VI-C)."""
        now, first = self._weights(self.heads), self._weights(self._first_heads())
        norms, starts, distances = (weights.norm(dim=2) for weights in (now, first, now - first))
        return Importance(norms=norms, starts=starts, distances=distances)

    def _weights(self, heads: Parameters) -> Tensor:
        """(R, M, n): the weights of each device's head, without its biases."""
        weights = [self.by_device(value).flatten(2) for name, value in heads.items() if name.startswith("weight")]
        return torch.cat(weights, dim=2).transpose(0, 1)
