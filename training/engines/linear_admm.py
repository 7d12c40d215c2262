"""Linear ADMM sharing: logistic regression with ADMM steps at the devices (Hu et al. 2019; VIMADMM §VI-A1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from vflpriv.common.devices import widest_float
from vflpriv.common.lazy import no_grad, torch
from vflpriv.common.registry import register
from vflpriv.training.engines.admm import AdmmEngine, AdmmSettings
from vflpriv.training.mechanisms.uplink import Emptied
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.heads import Linear

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LinearAdmm", "LinearAdmmSettings"]


class LinearAdmmSettings(AdmmSettings):
    """Settings of linear ADMM; without SGD, rates, momentum and local steps have no effect."""

    relaxation: float = Field(1.0, gt=0, le=1, description="how far a device moves towards its objective's minimum")

    @property
    def emptied(self) -> Emptied:
        return Emptied.ZEROS  # x W has no bias


@register("engine")
class LinearAdmm(AdmmEngine):
    """x W up; z and λ at the server, which has no model; λ and s down.

    A device's step is the exact minimum of β/2 ‖W‖² + (1/b) Σ λᵀxW + ρ/(2b) Σ ‖s - xW‖², a ridge regression. All
    devices solve theirs against the others' old outputs, so that together they may overshoot: `relaxation` below 1
    damps that.

    Hu et al. noise the weights, by a closed-form sensitivity of one sample, as VIMADMM §II reports without the formula.
    That is not offered: the noise here is on what devices send, and with `protection = "client"` it is VIMADMM's.
    """

    name = "linear-admm"
    summary = "ADMM for logistic regression; duals that show the labels on the downlink"
    source = "Hu et al. 2019; VIMADMM, §VI-A1"
    settings_type = LinearAdmmSettings
    settings: LinearAdmmSettings
    bottoms = ("mlp", "linear")

    def build(self) -> Bank:
        models = [Linear(block[0].numel(), self.data.classes) for block in self.data.blocks]
        return Bank(models, self.stream("init"))

    def outputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return self.part.outputs(inputs)

    @no_grad
    def descend_locally(self, round_: int, group: int, inputs: Tensor, reply: Mapping[str, Tensor]) -> None:
        s, weight = self.settings, self.part.stacked[group]["weight0"]
        # In double precision: one large row makes the weight decay vanish in a single one, and the system singular.
        wide = widest_float(inputs.device)
        rows = inputs.flatten(0, 1).to(wide)
        transposed = rows.transpose(1, 2) / self.schedule.batch_size
        gram = s.penalty * torch.bmm(transposed, rows)
        gram.diagonal(dim1=1, dim2=2).add_(s.weight_decay)
        target = torch.bmm(transposed, s.penalty * reply["residuals"].to(wide) - reply["duals"])
        best = torch.linalg.solve_ex(gram, target).result
        weight.lerp_(best.to(weight.dtype), s.relaxation)
