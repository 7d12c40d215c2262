"""The memory that one more replica of a training needs, counted in a rehearsal in which nothing is computed.

A few rounds run on torch's `meta` device, where tensors have sizes but no values, once with one replica and once with
two. The difference of the peaks is what a replica takes: parameters, momentum, directions, activations, tables and
whatever else an engine, or its models, allocate. Where that is next to nothing, a round in earnest tells it sooner.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vflpriv.core.systems import System
from vflpriv.core.wire import Wire

__all__ = ["LiveBytes", "replica_bytes"]

_FIRST = 2
"""Rounds of a rehearsal: after the first, most buffers that are kept between rounds are there."""
_LITTLE = 4 << 20
"""Bytes of a replica that are too few to be counted exactly: a shard of them is nothing to any machine."""
_MARGIN = 4
"""How many times the bytes of its first round a small replica is said to need at most."""
_REHEARSED: WeakKeyDictionary[System, int] = WeakKeyDictionary()


class _TooLargeError(Exception):
    """More bytes are alive than were allowed."""


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all storages that were allocated under it and are still alive.

    Where there are more of them than `most` it stops the computation with `_TooLargeError`.
    """

    def __init__(self, most: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._most = most
        self._known: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled under it: torch need not load its compiler, which takes a second, to be kept from it."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {tensor.untyped_storage()._cdata for tensor in _tensors((args, *(kwargs or {}).values()))}
        for tensor in _tensors((result,)):
            self._track(tensor, given)
        return result

    def _track(self, tensor: Tensor, given: set[int]) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known or key in given:
            return
        size = storage.nbytes()
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        if self._most is not None and self.live > self._most:
            raise _TooLargeError
        weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def replica_bytes(system: System) -> int:
    """The bytes that one more replica needs while it trains; a few times more where even that is next to nothing."""
    known = _REHEARSED.get(system)
    if known is None:
        known = _bound_if_little(system)
        if known is None:
            rounds = _rounds(system)
            known = max(1, _peak(system, 2, rounds) - _peak(system, 1, rounds))
        _REHEARSED[system] = known
    return known


def _bound_if_little(system: System) -> int | None:
    """A bound on the bytes of a replica that needs few of them; None for others.

    So little is computed sooner than rehearsed: the first round is run in earnest, on the CPU, until it needs more.
    """
    first = [0] if system.schedule.rounds else []
    try:
        return _MARGIN * _rehearsed(system, 1, first, torch.device("cpu"), most=_LITTLE // _MARGIN)
    except _TooLargeError:
        return None


def _peak(system: System, replicas: int, rounds: Sequence[int]) -> int:
    """The most bytes alive at once in a rehearsal with so many replicas; of an engine that needs values, in earnest."""
    try:
        return _rehearsed(system, replicas, rounds, torch.device("meta"))
    except Exception:  # noqa: BLE001 (an engine from elsewhere may miss the values in any way)
        return _rehearsed(system, replicas, rounds, system.torch_device)


def _rehearsed(
    system: System, replicas: int, rounds: Sequence[int], device: torch.device, *, most: int | None = None
) -> int:
    with LiveBytes(most) as tracker:
        engine = system.engine(
            system.data,
            system.settings,
            schedule=system.schedule,
            seed=system.seed,
            replicas=range(replicas),
            torch_device=device,
            reproducible=True,
        )
        for round_ in rounds:
            engine.round(round_, Wire())
    peak: int = tracker.peak
    return peak


def _rounds(system: System) -> list[int]:
    """The first rounds, and the one with the largest batch."""
    schedule = system.schedule
    return sorted({*range(min(_FIRST, schedule.rounds)), int(schedule.size.argmax())})
