"""ZOO-VFL: zeroth-order on both sides, asynchronous, two losses on the downlink (vfl-cascaded.txt §VI)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from vflpriv.common.registry import register
from vflpriv.core.wire import Payload
from vflpriv.training.engines.zeroth_order import OneSidedEngine, ZooSettings, zoo_releases

__all__ = ["ZooVfl"]


@register("engine")
class ZooVfl(OneSidedEngine):
    """The device sends h(w) and h(w + μu), the server replies the batch's mean loss with either; both step by eq. (3).

    The unperturbed embedding refreshes the server's table, and the server learns from the refreshed rows. Means divide
    by the nominal batch size B, also where a batch is short. vfl-cascaded.txt Theorem V.1 claims that losses in place
    of gradients "can defend against existing privacy inference attacks": a claim about attacks, without an ε, and
    judged as one. The losses carry no noise: for labels ε is infinite unless the labels were noised, and trials in two
    worlds would have no likelihood ratio to score.
    """

    name = "zoo-vfl"
    summary = "zeroth-order on both sides, asynchronous; two exact losses on the downlink"
    source = "vfl-cascaded.txt §VI"
    settings_type = ZooSettings
    asynchronous = True
    settings: ZooSettings
    server_update: ClassVar[str] = "zo-one-sided"

    releases = staticmethod(partial(zoo_releases, down="losses"))

    @torch.no_grad()
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        ((m, pair),) = uplinks.items()
        step = self.server_step(round_, records, self.refresh(m, records, pair["embedding"]))
        perturbed = step.losses(step.parameters, step.replaced(self.columns(m), pair["perturbed"])).of(step.labels)
        losses = {"loss": step.mean(step.plain), "perturbed": step.mean(perturbed)}
        self.learn(self.server_update, step)
        return {m: Payload("losses", losses)}

    @torch.no_grad()
    def update(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> None:
        self.step_device(round_, m, reply["perturbed"] - reply["loss"])
