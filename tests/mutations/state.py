"""Mutations of what is kept: state that private data moved without noise, and that later messages read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tests.mutations.case import Mutation, Trained, exact_claim
from tests.mutations.dpzv import Joint, Point, dpzv_case, labels_of
from tests.mutations.wire import ROWS
from vflpriv.core.engine import Contributions
from vflpriv.core.wire import Payload
from vflpriv.training.engines.vafl import Vafl
from vflpriv.training.engines.zeroth_order import SERVER_UPDATES, ServerStep
from vflpriv.training.engines.zeroth_order import Joint as JointUpdate

__all__ = ["MUTATIONS"]


class _Exactly(JointUpdate):
    """Moves by the scalar before its noise."""

    def __init__(self, engine: Joint) -> None:
        self.engine = engine

    def apply(self, step: ServerStep, delta: Tensor | None = None) -> None:
        super().apply(step, self.engine.scalar.exact)


class ExactServer(Joint):
    name = "exact-server"

    def setup(self) -> None:
        super().setup()
        self.server_update = _Exactly(self)


class LabelServer(Joint):
    name = "label-server"

    def setup(self) -> None:
        super().setup()
        self.server_update = SERVER_UPDATES["sgd"]


class ExactDevice(Joint):
    name = "exact-device"

    def update(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> None:
        super().update(round_, m, records, {"delta": self.scalar.exact})


class _Weighted(Point):
    """Weights each record's difference by how rare its label is among all records."""

    def noiseless(self, contributions: Contributions) -> Tensor:
        everyone = labels_of(self.engine, torch.arange(self.engine.data.records))
        share = everyone.mean(1, keepdim=True)
        own = labels_of(self.engine, contributions.records)
        weights = torch.where(own == 1, 0.5 / share, 0.5 / (1 - share))
        return super().noiseless(
            Contributions(
                round=contributions.round,
                party=contributions.party,
                records=contributions.records,
                values=0.05 * weights * contributions.values,
            )
        )


class RareLabels(Joint):
    name = "rare-labels"
    point_type = _Weighted


class RateByLoss(Joint):
    """The devices' rate depends on the exact loss of the batch, as the server knows it."""

    name = "rate-by-loss"

    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        replies = super().serve(round_, records, uplinks)
        rows = self.table.index_select(0, records).transpose(0, 1)
        self._loss = self.server_step(round_, records, rows).plain.mean(1)
        return replies

    def update(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> None:
        super().update(round_, m, records, {"delta": reply["delta"] * (1 + self._loss)})


class ExactRefresh(Vafl):
    name = "exact-refresh"

    @torch.no_grad()
    def answer(self, round_: int, m: int, records: Tensor) -> Payload:
        (output,) = self._clipped(self._start(self.bank.part([m]), round_, records))
        return Payload(self.uplink_point.kind, {"embedding": output})


def _state(name: str, fault: str, change: str, case: Trained, **fields: Any) -> Mutation:
    return Mutation(
        name=name, family="state", fault=fault, change=change, case=case, **{"expected": "server-state", **fields}
    )


_VAFL = {**{name: value for name, value in ROWS.items() if name != "smoothing"}, "max_delay": 3}
_LABEL = {"unit": "label", "view": "eavesdropper"}

MUTATIONS = (
    _state(
        "state-exact-server",
        "the server moves by the scalar before its noise",
        "grows with the rate",
        dpzv_case(ExactServer, server_rate=5.0),
        fast=True,
    ),
    _state("state-label-server", "the server moves by exact labels", "grows with the rate", dpzv_case(LabelServer)),
    _state(
        "state-exact-device",
        "devices move by the scalar before its noise, and embeddings show it",
        "total leak",
        dpzv_case(ExactDevice, **_LABEL),
        expected="wire",
    ),
    _state(
        "state-rare-labels",
        "differences are weighted by how rare a label is among all records",
        "every round counts",
        dpzv_case(RareLabels),
    ),
    _state(
        "state-rate-by-loss",
        "devices move by a rate that depends on exact losses",
        "total leak",
        dpzv_case(RateByLoss, **_LABEL),
        expected="wire",
    ),
    _state(
        "state-exact-refresh",
        "embeddings that the server asks for again are sent without noise",
        "total leak",
        Trained(
            engine=ExactRefresh,
            settings=_VAFL,
            claims=exact_claim("features", "server"),
            noise_for=(1.0, "features", "server"),
        ),
        expected="wire, noise",
    ),
)
