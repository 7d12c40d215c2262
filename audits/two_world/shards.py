"""Shards of trials: replicas that are trained, scored and stored together, as tasks for an executor.

The size of a shard is the same on every machine, and so are the shards of an audit and the keys under which they are
stored. Where memory is short, a shard is trained in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflpriv.audits.two_world.replays import replayed_scores
from vflpriv.audits.two_world.scores import SCORERS, Request, trainings_per_trial
from vflpriv.common.memory import budget, out_of_memory, release_cached
from vflpriv.common.tasks import Progress, Tasks, Worker
from vflpriv.core.canaries import Canary
from vflpriv.core.systems import System, accelerated
from vflpriv.core.views import Adversary
from vflpriv.training.memory import replica_bytes

__all__ = ["REPLICAS", "ShardPart", "ShardTask", "filled", "score_shard", "shard_ranges", "shard_tasks"]

REPLICAS = 64
"""Replicas of a shard. On digits 32 cost 13 to 42 % more CPU time a replica than 256, 64 at most 14 %, 128 nothing; but
128 leave 2 × 64 trials to a single core."""

Shard = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class ShardPart:
    """Replicas whose trials are scored together: trained and watched as a whole by some, or replayed."""

    replicas: range
    watchers: tuple[Adversary, ...] = ()
    replayed: bool = False
    """Whether the releases of the first replicas are replayed for the others, which are not trained."""

    @property
    def key(self) -> str:
        """What tells its scores from others of the same replicas in the store."""
        return "replayed" if self.replayed else "+".join(map(str, self.watchers))


@dataclass(frozen=True, eq=False, kw_only=True)
class ShardTask:
    """Replicas to be scored with a canary by a method through views."""

    canary: Canary
    method: str
    adversaries: tuple[Adversary, ...]
    part: ShardPart
    replica_bytes: int
    """The memory of one replica, those of its twins or shadows included."""


def shard_ranges(first: int, done: int, until: int) -> list[range]:
    """Replica numbers of the trials from `done` to `until` in each world; even ones live in world 0, odd in world 1."""
    end = first + 2 * until
    return [range(start, min(start + REPLICAS, end)) for start in range(first + 2 * done, end, REPLICAS)]


def shard_tasks(
    system: System,
    parts: Sequence[ShardPart],
    *,
    canary: Canary,
    method: str,
    adversaries: tuple[Adversary, ...],
) -> Tasks[System, ShardTask, Shard]:
    """The tasks of replicas that are still to be scored."""
    memory = replica_bytes(system) * trainings_per_trial(method, adversaries) if parts else 0
    items = [
        ShardTask(canary=canary, method=method, adversaries=adversaries, part=part, replica_bytes=memory)
        for part in parts
    ]
    return Tasks(
        function=score_shard,
        common=system,
        items=items,
        names=[f"{system.key}, {method}, replicas {p.replicas.start} to {p.replicas.stop - 1}" for p in parts],
        accelerated=accelerated(system),
    )


def score_shard(system: System, task: ShardTask, worker: Worker) -> Shard:
    """Train and score the replicas, together where memory allows, in parts where it does not; or replay them."""
    part, scorer = task.part, replayed_scores if task.part.replayed else SCORERS[task.method]
    room = budget(system.torch_device, worker.neighbours) // max(1, task.replica_bytes)
    counted = _Counted(worker.progress)

    def score(replicas: range) -> Shard:
        request = Request(
            system=system,
            ledger=system.ledger,
            canary=task.canary,
            adversaries=task.adversaries,
            replicas=replicas,
            step=lambda rounds: counted.advance(rounds * len(replicas)),
            watchers=part.watchers,
        )
        counted.begin()
        scores = scorer(request)
        counted.end()
        return {name: score.to(torch.float32).cpu() for name, score in scores.items()}

    # A replay trains two replicas, however many there are.
    return score(part.replicas) if part.replayed else _joined(in_parts(part.replicas, room, score, system.torch_device))


def in_parts(
    replicas: range, room: int, score: Callable[[range], Shard], device: torch.device | None = None
) -> list[Shard]:
    """The scores of some replicas at a time, `room` or fewer: after an out-of-memory error half as many."""
    size, start, parts = _even(min(room, len(replicas))), 0, []
    while start < len(replicas):
        part = replicas[start : start + size]
        try:
            parts.append(score(part))
            start += len(part)
        except (MemoryError, RuntimeError) as error:
            if len(part) <= 2 or not out_of_memory(error):
                raise
            size = _even(len(part) // 2)
        if start < len(replicas) and device is not None:
            release_cached(device)
    return parts


def _even(size: int) -> int:
    """As many replicas in either world, at least one."""
    return max(2, size // 2 * 2)


class _Counted:
    """Progress of parts, of which one that ran out of memory is not counted again when it is trained once more."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._lost, self._done = progress, 0, 0

    def begin(self) -> None:
        """A part begins; what one that failed has done was counted, and is now to be done again."""
        self._lost, self._done = self._lost + self._done, 0

    def advance(self, work: int) -> None:
        again = min(work, self._lost)
        self._lost -= again
        self._done += work
        self._progress.advance(work - again)

    def end(self) -> None:
        self._done = 0


def _joined(parts: Sequence[Shard]) -> Shard:
    """One shard of several parts; features that a part has fewer of are filled up with zeros."""
    return parts[0] if len(parts) == 1 else {name: filled([part[name] for part in parts]) for name in parts[0]}


def filled(parts: Sequence[Tensor]) -> Tensor:
    """All rows, (n,) or (n, F) each, under each other; narrower parts are filled up with zeros.

    >>> filled([torch.ones(1, 1), torch.ones(1, 2)]).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    if parts[0].dim() == 1:
        return torch.cat(list(parts))
    width = max(part.shape[1] for part in parts)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in parts])
