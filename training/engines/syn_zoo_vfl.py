"""Syn-ZOO-VFL: all devices in every round, zeroth-order on both sides (VFL-Cascaded, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from vflpriv.common.lazy import no_grad, torch
from vflpriv.common.registry import register
from vflpriv.core.wire import Payload
from vflpriv.training.engines.zeroth_order import Losses
from vflpriv.training.engines.zoo_vfl import OneSidedEngine, OneSidedSettings, zoo_releases
from vflpriv.training.models.finite_differences import Change

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SynZooVfl"]


@register("engine")
class SynZooVfl(OneSidedEngine):
    """All devices send h(w) and h(w + μu); each gets δ, the batch's mean loss with its h(w + μu) minus that with none.

    Line 9 of the algorithm writes a perturbed embedding into the first term of the server's difference as well. Here
    both terms read the unperturbed ones: the devices' shifts are independent of u0, so that they would change the
    estimate's variance and not its mean. Claims and labels: as for ZOO-VFL.
    """

    name = "syn-zoo-vfl"
    summary = "zeroth-order on both sides, synchronous; one exact loss difference on the downlink"
    source = "VFL-Cascaded, Algorithm 2"
    settings_type = OneSidedSettings
    asynchronous = False
    settings: OneSidedSettings

    releases = staticmethod(partial(zoo_releases, down="loss-difference"))

    @no_grad
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        rows = torch.cat([uplinks[m]["embedding"] for m in sorted(uplinks)], dim=-1)
        step = self.server_step(round_, records, rows)
        replies = {}
        for m, pair in uplinks.items():
            change = Change(self.columns(m), pair["perturbed"] - pair["embedding"])
            perturbed = Losses(step.outputs.ahead(change=change))
            delta = step.mean(perturbed.of(step.labels) - step.plain)  # line 5
            replies[m] = Payload("loss-difference", {"delta": delta})
        self.learn("zo-one-sided", step)  # lines 9 and 10
        return replies

    @no_grad
    def update(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> None:
        self.step_device(round_, m, reply["delta"])  # lines 6 and 7
