"""Whole trainings in two worlds: what is kept of a run, and how two of them are compared."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from tests.support import ENGINES, make_system
from vflpriv.audits.twins.check import TwinCheck
from vflpriv.audits.twins.pairs import CONTROL
from vflpriv.audits.twins.runs import RunTape, compare_runs, plan_runs, record_run, run_data
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.wire import Wire

BOTH = [Unit.LABEL, Unit.FEATURES]


ROUNDS = 6
"""Enough for every device's turn, and for delays to end."""


def compared(system: System, unit: Unit | None, room: int = 1 << 20, leader: RunTape | None = None) -> TwinCheck:
    """The world 0 of all canaries, in which `leader` ran, against world 1, or against itself."""
    canaries = plan_runs(system, BOTH)
    canary = next((c for c in canaries if c.unit is unit), CONTROL)
    first = run_data(system.data, canaries[0], 0)
    leader = leader or record_run(system, first, room=room)
    other = first if unit is None else run_data(system.data, canary, 1)
    follower = record_run(system, other, leader, room=room)
    check = TwinCheck(system.ledger, [canary])
    for twins in compare_runs(leader, follower, system.schedule.rounds):
        check.add(twins)
    return check


@cache
def leader_of(variant: str) -> RunTape:
    """The run that all units are compared with: their world 0 is the same."""
    system = make_system(variant, rounds=ROUNDS)
    label, features = (run_data(system.data, canary, 0) for canary in plan_runs(system, BOTH))
    assert torch.equal(label.labels, features.labels)
    assert all(map(torch.equal, label.blocks, features.blocks))
    return record_run(system, label, room=1 << 20)


def test_the_two_worlds_differ_in_one_record_alone() -> None:
    system = make_system("dpzv-joint")
    label, features = plan_runs(system, BOTH)
    one, other = run_data(system.data, label, 0), run_data(system.data, label, 1)
    assert (one.labels != other.labels).nonzero()[:, 0].tolist() == [label.record]
    assert all(torch.equal(a, b) for a, b in zip(one.blocks, other.blocks, strict=True))
    one, other = run_data(system.data, features, 0), run_data(system.data, features, 1)
    changed = [(a != b).any(1).nonzero()[:, 0].tolist() for a, b in zip(one.blocks, other.blocks, strict=True)]
    assert sorted(changed)[-1] == [features.record]
    assert sum(map(len, changed)) == 1
    assert torch.equal(one.labels, other.labels)
    assert plan_runs(system, [Unit.RECORD]) == []


@pytest.mark.parametrize("variant", sorted(ENGINES))
@pytest.mark.parametrize("unit", [None, *BOTH])
def test_sound_trainings_are_compared_whole(variant: str, unit: Unit | None) -> None:
    system = make_system(variant, rounds=ROUNDS)
    check = compared(system, unit, leader=leader_of(variant))
    assert check.uneven is None
    assert check.uncontrolled is None
    assert not check.found
    assert check.tensors >= system.schedule.rounds


def test_a_recorded_run_is_the_run_of_a_user() -> None:
    system = make_system("dpzv-joint")
    engine, tape = system.train([0]), record_run(system, system.data)
    wire = Wire()
    engine.run(wire)
    assert sum(tape.sent.values()) == wire.traffic.messages.total()
    assert len(tape.values) == system.schedule.rounds
    assert all(value.message is not None and value.message.kind == "zo-scalar" for value in tape.values)


def test_tensors_without_room_are_known_by_their_digests() -> None:
    system = make_system("split-sum")
    assert not compared(system, None, room=0).found
    whole, digests = compared(system, Unit.LABEL), compared(system, Unit.LABEL, room=0)
    assert digests.tensors == whole.tensors


def test_a_difference_between_digests_has_no_size() -> None:
    system = make_system("dpzv-joint")
    first, second = (record_run(system, system.data, room=200) for _ in range(2))
    first.events[-1].digests["delta"] = b"another"
    *equal, last = compare_runs(first, second, system.schedule.rounds)
    pairs = [pair for twins in equal for pair in zip(*twins.messages, strict=True)]
    assert all(torch.equal(tensor, other.tensors[name]) for one, other in pairs for name, tensor in one.tensors.items())
    assert last.messages[0][-1].tensors["delta"].tolist() == [0.0]
    assert last.messages[1][-1].tensors["delta"].isnan().all()


def test_without_room_for_released_values_forms_alone_are_compared() -> None:
    system = make_system("dpzv-joint", rounds=20)
    tape = record_run(system, system.data, room=40)
    assert tape.blind
    assert 0 < len(tape.values) < 20
    check = compared(system, Unit.LABEL, room=40)
    assert not check.found
    assert check.tensors == 60
