"""Replays of release points: the same calls, the same code, and a leader whose engine is not disturbed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support import make_system
from vflpriv.audits.twins.probes import in_worlds
from vflpriv.audits.two_world.canaries import plan
from vflpriv.audits.two_world.replay import Followers, Leader, ReplayError
from vflpriv.audits.two_world.scores import for_replicas
from vflpriv.common.store import Store
from vflpriv.core.canaries import Canary, CanaryKind, most_exposed
from vflpriv.core.engine import Contributions
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.training.engines.split import Split

REPLICAS = range(6, 12)


def worst_case(system: System, unit: Unit, replicas: range = REPLICAS) -> Canary:
    record = most_exposed([], system.schedule)
    canary = plan(system, CanaryKind.WORST_CASE, record, Store(), unit=unit)
    return for_replicas(canary, [r % 2 for r in replicas])


@pytest.mark.parametrize(
    ("variant", "unit"),
    [("dpzv-joint", Unit.RECORD), ("split-embedding", Unit.RECORD), ("zoo-vfl-embedding", Unit.CLIENT)],
)
def test_followers_release_what_the_same_replicas_release_when_trained_but_for_the_other_records(variant, unit):
    """What a value is beyond the middle of the two worlds is the noise and the canary: the same bits but rounding."""
    system = make_system(variant)
    canary, pair = worst_case(system, unit), REPLICAS[:2]
    engine, probe = in_worlds(system, REPLICAS, canary)
    leader = Leader(system, pair, worst_case(system, unit, pair))
    followers = Followers(system, leader, REPLICAS, canary)
    leader.listen()
    compared = 0
    for round_ in range(system.schedule.rounds):
        trained = [v for v in probe.round(engine, round_) if v.worlds is not None and v.message is not None]
        replayed = list(followers.replay(leader.round(round_)))
        assert len(trained) == len(replayed)
        for one, other in zip(trained, replayed, strict=True):
            assert (one.message.kind, one.message.receiver) == (other.message.kind, other.message.receiver)
            middle = [v.released - v.worlds.mean(1) for v in (one, other)]
            torch.testing.assert_close(*middle, rtol=1e-4, atol=1e-4)
            compared += 1
    assert compared


def test_a_leader_trains_what_it_trains_when_nobody_listens():
    system = make_system("dpzv-joint")
    canary = worst_case(system, Unit.RECORD)
    engine, probe = in_worlds(system, REPLICAS, canary)
    leader = Leader(system, REPLICAS, canary)
    followers = Followers(system, leader, range(100, 140), worst_case(system, Unit.RECORD, range(100, 140)))
    leader.listen()
    for round_ in range(system.schedule.rounds):
        alone = probe.round(engine, round_)
        calls = leader.round(round_)
        list(followers.replay(calls))
        heard = [value for call in calls for value in call.values]
        assert [torch.equal(a.released, b.released) for a, b in zip(alone, heard, strict=True)] == [True] * len(alone)


def test_values_that_the_canary_does_not_move_are_not_replayed():
    system = make_system("dpzv-joint")
    canary = worst_case(system, Unit.RECORD)
    leader = Leader(system, REPLICAS, canary)
    leader.listen()
    scored = [any(call.scored for call in leader.round(r)) for r in range(system.schedule.rounds)]
    assert scored == [canary.record in system.schedule.batch(r) for r in range(system.schedule.rounds)]


class _OwnNormals(Split):
    name = "own-normals"

    def uplinks(self, round_, members, records):
        payloads = super().uplinks(round_, members, records)
        for m, payload in payloads.items():
            rows = payload.tensors["embedding"]
            made = Contributions(round=round_, party=m, records=records, values=rows, clipped=True)
            payload.tensors["embedding"] = self.uplink_point.release(made, torch.zeros_like(rows))
        return payloads


def test_normals_that_a_point_did_not_draw_itself_cannot_be_replayed():
    system = replace(make_system("split-embedding"), engine=_OwnNormals)
    leader = Leader(system, REPLICAS, worst_case(system, Unit.RECORD))
    leader.listen()
    with pytest.raises(ReplayError, match="normals"):
        leader.round(0)
