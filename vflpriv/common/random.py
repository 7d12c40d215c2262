"""Counter-based random numbers with a replica axis.

A value is a pure function of (seed, stream, replica, position), computed by Philox4x32-10 (`vflpriv.common.philox`): R
replicas draw in one batch, on any device, without a host synchronisation. Nothing is stored: a direction
can be regenerated layer by layer, a resumed run draws what the killed one would have drawn, and replica r of a
batch of R draws what it draws when it runs alone.

Philox is no cipher, and its seeds have 64 bits: what is to stay secret in a real training comes from a `SecretStream`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vflpriv.common import philox
from vflpriv.common.devices import precise_device
from vflpriv.common.lazy import torch
from vflpriv.common.seeds import STREAMS, SecretKey, derive

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.common.numerics import Floats

__all__ = [
    "Answered",
    "Answers",
    "Drawn",
    "Randomness",
    "SecretStream",
    "Stream",
    "WholeSteps",
    "announced",
    "answered",
    "listening",
]


class WholeSteps(Protocol):
    """A law of whole numbers, which are counted in steps."""

    @property
    def probabilities(self) -> Floats:
        """P[0], P[1], …, each of one sign."""

    def pair_of(self, steps: int) -> Any:
        """What tells two values apart that lie so many steps from each other."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """What a listener is told of a draw from a secret stream."""

    values: Tensor
    law: str
    """The law of a standard draw of it by name; "uniform" is between 0 and 1, "bits" are whole numbers."""
    place: tuple[object, ...]
    """Keys and path: the same place gives the same numbers again."""
    step: float = 0.0
    """The values are whole multiples of it, up to the rounding of a double; 0 where they need not be."""
    parts: Sequence[tuple[object, float]] = ()
    """Where it is a sum of independent draws that are also in other sums: the path of each, and its factor."""
    noise: WholeSteps | None = None
    """The law itself where its values are its steps."""


class Answers(ABC):
    """How private whole numbers are answered: from which draws, and with which law."""

    @abstractmethod
    def answered(self, asked: Tensor) -> Tensor:
        """The answers to these numbers, by the same draws whenever it is called."""

    @abstractmethod
    def table(self) -> Tensor | None:
        """P[answer | number], (…, numbers, answers), of every number that is asked, or of all alike; None if unknown.

        Whatever an answer says beside its own number has the same law for all numbers.
        """

    @property
    def public(self) -> Sequence[Tensor]:
        """All tensors that the law depends on."""
        return ()

    @property
    def numbers(self) -> Tensor | None:
        """(…, K) the uniform numbers that decide; None where they are drawn from a stream each time."""
        return None

    @property
    def asks(self) -> Tensor | None:
        """(…) which numbers are answered; what takes the place of other answers says nothing of them. None: all."""
        return None


@dataclass(frozen=True, eq=False)
class Answered:
    """What a listener is told of answers to private numbers."""

    values: Tensor
    asked: Tensor
    answers: Answers


_LISTENERS: list[Callable[[Drawn | Answered], None]] = []


@contextmanager
def listening(listener: Callable[[Drawn | Answered], None]) -> Iterator[None]:
    """Tell a listener of every draw from a secret stream, since torch sees none of them, and of answers by draws."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


def announced(values: Tensor, source: object, law: str, *path: object, **said: Any) -> Tensor:
    """The same values, of which listeners are told if they were drawn from a secret stream."""
    if getattr(source, "secret", False):
        for listener in _LISTENERS:
            listener(Drawn(values, law, (getattr(source, "keys", None), *path), **said))
    return values


def answered(asked: Tensor, answers: Answers) -> Tensor:
    """Answers to private numbers, of whose law listeners are told; they need not believe it."""
    values = answers.answered(asked)
    for listener in _LISTENERS:
        listener(Answered(values, asked, answers))
    return values


@dataclass(frozen=True)
class Stream:
    """One named stream of R replicas. `keys` is (R, 2): two 32-bit words for each replica."""

    keys: Tensor
    secret: bool = True
    """Whether it may hide something; one without a name is taken to."""

    @classmethod
    def of(cls, seed: int | Sequence[int], name: str, replicas: Sequence[int], device: torch.device) -> Stream:
        """The stream `name` of these replicas, under the run's seed, or each under a seed of its own."""
        runs = [seed] * len(replicas) if isinstance(seed, int) else seed
        seeds = [derive(run, name, r) for run, r in zip(runs, replicas, strict=True)]
        keys = torch.tensor([[s & 0xFFFFFFFF, s >> 32] for s in seeds], dtype=torch.int64)
        return cls(keys.to(device), STREAMS[name].secret)

    @property
    def replicas(self) -> int:
        return len(self.keys)

    @property
    def device(self) -> torch.device:
        return torch.device(self.keys.device)

    def words(self, blocks: int, *path: int | Tensor, first: int = 0) -> tuple[Tensor, ...]:
        """Four 32-bit words for each block, (R, blocks) each, from block `first` of the sequence at `path` on.

        A path has up to three numbers. Where one is an int64 tensor of K numbers, K sequences are drawn at once:
        (R, K, blocks).
        """
        return philox.words(self.keys, path, blocks, first)

    def bits(self, count: int, *path: int) -> Tensor:
        """(R, count) int64 of 63 random bits each, for noise: on the CPU where the device has no float64."""
        drawn = philox.bits(self.precise_keys, path, -(-count // 2))
        return announced(drawn[:, :count] if count % 2 else drawn, self, "bits", *path)

    @cached_property
    def precise_keys(self) -> Tensor:
        """The keys where float64 is computed."""
        return self.keys.to(precise_device(self.device))

    def uniform(self, count: int, *path: int | Tensor, first: int = 0) -> Tensor:
        """Float32 in (0, 1], all 32 bits used so that normals reach 6.7 sigma; `first` counts blocks of four."""
        drawn = philox.uniforms(self.keys, path, -(-count // 4), first)
        announced(drawn, self, "uniform", first, *path)
        return drawn.narrow(-1, 0, count) if count % 4 else drawn

    def normal(self, count: int, *path: int | Tensor, first: int = 0) -> Tensor:
        """Standard normals by Box-Muller on pairs of words; `first` counts blocks of four."""
        drawn = philox.normals(self.keys, path, -(-count // 4), first)
        announced(drawn, self, "gaussian", first, *path)
        return drawn.narrow(-1, 0, count) if count % 4 else drawn


class SecretStream:
    """One named stream of R replicas under a secret key, with the methods of a `Stream` and numbers of 53 bits."""

    secret = True

    def __init__(self, key: SecretKey, name: str, replicas: Sequence[int], device: torch.device) -> None:
        self._keys, self.device = [key.derived(name, replica) for replica in replicas], device

    @property
    def keys(self) -> tuple[int, ...]:
        """What tells streams apart, and nothing of their keys."""
        return tuple(map(hash, self._keys))

    @property
    def replicas(self) -> int:
        return len(self._keys)

    def bits(self, count: int, *path: int) -> Tensor:
        """(R, count) int64 of 63 random bits each, for noise: on the CPU where the device has no float64."""
        device = precise_device(self.device)
        if device.type == "meta":
            return torch.empty(self.replicas, count, dtype=torch.int64, device=device)
        shifted = np.empty((self.replicas, count), dtype=np.uint64)
        for key, row in zip(self._keys, shifted, strict=True):
            np.right_shift(key.words(count, *path), np.uint64(1), out=row)
        return announced(torch.from_numpy(shifted.view(np.int64)).to(device), self, "bits", *path)

    def uniform(self, count: int, *path: int, first: int = 0) -> Tensor:
        """(R, count) float32 in (0, 1]; `first` counts blocks of four."""
        drawn = self._drawn(count, path, first).to(torch.float32).to(self.device)
        return announced(drawn, self, "uniform", first, *path)

    def normal(self, count: int, *path: int, first: int = 0) -> Tensor:
        """(R, count) standard normals by Box-Muller; `first` counts blocks of four."""
        uniform = self._drawn(count + count % 2, path, first).reshape(self.replicas, -1, 2)
        length, turn = (-2 * uniform[..., 0].log()).sqrt(), 2 * math.pi * uniform[..., 1]
        normals = torch.stack((length * turn.cos(), length * turn.sin()), dim=-1).flatten(1)[:, :count]
        return announced(normals.to(torch.float32).to(self.device), self, "gaussian", first, *path)

    def _drawn(self, count: int, path: tuple[int, ...], first: int) -> Tensor:
        """(R, count) float64, computed on the CPU; nothing is on the device `meta`, where nothing has a value."""
        if self.device.type == "meta":
            return torch.empty(self.replicas, count, dtype=torch.float64, device=self.device)
        return torch.from_numpy(np.stack([key.numbers(count, *path, first=4 * first) for key in self._keys]))


@dataclass(frozen=True, eq=False, kw_only=True)
class Randomness:
    """Where the random numbers of a training come from: public streams from its seed, secret ones from its key.

    Without a key all come from the seed, as audits and tests want it: whoever knows the seed can repeat the training,
    and compute every secret of it.
    """

    seed: int | Sequence[int]
    """One for all replicas, or one for each."""
    key: SecretKey | None
    secret_draws: set[str] = field(default_factory=set)
    """The names of the secret streams that were asked for."""

    def stream(self, name: str, replicas: Sequence[int], device: torch.device) -> Stream | SecretStream:
        """The stream of this name, a sequence of its own for each replica."""
        if STREAMS[name].secret:
            self.secret_draws.add(name)
        if self.key is not None and STREAMS[name].secret:
            return SecretStream(self.key, name, replicas, device)
        return Stream.of(self.seed, name, replicas, device)

    def public(self, name: str, replicas: Sequence[int], device: torch.device) -> Stream:
        """The stream of this name, which has to be public."""
        if STREAMS[name].secret:
            raise ValueError(f"Expected {name!r} to be declared public: {STREAMS[name].reason}.")
        return Stream.of(self.seed, name, replicas, device)
