"""What stands for a device's model where only its messages were recorded: its features and the embeddings it sent.

A layer on both, and for the baseline one on the features alone, is trained in the place of the model, which nobody
recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vflpriv.attacks._estimators import standardised
from vflpriv.attacks._observations import UPLINKS, last_and_mean, uplinks_of
from vflpriv.common.random import Stream
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import View

__all__ = ["Rows", "features_of", "fresh_layer", "has_sent", "layer", "sent_embeddings"]

_WIDTH = 32
"""Outputs of the layer."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """Sorted records (n,), and a table (n, d) with a row for each of them from each device."""

    records: Tensor
    tables: Sequence[Tensor]

    def known(self, auxiliary: Auxiliary) -> Auxiliary:
        """The same knowledge, of the known records among these, by their positions."""
        among = torch.isin(auxiliary.records, self.records)
        if not bool(among.any()):
            raise ValueError("no record with a known label is among those that embeddings were sent of")
        positions = torch.searchsorted(self.records, auxiliary.records[among])
        return replace(auxiliary, records=positions, labels=auxiliary.labels[among])


def has_sent(view: View) -> bool:
    """Whether the view holds embeddings that each device of the adversary sent of some records."""
    senders = {m.device.index for m in view.of_kind(*UPLINKS) if m.records is not None}
    return bool(view.own) and senders.issuperset(view.own)


def sent_embeddings(view: View) -> Rows:
    """Each device's features, the last embedding that it sent of a record, and the mean of all that it sent of it.

    Records are those that all devices of the adversary sent embeddings of.
    """
    by_device = {m: last_and_mean(uplinks_of(view, m)) for m in view.own}
    records = next(iter(by_device.values()))[0]
    for others, _ in by_device.values():
        records = records[torch.isin(records, others)]
    tables = []
    for m, (sent, rows) in by_device.items():
        embeddings = rows.index_select(0, torch.searchsorted(sent, records))
        features = view.own[m].features.index_select(0, records)
        tables.append(torch.cat((standardised(embeddings), standardised(features)), dim=1))
    return Rows(records=records, tables=tables)


def features_of(view: View) -> Rows:
    """The features of the adversary's devices, of all records."""
    tables = [standardised(own.features) for own in view.own.values()]
    return Rows(records=torch.arange(len(tables[0]), device=tables[0].device), tables=tables)


def fresh_layer(inputs: int, stream: Stream, path: tuple[int, int]) -> dict[str, Tensor]:
    """Weights and biases (R, …) of a linear layer, uniform in ±1/√inputs."""
    drawn = (2 * stream.uniform((inputs + 1) * _WIDTH, *path) - 1) * inputs**-0.5
    return {"weight": drawn[:, _WIDTH:].unflatten(1, (inputs, _WIDTH)), "bias": drawn[:, :_WIDTH]}


def layer(parameters: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """(R, B, outputs) for rows (R, B, inputs)."""
    return torch.baddbmm(parameters["bias"].unsqueeze(1), rows, parameters["weight"])
