"""Rounds in which a random subset of the devices takes part: who steps, what the server holds, what is counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.support import make_system
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import SERVER, Transcript, Wire
from vflpriv.errors import InputError
from vflpriv.training.held import HeldOutputs

VARIANTS = ["split-concat", "split-sum", "fedbcd", "fdml", "vimadmm", "vimadmm-mlp", "vimadmm-j", "linear-admm"]
MOMENTUM = {"momentum": 0.9}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_subset_of_all_devices_changes_nothing(variant):
    sent = []
    for together in (None, 3):
        transcript = Transcript()
        make_system(variant, rounds=3, together=together, **MOMENTUM).train((0, 1)).run(Wire(transcript))
        sent.append(transcript.messages)
    for one, other in zip(*sent, strict=True):
        assert one.sender == other.sender
        assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_devices_of_the_round_send_are_answered_and_step(variant):
    system = make_system(variant, rounds=6, together=2, **MOMENTUM)
    engine, transcript = system.train((0, 1)), Transcript()
    for round_ in range(6):
        before = [{n: v.clone() for n, v in own.items()} for own in engine.bank.parameters]
        engine.round(round_, Wire(transcript))
        members = set(system.schedule.members(round_))
        assert len(members) == 2
        ours = [message for message in transcript.messages if message.round == round_]
        assert {m.sender.index for m in ours if m.receiver == SERVER} == members
        assert {m.receiver.index for m in ours if m.sender == SERVER} == members
        for m, (old, new) in enumerate(zip(before, engine.bank.parameters, strict=True)):
            moved = any(not torch.equal(old[name], new[name]) for name in new)
            assert moved == (m in members)


def test_momentum_of_a_device_waits_for_its_next_round():
    system = make_system("split-sum", rounds=9, together=1, **MOMENTUM)
    engine = system.train((0,))
    for round_ in range(9):
        (active,) = system.schedule.members(round_)
        old = [{n: v.clone() for n, v in own.items()} for own in engine.bank._by_device(engine.bank.velocity(0.9))]
        engine.round(round_, Wire())
        new = engine.bank._by_device(engine.bank.velocity(0.9))
        changed = {m for m in range(3) if any(not torch.equal(old[m][n], new[m][n]) for n in new[m])}
        assert changed == {active}


def test_the_server_holds_the_last_outputs_of_each_record():
    schedule = make_system("split-sum", rounds=4, together=2).schedule
    held = HeldOutputs(schedule, replicas=1, width=2, device=torch.device("cpu"))
    ones = torch.ones(1, 2, 2)
    first = held.of(torch.tensor([4, 7]), {0: ones, 2: 2 * ones})
    assert [float(own.mean()) for own in first] == [1, 0, 2]
    second = held.of(torch.tensor([7, 9]), {0: 5 * ones, 1: 3 * ones})
    assert [own[0, :, 0].tolist() for own in second] == [[5, 5], [3, 3], [2, 0]]


def test_the_ledger_counts_the_rounds_of_each_device():
    """The most exposed device counts for units of one device; all rounds with a record's batch count for the record."""
    whole, some = (make_system("vimadmm-client", rounds=40, together=t, batch_size=20) for t in (None, 1))
    schedule = some.schedule
    assert schedule.active.sum() == 40
    most = int(schedule.active.sum(axis=0).max())
    assert 40 / 3 <= most < 40
    server = Adversary.parse("server")
    mus = {unit: [s.ledger.exposure(server, unit).mu for s in (whole, some)] for unit in (Unit.CLIENT, Unit.RECORD)}
    assert mus[Unit.CLIENT][1] == pytest.approx(mus[Unit.CLIENT][0] * np.sqrt(most / 40))
    assert mus[Unit.RECORD][1] == pytest.approx(mus[Unit.RECORD][0] / np.sqrt(3))


def test_more_devices_than_there_are_is_an_error_that_names_the_setting():
    with pytest.raises(InputError, match=r"^together = 4: expected 1 to 3 devices$"):
        make_system("vimadmm", together=4)
