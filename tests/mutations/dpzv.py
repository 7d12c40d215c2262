"""DPZV with its sound server update, and the places at which a mutation changes it.

The claim is of exactly the μ that the ledger gives for a record, against all devices together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tests.mutations.case import Trained, exact_claim
from vflpriv.core.engine import Contributions
from vflpriv.core.wire import Payload
from vflpriv.training.engine import Engine
from vflpriv.training.engines.dpzv import Dpzv
from vflpriv.training.engines.zeroth_order import ZoEngine
from vflpriv.training.mechanisms.base import Mechanism, ReleasePoint

__all__ = ["SETTINGS", "Joint", "Point", "dpzv_case", "labels_of", "swapped"]

SETTINGS: dict[str, Any] = {
    "rounds": 12,
    "batch_size": 10,
    "embedding": 3,
    "server_update": "joint",
    "noise": "given",
    "noise_std": 1.0,
    "clip": 0.5,
    "delta": 1e-5,
}
"""A clip that is well below most records' differences, so that a wrong one shows."""


class Point(ReleasePoint):
    """A release point that remembers the noiseless value, and whose normals and clip a mutation may change."""

    exact: Tensor
    engine: Any

    def release(self, contributions: Contributions, normals: Tensor) -> Tensor:
        self.exact = self.noiseless(contributions)
        return super().release(contributions, self.drawn(contributions, normals))

    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        """The normals that are used instead of those drawn."""
        return normals


def swapped(engine: Engine, point: ReleasePoint, kind: type[Point], mechanism: Mechanism | None = None) -> Point:
    """Replace the release point that was made last by one of another kind."""
    own = kind(point.kind, mechanism or point.mechanism, point.noise, internal=point.internal)
    own.engine = engine
    engine.release_points[-1] = own
    return own


class Joint(Dpzv):
    """DPZV whose release point can be another one."""

    point_type: type[Point] = Point

    def release_point(
        self, kind: str, mechanism: Mechanism, *, stream: str = "noise", internal: bool = False
    ) -> ReleasePoint:
        made = super().release_point(kind, mechanism, stream=stream, internal=internal)
        return swapped(self, made, self.point_type, self.used(mechanism))

    def used(self, mechanism: Mechanism) -> Mechanism:
        """The mechanism that is used instead of the declared one."""
        return mechanism

    def reply(self, replies: Mapping[int, Payload], **tensors: Tensor) -> dict[int, Payload]:
        """The replies with more tensors in them."""
        return {m: Payload(p.kind, {**p.tensors, **tensors}) for m, p in replies.items()}


def labels_of(engine: Engine | ZoEngine, records: Tensor) -> Tensor:
    """(R, B) the true labels of these records as numbers."""
    labels: Tensor = engine.data.labels_of(records).expand(len(engine.replicas), -1)
    return labels.to(torch.float32)


def dpzv_case(engine: type[Dpzv], *, unit: str = "record", view: str = "devices(all)", **changes: Any) -> Trained:
    """The engine with noise for μ = 1, and the claim of it."""
    fields = ("canaries", "trials", "data", "claims", "noise_for")
    own = {name: changes.pop(name) for name in fields if name in changes}
    return Trained(
        **{
            "engine": engine,
            "settings": {**SETTINGS, **changes},
            "claims": exact_claim(unit, view),
            "noise_for": (1.0, unit, view),
            **own,
        }
    )
