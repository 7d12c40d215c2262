"""Is there anything in the noise that devices can regenerate from seeds they hold?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits._noise_tests import correlation
from vflpriv.random import Stream
from vflpriv.systems import System
from vflpriv.training._noise import NoiseSource

__all__ = ["PUBLIC", "Sample", "public"]

PUBLIC = ("directions", "init")
"""Streams whose seeds devices hold."""
_TAIL = 64
_POSITIONS = 512
_COMPARED = 48


@dataclass(frozen=True, eq=False)
class Sample:
    """Noise of one kind in units of its declared std: (messages, R, entries), with each message's round and device."""

    z: NDArray[np.float64]
    rounds: NDArray[np.int64]
    devices: NDArray[np.int64]


def public(system: System, engine: Any, sample: Sample) -> float:
    """The p-value of "nothing that devices can regenerate is in it".

    Two ways to draw from a public stream by mistake: the noise source is given it, or the noise is what comes behind
    (or within) a party's direction.
    """
    few = slice(None, None, -(-len(sample.z) // _COMPARED))
    sample = Sample(sample.z[few], sample.rounds[few], sample.devices[few])
    worst = []
    for name in PUBLIC:
        stream = Stream.of(system.seed, name, engine.replicas, system.torch_device)
        worst += [_addressed(NoiseSource(stream, secure=False), sample), _behind(stream, engine, sample)]
    return min(1.0, len(worst) * min(worst))


def _addressed(source: NoiseSource, sample: Sample) -> float:
    """Against what the engine's noise source would draw from a stream."""
    width, draws = sample.z.shape[2], []
    for t, m in zip(sample.rounds.tolist(), sample.devices.tolist(), strict=True):
        scalar = source.scalar(t)[:, None].expand(-1, width)
        draws.append(torch.stack((scalar, source.tensor((width,), t, m))))
    public = torch.stack(draws, dim=1).to(torch.float64).cpu().numpy()
    return correlation(sample.z.ravel(), public.reshape(len(public), -1))


def _behind(stream: Stream, engine: Any, sample: Sample) -> float:
    """Against every place of a party's own sequence, and those behind its end."""
    sizes = _sizes(engine)
    draws: list[Tensor] = []
    for t, m in zip(sample.rounds, sample.devices, strict=True):
        size = sizes[int(m)]
        head = stream.normal(min(size, _POSITIONS), int(t), int(m) % len(sizes))
        tail = stream.normal(_TAIL, int(t), int(m) % len(sizes), first=size // 4)
        draws.append(torch.cat((tail, head), dim=1))
    length = min(d.shape[1] for d in draws)
    public = torch.stack([d[:, :length] for d in draws]).to(torch.float64).cpu().numpy()
    return correlation(sample.z[..., 0].ravel(), np.moveaxis(public, 2, 0).reshape(length, -1))


def _sizes(engine: Any) -> Sequence[int]:
    """The length of each party's sequence of parameters, every one rounded up to blocks of four; the server's last."""
    models = [*engine.bank.models, *([engine.top] if hasattr(engine, "top") else [])]
    return [sum(4 * -(-int(np.prod(shape)) // 4) for shape in model.shapes.values()) for model in models]
