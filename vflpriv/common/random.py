"""Counter-based random numbers with a replica axis.

A value is a pure function of (seed, stream, replica, position): Philox4x32-10, written in tensor operations so
that R replicas draw in one batch, on any device, without a host synchronisation. Nothing is stored: a direction
can be regenerated layer by layer, a resumed run draws what the killed one would have drawn, and replica r of a
batch of R draws what it draws when it runs alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vflpriv.common.seeds import derive

__all__ = ["Stream", "philox", "secure_normal"]

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_PIECE = 1 << 14


def _wrap(value: int) -> int:
    """An unsigned 64-bit number as the signed one with the same bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def philox(counter: Sequence[Tensor], key: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox4x32-10 (Salmon et al. 2011) on int64 tensors that hold 32-bit words; all arguments broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # The low 64 bits of a product are the same for signed and unsigned words.
        p0, p1 = c0 * _wrap(_MULTIPLIERS[0]), c2 * _wrap(_MULTIPLIERS[1])
        c0, c1, c2, c3 = ((p1 >> 32) & _MASK) ^ c1 ^ k0, p1 & _MASK, ((p0 >> 32) & _MASK) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return c0, c1, c2, c3


@dataclass(frozen=True)
class Stream:
    """One named stream of R replicas. `keys` is (R, 2): two 32-bit words for each replica."""

    keys: Tensor

    @classmethod
    def of(cls, seed: int, name: str, replicas: Sequence[int], device: torch.device) -> Stream:
        """The stream `name` of these replicas, under the run's seed."""
        seeds = [derive(seed, name, r) for r in replicas]
        words = torch.tensor([[s & _MASK, s >> 32] for s in seeds], dtype=torch.int64)
        return cls(words.to(device))

    def words(self, blocks: int, *path: int | Tensor, first: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Four 32-bit words for each block, (R, blocks) each, from block `first` of the sequence at `path` on.

        A path has up to three numbers. Where one is an int64 tensor of K numbers, K sequences are drawn at once:
        (R, K, blocks).
        """
        device = self.keys.device
        index = torch.arange(first, first + blocks, dtype=torch.int64, device=device)
        several = any(isinstance(number, Tensor) for number in path)
        shape = (-1, 1) if several else (-1,)
        place = [torch.as_tensor(n, dtype=torch.int64, device=device).reshape(shape) for n in (*path, 0, 0, 0)[:3]]
        keys = self.keys.unsqueeze(1) if several else self.keys
        return philox((index, *place), (keys[..., 0:1], keys[..., 1:2]))

    def uniform(self, count: int, *path: int | Tensor, first: int = 0) -> Tensor:
        """Float32 in (0, 1], all 32 bits used so that normals reach 6.7 sigma; `first` counts blocks of four."""
        words = self.words(-(-count // 4), *path, first=first)
        return torch.stack([_unit(w) for w in words], dim=-1).flatten(-2)[..., :count]

    def normal(self, count: int, *path: int | Tensor, first: int = 0) -> Tensor:
        """Standard normals by Box-Muller on pairs of words; `first` counts blocks of four.

        A long draw is made in pieces, since its integers need several times the memory of the normals.
        """
        blocks, piece = -(-count // 4), max(1, _PIECE // len(self.keys))
        if blocks <= piece or any(isinstance(number, Tensor) for number in path):
            return self._normal(blocks, *path, first=first)[..., :count]
        drawn = torch.empty(len(self.keys), 4 * blocks, device=self.keys.device)
        for start in range(0, blocks, piece):
            part = self._normal(min(piece, blocks - start), *path, first=first + start)
            drawn[:, 4 * start : 4 * start + part.shape[1]] = part
        return drawn[:, :count]

    def _normal(self, blocks: int, *path: int | Tensor, first: int) -> Tensor:
        a, b, c, d = (_unit(w) for w in self.words(blocks, *path, first=first))
        parts = []
        for radius, turn in ((a, b), (c, d)):
            length, angle = radius.log_().mul_(-2.0).sqrt_(), turn.mul_(2 * math.pi)
            parts += [length * angle.cos(), length * angle.sin()]
        return torch.stack(parts, dim=-1).flatten(-2)


def _unit(words: Tensor) -> Tensor:
    return words.to(torch.float32).add_(0.5).mul_(2.0**-32)


def secure_normal(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Standard normals from the operating system's entropy source, for noise that must not be reproducible."""
    count = math.prod(shape)
    words = np.frombuffer(os.urandom(16 * count), dtype=np.uint64).reshape(2, count)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    values = np.sqrt(-2.0 * np.log(uniform[0])) * np.cos(2 * np.pi * uniform[1])
    return torch.from_numpy(values.astype(np.float32)).reshape(shape).to(device)
