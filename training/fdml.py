"""FDML: devices send logits, get their sum back, and own the labels (vimadmm.txt §VI-2)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vflpriv.registry import register
from vflpriv.training import _fdml_ledger
from vflpriv.training._fdml_ledger import FdmlSettings
from vflpriv.training._payload import Payload
from vflpriv.training._targets import as_target
from vflpriv.training.split import Split

__all__ = ["Fdml"]


@register("engine")
class Fdml(Split):
    """Synchronous and without a server model. Every device computes the gradient of the loss from the sum by itself.

    With cross-entropy it is softmax(sum) - onehot(y), the same for all devices. Labels that a label mechanism noised
    are what the devices are given.
    """

    name = "fdml"
    summary = "logits up, their sum down; the devices own the labels, there is no server model"
    source = "vimadmm.txt §VI-2 (Hu et al. 2019)"
    settings_type = FdmlSettings
    label_holders = frozenset({"device", "devices"})
    settings: FdmlSettings

    releases = staticmethod(_fdml_ledger.releases)

    @torch.no_grad()
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        total = torch.stack([uplinks[m]["embedding"] for m in sorted(uplinks)]).sum(0)
        return {m: Payload("summed-logits", {"logits": total}) for m in uplinks}

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        # All devices are sent the same sum and know the same labels: the gradient is computed once for all of them.
        gradient = self._gradient(records, next(iter(replies.values()))["logits"])
        self._step([gradient.repeat(len(group), 1, 1) for group in self.bank.groups])

    @torch.no_grad()
    def _gradient(self, records: Tensor, logits: Tensor) -> Tensor:
        """Of the batch's mean loss by a device's own logits."""
        target = as_target(self.labels_of(records, lambda: logits), logits)
        return torch.softmax(logits, dim=-1).sub_(target).div_(self.schedule.batch_size)
