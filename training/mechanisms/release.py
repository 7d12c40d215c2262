"""Where a device's clipped values leave: the mechanism adds its noise and, in an audit, the canary takes its place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vflpriv.core.canaries import Canary
from vflpriv.core.units import Unit
from vflpriv.core.wire import Payload
from vflpriv.training.mechanisms.base import Mechanism
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip, Emptied

__all__ = ["extremes", "let_out"]


def let_out(engine: Any, kind: str, round_: int, m: int, records: Tensor, clipped: Mapping[str, Tensor]) -> Payload:
    """What device m of an engine with `mechanism`, `noise` and `canary` sends of these clipped values, (R, B, width).

    Each of several values gets noise of its own. Without noise they leave as they are.
    """
    mechanism: Mechanism = engine.mechanism
    if not mechanism.noise_std:
        return Payload(kind, clipped)
    shape = next(iter(clipped.values())).shape[1:]
    normals = engine.noise.tensor(tuple(shape) if len(clipped) == 1 else (len(clipped), *shape), round_, m)
    each = [normals] if len(clipped) == 1 else normals.unbind(1)
    canary: Canary | None = engine.canary
    worlds: dict[str, Tensor] = {}
    if canary is not None and canary.at_clip and canary.concerns(m):
        worlds = {name: extremes(mechanism, canary, value, records) for name, value in clipped.items()}
        clipped = {name: _own(either, canary.world) for name, either in worlds.items()}
    sent = {name: mechanism.release(v, n) for (name, v), n in zip(clipped.items(), each, strict=True)}
    return Payload(kind, sent, worlds)


def _own(either: Tensor, world: Tensor) -> Tensor:
    """Each replica's value in the world it lives in."""
    return either[torch.arange(len(either), device=either.device), world.to(either.device)]


def extremes(mechanism: Mechanism, canary: Canary, clipped: Tensor, records: Tensor) -> Tensor:
    """(R, 2, B, width) noiseless values of two neighbouring worlds, as far apart as the sensitivity of the unit allows.

    A record's row is C e against -C e, or against zeros where the unit is about absence; a device's rows are so all
    together, against what a device without data can send (`Emptied`). Under a clip of the whole matrix a row may dwarf
    the others, which then vanish. Where the record is not among `records`, both worlds let out the same.
    """
    if not isinstance(mechanism, ClientClip | EmbeddingClip):
        raise ValueError(f"Expected a clip of the uplink, found {type(mechanism).__name__}.")
    batch, width = clipped.shape[1:]
    whole = isinstance(mechanism, ClientClip)
    place = (records == canary.record).to(clipped.dtype).unsqueeze(1)
    mine = place if canary.unit.per_record else torch.ones_like(place)
    present = mine.amax() if batch else mine.sum()
    rest = clipped * (1 - present) if whole else clipped * (1 - mine)
    if canary.unit is Unit.CLIENT_ZERO and mechanism.emptied == Emptied.NON_NEGATIVE:
        edge, other = _at_right_angles(mechanism, torch.ones_like(clipped[0]))
        return torch.stack((rest + edge, rest + other), dim=1)
    rows = 1 if canary.unit.per_record or not whole else batch
    edge = mine * (mechanism.clip / math.sqrt(rows * width)) * torch.ones(width, device=clipped.device)
    absent = canary.unit is Unit.ADD_REMOVE or (canary.unit is Unit.CLIENT_ZERO and mechanism.emptied == Emptied.ZEROS)
    return torch.stack((rest + edge, rest + (torch.zeros_like(edge) if absent else -edge)), dim=1)


def _at_right_angles(mechanism: ClientClip | EmbeddingClip, ones: Tensor) -> tuple[Tensor, Tensor]:
    """Two non-negative (B, width) at the clip that share no entry; where there is but one, the second is zeros."""
    odd = torch.arange(ones.numel(), device=ones.device).reshape(ones.shape) % 2
    if isinstance(mechanism, EmbeddingClip):
        odd = torch.arange(ones.shape[1], device=ones.device).expand(ones.shape) % 2
    first, second = (mechanism.noiseless((side * ones * 2 * mechanism.clip).unsqueeze(0))[0] for side in (1 - odd, odd))
    return first, second
