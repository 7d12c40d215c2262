"""Replays of release points: what one training hands to its release points, released again for many other replicas.

The score of a worst-case canary depends on the noise and on the canary's contribution at the clip, not on models: both
worlds' noiseless values are known up to what the other records contribute, and that cancels. So a leader is trained,
and after each round its followers call the same methods of the same release points with the same arguments, each
replica with noise of its own. Nothing of clip, noise, probe or score exists twice. A follower believes of the wire what
the leader's wire showed: a value that no message carried for the leader counts as carried for nobody.

Whether a replay says the same as a training is not taken on trust: whoever uses one compares the scores of replicas
that were trained with those of the same replicas replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits.twins.probes import CanaryProbe, Released, canary_probe, in_worlds
from vflpriv.core.canaries import Canary
from vflpriv.core.engine import Contributions, ReleasePoint
from vflpriv.core.systems import System

__all__ = ["Call", "Followers", "Leader", "ReplayError"]

_CALLS = ("scalar", "vector", "rows", "release")


class ReplayError(Exception):
    """A training whose releases cannot be replayed; the message says why."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Call:
    """One call of a release point by the leader: the number of the point, its method, and its arguments.

    Tensors with a replica axis are the leader's first replica's. `values` are what the leader released in it.
    """

    point: int
    method: str
    arguments: tuple[Any, ...]
    values: list[Released] = field(default_factory=list)

    @property
    def scored(self) -> bool:
        """Whether a message carried one of its values and the canary moves it."""
        return any(value.message is not None and value.worlds is not None for value in self.values)


class Leader:
    """A training whose calls of release points are noted, round by round."""

    def __init__(self, system: System, replicas: Sequence[int], canary: Canary) -> None:
        engine, self.probe = in_worlds(system, replicas, canary)
        self.engine = engine
        self.points: tuple[ReleasePoint, ...] = tuple(engine.release_points)
        self._calls: list[Call] = []
        self._inside = False

    def listen(self) -> None:
        """Begin to note calls; copies of the points that are made before hear nothing."""
        for number, point in enumerate(self.points):
            for method in _CALLS:
                # On the instance, in front of whatever its class does: the engine's own call is what is noted.
                setattr(point, method, partial(self._heard, number, method, getattr(point, method)))

    def round(self, round_: int) -> list[Call]:
        """Train one round; its calls, in order."""
        self._calls = []
        self.probe.round(self.engine, round_)
        return self._calls

    def _heard(self, number: int, method: str, original: Callable[..., Any], *arguments: Any) -> Any:
        if self._inside:
            return original(*arguments)
        self._inside, before = True, len(self.probe.values)
        first = tuple(_first(argument) for argument in arguments)
        try:
            result = original(*arguments)
        finally:
            self._inside = False
        values = self.probe.values[before:]
        if method == "release" and values:
            raise ReplayError("a release point is given normals that it did not draw itself")
        self._calls.append(Call(point=number, method=method, arguments=first, values=values))
        return result


class Followers:
    """Replicas that release what a leader's calls release, with noise and worlds of their own, and without models."""

    def __init__(self, system: System, leader: Leader, replicas: Sequence[int], canary: Canary) -> None:
        self._count = len(replicas)
        self._probe: CanaryProbe = canary_probe(system, replicas, canary)
        self._points = [point.for_replicas(system.seed, replicas) for point in leader.points]
        for point in self._points:
            point.probe = self._probe

    @torch.no_grad()
    def replay(self, calls: Sequence[Call]) -> Iterator[Released]:
        """The values of the calls whose values count for a score, each with the message that carried the leader's."""
        for call in calls:
            if not call.scored:
                continue
            self._probe.values = []
            try:
                getattr(self._points[call.point], call.method)(*(_spread(a, self._count) for a in call.arguments))
            except Exception as error:
                raise ReplayError(f"a release point needs more than it is handed: {error}") from error
            if len(self._probe.values) != len(call.values):
                raise ReplayError("a release point does not release the same number of values again")
            for value, led in zip(self._probe.values, call.values, strict=True):
                value.message = led.message
                yield value


def _first(argument: Any) -> Any:
    """The first replica's part of an argument, copied: engines may go on to change what they handed over."""
    if isinstance(argument, Contributions):
        rows = None if argument.rows is None else argument.rows.first()
        return replace(argument, values=argument.values[:1].detach().clone(), rows=rows, relabelled=None)
    if isinstance(argument, Mapping):
        return {name: tensor[:1].detach().clone() for name, tensor in argument.items()}
    return argument


def _spread(argument: Any, count: int) -> Any:
    """The argument for so many replicas, all alike."""
    if isinstance(argument, Contributions):
        return replace(argument, values=_repeated(argument.values, count))
    if isinstance(argument, Mapping):
        return {name: _repeated(tensor, count) for name, tensor in argument.items()}
    return argument


def _repeated(values: Tensor, count: int) -> Tensor:
    return values.expand(count, *values.shape[1:])
