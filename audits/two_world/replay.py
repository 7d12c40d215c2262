"""Replays: trials of worst-case canaries without training, from the releases of one training.

The score of a worst-case canary depends on the noise and on the canary's contribution at the clip, not on models: both
worlds' noiseless values are known up to what the other records contribute, and that cancels. So a leader is trained,
and after each round its followers call the same methods of the same release points with the same arguments, each
replica with noise of its own. Nothing of clip, noise, probe or score exists twice. A follower believes of the wire what
the leader's wire showed: a value that no message carried for the leader counts as carried for nobody.

Whether a replay says the same as a training is not taken on trust: every replay trains the first replica of each world,
and the first trials are both trained and replayed. Where scores differ, or a release cannot be replayed, trials are
trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits.twins.probes import CanaryProbe, Released, canary_probe, in_worlds
from vflpriv.audits.two_world.scores import LikelihoodRatio, Request, for_replicas, ratio_scores
from vflpriv.core.canaries import Canary
from vflpriv.core.engine import Contributions, ReleasePoint
from vflpriv.core.systems import System

__all__ = ["TOLERANCE", "Call", "Followers", "Leader", "ReplayError", "Replays", "gap", "replayed_scores"]

TOLERANCE = 1e-3
"""How far apart the scores of a replica may be, trained and replayed, relative to the scores' root mean square."""
_PIECE, _TOGETHER = 4096, 256
"""Replicas that are replayed with the same leaders, and how many of them at once."""
_LEADERS = 2
Shard = dict[str, Tensor]
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


# Trials


def replayed_scores(request: Request) -> dict[str, Tensor]:
    """What `worlds_scores` returns for a worst-case canary, of which only the first replicas are trained.

    Raises `ReplayError` where the replay does not give the scores of the trained ones.
    """
    system, replicas = request.system, request.replicas
    led = replicas[:_LEADERS]
    leader = Leader(system, led, _in_worlds(request, led))
    blocks = [replicas[i : i + _TOGETHER] for i in range(0, len(replicas), _TOGETHER)]
    followers = [Followers(system, leader, block, _in_worlds(request, block)) for block in blocks]
    own, ratios = request.ratio(), [request.ratio() for _ in blocks]
    leader.listen()
    for round_ in request.rounds():
        calls = leader.round(round_)
        for call in calls:
            _add(own, call.values)
        for ratio, group in zip(ratios, followers, strict=True):
            _add(ratio, group.replay(calls))
        request.done()
    parts = [ratio_scores(ratio, len(block)) for ratio, block in zip(ratios, blocks, strict=True)]
    scores = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    apart = gap(ratio_scores(own, len(led)), {name: score[: len(led)] for name, score in scores.items()})
    if not apart <= TOLERANCE:
        raise ReplayError(_different(apart))
    return scores


def _different(apart: float) -> str:
    """The reason against replays whose scores are so far from those of trained replicas."""
    return f"replayed trials do not have the scores of trained ones (largest difference {apart:.2g})"


def gap(trained: Mapping[str, Tensor], replayed: Mapping[str, Tensor]) -> float:
    """The largest difference between scores of the same replicas, relative to the root mean square of a view's scores.

    It is not a number where a score is none, which is as good as different.
    """
    gaps = [0.0]
    for name, scores in trained.items():
        expected, again = scores.to(torch.float64).cpu(), replayed[name].to(torch.float64).cpu()
        gaps.append(float((expected - again).abs().max()) / max(1e-30, float(expected.square().mean().sqrt())))
    return math.nan if any(math.isnan(apart) for apart in gaps) else max(gaps)


def _in_worlds(request: Request, replicas: range) -> Canary:
    return for_replicas(request.canary, [r % 2 for r in replicas])


def _add(ratio: LikelihoodRatio, values: Iterable[Released]) -> None:
    for value in values:
        ratio.add(value)


class Replays:
    """The trials beyond those that are trained: replayed, as long as replays have the scores of trained ones.

    The first `full` trials of each world are trained, and replayed too before any replay counts. Once a replay differs,
    or cannot be made, all trials are trained, those that had been replayed included. `train` trains the trials of both
    worlds from one number to another; `replay` scores several ranges of replicas without training.
    """

    def __init__(
        self,
        *,
        first: int,
        full: int,
        refusal: str | None,
        train: Callable[[int, int], list[Shard]],
        replay: Callable[[Sequence[range]], list[Shard]],
    ) -> None:
        self.full, self.refusal = full, refusal
        self._first, self._train, self._replay = first, train, replay
        self._shards: list[Shard] = []
        self._done, self._checked = full, False

    @property
    def replayed(self) -> int:
        """Trials in each world that were replayed."""
        return 0 if self.refusal is not None else self._done - self.full

    @property
    def reason(self) -> str | None:
        """Why trials were trained that would have been replayed."""
        return self.refusal if self._done > self.full else None

    def until(self, until: int, trained: Sequence[Shard]) -> list[Shard]:
        """The shards of all trials from `full` to `until`; `trained` are those of the trials before."""
        if until > self._done and self.refusal is None:
            try:
                self._check(trained)
                self._shards += self._replay(self._ranges(self._done, until))
                self._done = until
            except ReplayError as error:
                self.refusal = str(error)
                self._shards, self._done = [], self.full
        if until > self._done:
            self._shards += self._train(self._done, until)
            self._done = until
        return self._shards

    def _check(self, trained: Sequence[Shard]) -> None:
        """Raise a ReplayError unless the trained trials have the same scores when they are replayed."""
        if not self._checked:
            replayed = _joined(self._replay(self._ranges(0, self.full)))
            apart = gap({name: scores for name, scores in _joined(trained).items() if name in replayed}, replayed)
            if not apart <= TOLERANCE:
                raise ReplayError(_different(apart))
            self._checked = True

    def _ranges(self, done: int, until: int) -> list[range]:
        """Replica numbers of the trials from `done` to `until` in each world."""
        end = self._first + 2 * until
        starts = range(self._first + 2 * done, end, _PIECE)
        return [range(start, min(start + _PIECE, end)) for start in starts]


def _joined(shards: Sequence[Shard]) -> dict[str, Tensor]:
    return {name: torch.cat([shard[name] for shard in shards]) for name in shards[0]}
