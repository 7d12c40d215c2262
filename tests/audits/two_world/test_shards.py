"""Shards: the same on every machine, and trained in parts, with the same results, where memory is short."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.run.executors.work import Told
from tests.support import make_system
from vflpriv.audits.two_world import shards
from vflpriv.audits.two_world.canaries import plan
from vflpriv.audits.two_world.methods import METHODS
from vflpriv.audits.two_world.plan import Plan
from vflpriv.audits.two_world.shards import REPLICAS, ShardPart, in_parts, score_shard, shard_ranges, shard_tasks
from vflpriv.audits.two_world.whole_view import feature_key
from vflpriv.common.store import Store
from vflpriv.common.tasks import Worker
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.views import Adversary

ALL = Adversary.parse("devices(all)")


def task(method: str, *others: str) -> Any:
    system = make_system("dpzv-joint")
    canary = plan(system, CanaryKind.NATURAL, 3, Store())
    views = {view: view for view in (ALL, *map(Adversary.parse, others))}
    planned = Plan(
        system=system,
        canary=canary,
        method=METHODS[method],
        reach=10.0,
        trials=4,
        learning=0,
        eyes=views,
        methods={},
        threshold=0.0,
        watchers={ALL: (ALL,)},
        watched=4,
        full=4,
        replay_refusal=None,
    )
    tasks = shard_tasks(planned, [ShardPart(replicas=range(8), watchers=(ALL,))])
    return planned, tasks.items[0]


def test_ranges_are_of_one_size_whatever_the_machine() -> None:
    assert shard_ranges(10, 0, REPLICAS + 3) == [
        range(10, 10 + REPLICAS),
        range(10 + REPLICAS, 10 + 2 * REPLICAS),
        range(10 + 2 * REPLICAS, 16 + 2 * REPLICAS),
    ]
    assert shard_ranges(10, 3, 3) == []


@pytest.mark.parametrize("method", ["likelihood ratio", "twins", "learned"])
@pytest.mark.parametrize("most", [2, 4])
def test_an_error_of_memory_halves_the_part_and_changes_nothing(method: str, most: int, monkeypatch: Any) -> None:
    planned, item = task(method)
    whole, told = score_shard(planned, item, Worker()), Told()
    tried, score = [], planned.method.scores

    def short(request: Any) -> Any:
        tried.append(len(request.replicas))
        if len(request.replicas) > most:
            request.step(2)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return score(request)

    monkeypatch.setattr(planned.method, "scores", short)
    parts = score_shard(planned, item, Worker(progress=told))
    assert tried == {2: [8, 4, 2, 2, 2, 2], 4: [8, 4, 4]}[most]
    assert whole.keys() == parts.keys()
    for name, value in whole.items():
        assert parts[name].shape == value.shape
        # Features of the whole view read the last bits, which a product of two matrices rounds in its own way.
        if most > 2 or name != feature_key(str(ALL)):
            torch.testing.assert_close(parts[name], value, rtol=1e-4, atol=1e-4)
    assert sum(told.work) == 8 * planned.system.schedule.rounds


def test_a_shard_is_planned_in_parts_where_memory_is_short(monkeypatch: Any) -> None:
    planned, item = task("twins")
    sizes, score = [], planned.method.scores
    monkeypatch.setattr(
        planned.method, "scores", lambda request: (sizes.append(len(request.replicas)), score(request))[1]
    )
    for free, neighbours, expected in ((100, 1, [8]), (9, 2, [4, 4]), (0, 1, [2, 2, 2, 2])):
        monkeypatch.setattr(shards, "budget", lambda device, n, free=free: free * item.replica_bytes // n)
        sizes.clear()
        score_shard(planned, item, Worker(neighbours=neighbours))
        assert sizes == expected


def test_twins_and_shadows_count() -> None:
    asked = (("likelihood ratio",), ("twins",), ("shadow models", "model"), ("twins", "model"))
    alone, twins, shadows, both = (task(*question)[1].replica_bytes for question in asked)
    assert (twins, shadows, both) == (2 * alone, 3 * alone, 4 * alone)


def test_other_errors_and_two_replicas_without_room_are_raised() -> None:
    def fail(error: Exception) -> Any:
        def score(replicas: range) -> Any:
            raise error

        return score

    with pytest.raises(RuntimeError, match="shapes"):
        in_parts(range(8), 8, fail(RuntimeError("shapes")))
    with pytest.raises(MemoryError):
        in_parts(range(8), 8, fail(MemoryError()))
