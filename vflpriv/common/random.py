"""Counter-based random numbers with a replica axis.

A value is a pure function of (seed, stream, replica, position), computed by Philox4x32-10 (`vflpriv.common.philox`): R
replicas draw in one batch, on any device, without a host synchronisation. Nothing is stored: a direction
can be regenerated layer by layer, a resumed run draws what the killed one would have drawn, and replica r of a
batch of R draws what it draws when it runs alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vflpriv.common import philox
from vflpriv.common.lazy import torch
from vflpriv.common.seeds import derive

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SecretStream", "Stream", "secure_normal"]


@dataclass(frozen=True)
class Stream:
    """One named stream of R replicas. `keys` is (R, 2): two 32-bit words for each replica."""

    keys: Tensor

    @classmethod
    def of(cls, seed: int | Sequence[int], name: str, replicas: Sequence[int], device: torch.device) -> Stream:
        """The stream `name` of these replicas, under the run's seed, or each under a seed of its own."""
        runs = [seed] * len(replicas) if isinstance(seed, int) else seed
        seeds = [derive(run, name, r) for run, r in zip(runs, replicas, strict=True)]
        words = torch.tensor([[s & 0xFFFFFFFF, s >> 32] for s in seeds], dtype=torch.int64)
        return cls(words.to(device))

    def words(self, blocks: int, *path: int | Tensor, first: int = 0) -> tuple[Tensor, ...]:
        """Four 32-bit words for each block, (R, blocks) each, from block `first` of the sequence at `path` on.

        A path has up to three numbers. Where one is an int64 tensor of K numbers, K sequences are drawn at once:
        (R, K, blocks).
        """
        return philox.words(self.keys, path, blocks, first)

    def uniform(self, count: int, *path: int | Tensor, first: int = 0) -> Tensor:
        """Float32 in (0, 1], all 32 bits used so that normals reach 6.7 sigma; `first` counts blocks of four."""
        drawn = philox.uniforms(self.keys, path, -(-count // 4), first)
        return drawn.narrow(-1, 0, count) if count % 4 else drawn

    def normal(self, count: int, *path: int | Tensor, first: int = 0) -> Tensor:
        """Standard normals by Box-Muller on pairs of words; `first` counts blocks of four."""
        drawn = philox.normals(self.keys, path, -(-count // 4), first)
        return drawn.narrow(-1, 0, count) if count % 4 else drawn


class SecretStream:
    """Numbers of R replicas from the operating system's entropy source, with the methods of a `Stream`.

    A path gives new numbers every time, unless it is to `remember` them: noise that is correlated between rounds is
    made of the same draws again.
    """

    def __init__(self, replicas: int, device: torch.device, *, remember: bool = False) -> None:
        self._replicas, self._device = replicas, device
        self._held: dict[tuple[int, ...], Tensor] | None = {} if remember else None

    def uniform(self, count: int, *path: int) -> Tensor:
        """(R, count) float32 in (0, 1]."""
        uniform = 1 - _secure_uniform(1, self._replicas * count)[0]
        return torch.from_numpy(uniform.astype(np.float32)).reshape(self._replicas, count).to(self._device)

    def normal(self, count: int, *path: int) -> Tensor:
        """(R, count) standard normals."""
        if self._held is None:
            return secure_normal((self._replicas, count), self._device)
        if (count, *path) not in self._held:
            self._held[count, *path] = secure_normal((self._replicas, count), self._device)
        return self._held[count, *path]


def secure_normal(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Standard normals from the operating system's entropy source, for noise that must not be reproducible."""
    uniform = _secure_uniform(2, math.prod(shape))
    values = np.sqrt(-2.0 * np.log(uniform[0])) * np.cos(2 * np.pi * uniform[1])
    return torch.from_numpy(values.astype(np.float32)).reshape(shape).to(device)


def _secure_uniform(rows: int, count: int) -> NDArray[np.float64]:
    """(rows, count) numbers inside (0, 1), of 53 bits each."""
    words = np.frombuffer(os.urandom(8 * rows * count), dtype=np.uint64).reshape(rows, count)
    return np.asarray(((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
