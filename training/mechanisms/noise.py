"""Sources of noise: a seeded stream for audits, the operating system's entropy for real training."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vflpriv.common.random import Stream, secure_normal

__all__ = ["NoiseSource"]

_CHUNK = 1024


class NoiseSource:
    """Standard normals for one release point. Its stream shares nothing with the directions', whose seeds devices hold.

    `name` is the name of its stream, so that a run can be repeated with other noise.
    """

    def __init__(self, stream: Stream, *, secure: bool, name: str = "noise") -> None:
        self.name = name
        self._stream, self._secure = stream, secure
        self._held: tuple[int, Tensor] | None = None

    def scalar(self, round_: int) -> Tensor:
        """(R,) one normal per replica for this round; drawn for many rounds at once."""
        begin = round_ - round_ % _CHUNK
        if self._held is None or self._held[0] != begin:
            self._held = (begin, self._draw(_CHUNK, begin // _CHUNK))
        return self._held[1][:, round_ - begin]

    def tensor(self, shape: tuple[int, ...], round_: int, party: int) -> Tensor:
        """(R, *shape) normals for the release of one party in this round."""
        return self._draw(math.prod(shape), round_, 1 + party).reshape(len(self._stream.keys), *shape)

    def _draw(self, count: int, *path: int) -> Tensor:
        keys = self._stream.keys
        if self._secure and keys.device.type != "meta":
            return secure_normal((len(keys), count), torch.device(keys.device))
        return self._stream.normal(count, *path)
