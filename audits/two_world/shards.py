"""Shards of trials: replicas that are trained, scored and stored together, as tasks for an executor.

The size of a shard is the same on every machine, and so are the shards of an audit and the keys under which they are
stored. Where memory is short, a shard is trained in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vflpriv.audits.two_world.methods import trainings_per_trial
from vflpriv.audits.two_world.plan import Plan
from vflpriv.audits.two_world.replay import replayed_scores
from vflpriv.audits.two_world.scores import filled
from vflpriv.common.memory import budget, out_of_memory, release_cached
from vflpriv.common.tasks import Progress, Tasks, Worker
from vflpriv.core.systems import accelerated
from vflpriv.core.views import Adversary
from vflpriv.training.memory import replica_bytes

__all__ = ["REPLICAS", "ShardPart", "score_shard", "shard_ranges", "shard_tasks"]

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
    replica_bytes: int = 0
    """The memory of one replica, those of its twins or shadows included."""

    @property
    def key(self) -> str:
        """What tells its scores from others of the same replicas in the store."""
        return "replayed" if self.replayed else "+".join(map(str, self.watchers))


def shard_ranges(first: int, done: int, until: int) -> list[range]:
    """Replica numbers of the trials from `done` to `until` in each world; even ones live in world 0, odd in world 1."""
    end = first + 2 * until
    return [range(start, min(start + REPLICAS, end)) for start in range(first + 2 * done, end, REPLICAS)]


def shard_tasks(plan: Plan, parts: Sequence[ShardPart]) -> Tasks[Plan, ShardPart, Shard]:
    """The tasks of replicas that are still to be scored."""
    system, name = plan.system, plan.method.name
    memory = replica_bytes(system) * trainings_per_trial(plan.method, plan.observers) if parts else 0
    return Tasks(
        function=score_shard,
        common=plan,
        items=[replace(part, replica_bytes=memory) for part in parts],
        names=[f"{system.key}, {name}, replicas {p.replicas.start} to {p.replicas.stop - 1}" for p in parts],
        accelerated=accelerated(system),
    )


def score_shard(plan: Plan, part: ShardPart, worker: Worker) -> Shard:
    """Train and score the replicas, together where memory allows, in parts where it does not; or replay them."""
    scorer = replayed_scores if part.replayed else plan.method.scores
    device = plan.system.torch_device
    room = budget(device, worker.neighbours) // max(1, part.replica_bytes)
    counted = _Counted(worker.progress)

    def score(replicas: range) -> Shard:
        def step(rounds: int) -> None:
            counted.advance(rounds * len(replicas))

        counted.begin()
        scores = scorer(plan.request(replicas, step, part.watchers))
        counted.end()
        return {name: score.to(torch.float32).cpu() for name, score in scores.items()}

    # A replay trains two replicas, however many there are.
    return score(part.replicas) if part.replayed else _joined(in_parts(part.replicas, room, score, device))


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
