"""Scores of worst-case canaries without training: the releases of one training, replayed for many replicas.

Every call trains the first replica of each world and compares its score with that of the same replica replayed. Where
they differ, or a release cannot be replayed, there are no scores: trials are then trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from vflpriv.audits.twins.probes import Released
from vflpriv.audits.two_world.replay import Followers, Leader, ReplayError
from vflpriv.audits.two_world.scores import LikelihoodRatio, Request, for_replicas, ratio_scores
from vflpriv.core.canaries import Canary
from vflpriv.core.systems import System

__all__ = ["TOLERANCE", "Replays", "gap", "replay_refusal", "replayed_scores"]

TOLERANCE = 1e-3
"""How far apart the scores of a replica may be, trained and replayed, relative to the scores' root mean square."""
_PIECE, _TOGETHER = 4096, 256
"""Replicas that are replayed with the same leaders, and how many of them at once."""
_LEADERS = 2
Shard = dict[str, Tensor]


def replay_refusal(system: System, method: str) -> str | None:
    """Why trials that are scored by this method cannot be replayed, or None."""
    if method not in ("likelihood ratio", "secret batches"):
        return f"scores by {method} depend on models"
    if system.secure_noise:
        return "noise from the operating system cannot be drawn again"
    return None


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
        one, other = scores.to(torch.float64).cpu(), replayed[name].to(torch.float64).cpu()
        gaps.append(float((one - other).abs().max()) / max(1e-30, float(one.square().mean().sqrt())))
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
