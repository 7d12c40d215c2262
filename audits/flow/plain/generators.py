"""Generators of NumPy and of Python's `random`: in which state they draw, and by which seed they were made."""

from __future__ import annotations

import hashlib
import marshal
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

__all__ = ["GENERATOR", "LEGACY", "Origin", "Seeds", "generator_of"]


@dataclass(frozen=True)
class Origin:
    """Where a draw comes from; a generator that is in one state twice gives the same draws twice."""

    state: bytes | None = None
    seed: int | None = None
    """What the generator was seeded with, as a number; None where nobody chose that."""


GENERATOR, LEGACY = np.random.Generator, np.random.RandomState
"""NumPy's own classes, whatever stands in their place while somebody listens."""
_GLOBAL: dict[Any, Any] = {np.random: np.random.mtrand._rand, random: random._inst}


def generator_of(module: Any) -> Any:
    """The generator that the functions of a module draw from; None of the operating system's."""
    return _GLOBAL.get(module)


class Seeds:
    """The seeds that generators were given while somebody listened."""

    def __init__(self) -> None:
        self._given: dict[int, tuple[Any, int | None]] = {}

    def origin(self, generator: Any) -> Origin:
        """Of what this generator draws next."""
        state = _state(generator)
        return Origin(None if state is None else hashlib.blake2b(state, digest_size=12).digest(), self._seed(generator))

    def _seed(self, generator: Any) -> int | None:
        if isinstance(generator, GENERATOR):
            return _number(generator.bit_generator)
        return self._given.get(id(generator), (None, None))[1]

    def _noting(self, method: Callable[..., Any], generator: Any = None) -> Callable[..., Any]:
        """A function that seeds a generator, or a method of one; whoever draws from it later is told the seed."""

        def seeding(*args: Any, **kwargs: Any) -> Any:
            own, *given = args if generator is None else (generator, *args)
            self._given[id(own)] = own, _number(given[0] if given else next(iter(kwargs.values()), None))
            return method(*args, **kwargs)

        return seeding

    def noted(self, parent: type) -> dict[str, Callable[..., Any]]:
        """The methods by which a legacy generator of NumPy is seeded."""
        return {name: self._noting(getattr(parent, name)) for name in ("__init__", "seed")}

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Note the seeds of Python's generators, and of the global ones."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(random.Random, "seed", self._noting(random.Random.seed)))
            for module in (np.random, random):
                noting = self._noting(module.seed, generator_of(module))
                stack.enter_context(patch.object(module, "seed", noting))
            yield


def _state(generator: Any) -> bytes | None:
    if generator is None or isinstance(generator, random.SystemRandom):
        return None
    if isinstance(generator, random.Random):
        return marshal.dumps(generator.getstate())
    if isinstance(generator, LEGACY):
        _, key, *place = generator.get_state()
        return bytes(key) + repr(place).encode()  # type: ignore[arg-type]
    return _bytes(generator.bit_generator.state)


def _bytes(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"".join(_bytes(part) for part in value.values())
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()


def _number(seed: Any) -> int | None:
    """A seed as one number, in whatever form it is given; None of one that the operating system gives."""
    if isinstance(seed, int):
        return abs(int.__index__(seed))
    if isinstance(seed, np.random.BitGenerator):
        seed = getattr(seed, "seed_seq", None)
    if isinstance(seed, np.random.SeedSequence):
        return _number(seed.entropy)
    if isinstance(seed, str | bytes | bytearray):
        return int.from_bytes(seed.encode() if isinstance(seed, str) else seed, "big")
    try:
        parts = [int(part) for part in np.asarray(seed, dtype=object).reshape(-1)]
    except (TypeError, ValueError):
        return None
    return sum(abs(part) << (32 * place) for place, part in enumerate(parts))
