"""Plain runs of a program: in the neighbouring world with the same draws, and under other draws.

They are a second opinion on the trace. The second world receives what the first one sent, so that each message shows
its own difference; other seeds show which draws are constants, and whether anything random was not followed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vflpriv.audits.flow.draws.registry import fingerprint
from vflpriv.audits.flow.plain.generators import Origin
from vflpriv.audits.flow.plain.host import HostLaw, host_draws
from vflpriv.audits.flow.plain.wire import PlainWire, Program, SentMessage, View, identical
from vflpriv.common.random import Answered, Drawn, listening

__all__ = ["PlainRun", "plain_run", "root_seed", "same_form", "same_values", "seeded"]


@contextmanager
def seeded(seed: int, *, host: int | None = None) -> Iterator[None]:
    """Seed torch, and with `host` or the same seed NumPy, `random` and the operating system's bytes; give them back.

    What is repeatable can be compared: a generator that a program leaves without a seed gets the same one each time.
    """
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    outer = root_seed(seed if host is None else host)
    entropy = random.Random(outer)
    random.seed(outer)
    np.random.seed(outer % 2**32)  # noqa: NPY002
    torch.manual_seed(root_seed(seed))

    class Repeatable(torch.Generator):
        """A generator whose seed, where it is to be taken from the operating system, is the same in all runs."""

        def seed(self) -> int:
            return self.manual_seed(entropy.getrandbits(63) | _SECRET).initial_seed()

    try:
        with (
            patch("torch.Generator", Repeatable),
            patch("os.urandom", entropy.randbytes),
            patch("random._urandom", entropy.randbytes),
            patch("torch.seed", lambda: torch.manual_seed(entropy.getrandbits(63) | _SECRET).initial_seed()),
        ):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


_SECRET = 1 << 48
"""Seeds below this are small enough to be tried out."""


def root_seed(seed: int) -> int:
    """A seed that no program uses by chance: a draw from the same state would be taken for a copy."""
    return (1 << 60) + (seed + 1) * 0x9E3779B1


@dataclass(frozen=True, kw_only=True, eq=False)
class PlainRun:
    """Messages of a run, and what it computed."""

    messages: list[SentMessage]
    draws: tuple[bytes, ...]
    """Fingerprints of real-valued draws, in their order."""
    operations: bytes
    """A hash of the names of all operations since there is something private, in their order."""


_KNOWN: dict[int, tuple[bytes, bool]] = {}
"""Of operations that were seen, which torch keeps for good: their names, and whether they draw."""


def _known(op: Any) -> tuple[bytes, bool]:
    _KNOWN[id(op)] = op._schema.name.encode(), torch.Tag.nondeterministic_seeded in op.tags
    return _KNOWN[id(op)]


class _Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws: list[bytes] = []
        self.names = hashlib.blake2b(digest_size=12)
        self._begun = False

    def begin(self) -> None:
        """The first private value: a program may have made its two worlds by other operations."""
        if not self._begun:
            self._begun, self.names = True, hashlib.blake2b(digest_size=12)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Wrapping every operation for the compiler costs as much as following it.
        return False

    def told(self, told: Drawn | Answered) -> None:
        """A draw of a secret stream, of which torch shows no operation."""
        if isinstance(told, Drawn) and told.values.is_floating_point():
            self.draws.append(fingerprint(told.values))

    def host(self, values: Any, name: str, law: HostLaw, origin: Origin) -> Any:
        """A draw of NumPy or of Python."""
        self.draws.append(hashlib.blake2b(np.array(values).tobytes(), digest_size=12).digest())
        return values

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = op(*args, **(kwargs or {}))
        name, draws = _KNOWN.get(id(op)) or _known(op)
        self.names.update(name)
        if draws and isinstance(out, Tensor) and out.is_floating_point():
            self.draws.append(fingerprint(out))
        return out


def plain_run(
    program: Program,
    seed: int,
    *,
    world: int = 0,
    host: int | None = None,
    view: View = "eavesdropper",
    received: list[SentMessage] | None = None,
) -> PlainRun:
    """Run a program; what the view sees arrives as it did in `received`."""
    watch = _Watch()
    wire = PlainWire(world, received or (), view, begun=watch.begin)
    with seeded(seed, host=host), watch, listening(watch.told), host_draws(watch.host):
        program(wire)
    return PlainRun(messages=wire.sent, draws=tuple(watch.draws), operations=watch.names.digest())


def same_form(first: SentMessage, second: SentMessage) -> bool:
    """Whether two messages agree in everything but their values."""
    if (first.kind, first.sender, first.receivers, first.round) != (
        second.kind,
        second.sender,
        second.receivers,
        second.round,
    ):
        return False
    return list(first.tensors) == list(second.tensors) and all(
        first.tensors[name].shape == second.tensors[name].shape
        and first.tensors[name].dtype == second.tensors[name].dtype
        for name in first.tensors
    )


def same_values(first: SentMessage, second: SentMessage) -> bool:
    """Whether two messages of one form agree in every bit."""
    return all(identical(first.tensors[name], second.tensors[name]) for name in first.tensors)
