"""The schedule that is read off recorded messages: each message counts once, for whoever sees it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from vflpriv.core.schedules import Batching
from vflpriv.core.wire import SERVER, Message, device
from vflpriv.errors import InputError
from vflpriv.recording.schedule import BatchSampling, RecordedSchedule


def down(round_, m, ids, kind="reply", value=0.0):
    records = None if ids is None else torch.tensor(ids)
    tensors = {"x": torch.full((1, 2), value)}
    return Message(round=round_, sender=SERVER, receiver=device(m), kind=kind, tensors=tensors, records=records)


def read(messages, *, records=6, devices=2, shared=(), public=(), **sampled):
    return RecordedSchedule.of(
        messages,
        records=records,
        devices=devices,
        shared=frozenset(shared),
        public=frozenset(public),
        sampled=BatchSampling(**sampled),
    )


def counts(found, kind, devices=None):
    schedule = found.schedule
    rounds = found.kinds[kind] if devices is None else found.kinds[kind] & schedule.visible(devices)
    return schedule.counts(rounds).tolist()


def test_every_message_counts_for_whoever_sees_its_link():
    found = read([down(0, 0, [0, 1]), down(0, 1, [1, 2]), down(2, 0, [0, 5])])
    assert counts(found, "reply") == [2, 2, 1, 0, 0, 1]
    assert counts(found, "reply", [0]) == [2, 1, 0, 0, 0, 1]
    assert counts(found, "reply", [1]) == [0, 1, 1, 0, 0, 0]


def test_two_messages_of_a_kind_in_one_round_count_twice():
    found = read([down(0, 0, [0, 1]), down(0, 0, [0, 2])])
    assert counts(found, "reply", [0]) == [2, 1, 1, 0, 0, 0]


def test_a_kind_that_is_sent_up_and_down_counts_twice():
    back = replace(down(0, 0, [0]), sender=device(0), receiver=SERVER)
    assert counts(read([back, down(0, 0, [0])]), "reply") == [2, 0, 0, 0, 0, 0]


def test_kinds_of_one_turn_share_it_and_keep_their_own_marks():
    found = read([down(0, 0, [0]), down(0, 0, [0], "other"), down(1, 0, [3], "other")])
    assert found.schedule.rounds == 2
    assert counts(found, "reply") == [1, 0, 0, 0, 0, 0]
    assert counts(found, "other") == [1, 0, 0, 1, 0, 0]


def test_a_message_without_ids_counts_for_every_record():
    assert counts(read([down(0, 0, None)]), "reply") == [1] * 6


def test_a_shared_value_counts_once_and_must_be_one_value():
    same = [down(0, 0, [0, 1], value=2.0), down(0, 1, [0, 1], value=2.0)]
    assert counts(read(same), "reply") == [2, 2, 0, 0, 0, 0]
    assert counts(read(same, shared=["reply"]), "reply") == [1, 1, 0, 0, 0, 0]
    for other in (down(0, 1, [0, 1], value=3.0), down(0, 1, [0, 2], value=2.0), down(0, 1, None, value=2.0)):
        with pytest.raises(InputError, match="different values"):
            read([same[0], other], shared=["reply"])


def test_public_kinds_are_nobodys_turn():
    found = read([down(0, 0, [0], "ids"), down(0, 0, [1])], public=["ids"])
    assert found.schedule.rounds == 1
    assert not found.kinds["ids"].any()
    nothing = read([down(0, 0, [0], "ids")], public=["ids"], batching=Batching.FIXED, size=3)
    assert nothing.schedule.rounds == 1
    assert counts(nothing, "ids") == [0] * 6


def test_unrecorded_rounds_count_for_every_record_and_device():
    found = read([down(0, 0, [0, 1])], unrecorded=3)
    assert counts(found, "reply", [0]) == [4, 4, 3, 3, 3, 3]
    assert counts(found, "reply", [1]) == [3] * 6
    assert found.unrecorded.tolist() == [False] + [True] * 6


def test_batches_are_as_they_are_said_to_be():
    fixed = [down(t, 0, [t, t + 1]) for t in range(4)]
    assert read(fixed, devices=1, batching=Batching.FIXED, size=2).schedule.batching is Batching.FIXED
    full = [down(t, 0, list(range(6))) for t in range(2)]
    assert read(full, devices=1, batching=Batching.FULL).schedule.batching is Batching.FULL
    for wrong in ({"batching": Batching.FIXED, "size": 3}, {"batching": Batching.FULL}, {"batching": Batching.FIXED}):
        with pytest.raises(InputError, match="batches"):
            read(fixed, devices=1, **wrong)


def test_poisson_batches_have_the_sizes_of_poisson_batches():
    generator = np.random.default_rng(0)
    ids = [np.flatnonzero(generator.random(1000) < 0.05).tolist() for _ in range(50)]
    messages = [down(t, 0, batch) for t, batch in enumerate(ids)]
    found = read(messages, records=1000, devices=1, batching=Batching.POISSON, size=50)
    assert found.schedule.rate == 0.05
    with pytest.raises(InputError, match="mean of Poisson batches"):
        read(messages, records=1000, devices=1, batching=Batching.POISSON, size=70)


def test_turns_that_share_a_batch_are_not_amplified():
    together = [down(t, m, [t, t + 1]) for t in range(4) for m in range(2)]
    found = read(together, batching=Batching.FIXED, size=2)
    assert found.schedule.batching is Batching.SHUFFLE
    assert found.note is not None
    assert read(together, shared=["reply"], batching=Batching.FIXED, size=2).schedule.batching is Batching.FIXED


def test_batches_of_all_records_take_the_room_of_one():
    named, all_ = down(0, 0, [1, 2]), [down(round_, 0, None) for round_ in range(1, 40)]
    schedule = read([named, *all_, down(40, 1, [5])], unrecorded=100_000).schedule
    assert len(schedule.order) == 2 + 1 + 6
    assert [schedule.batch(t).tolist() for t in (0, 1, 39, 40, 41, schedule.rounds - 1)] == [
        [1, 2],
        list(range(6)),
        list(range(6)),
        [5],
        list(range(6)),
        list(range(6)),
    ]
    every = np.ones(schedule.rounds, dtype=np.bool_)
    assert (schedule.counts(every) - 39 - 2 * 100_000).tolist() == [0, 1, 1, 0, 0, 1]
    assert schedule.first_rounds().tolist() == [1, 0, 0, 1, 1, 1]


def test_a_table_of_turns_and_devices_that_fills_the_memory_is_refused():
    with pytest.raises(InputError, match="devices"):
        read([down(0, 0, [1])], devices=10_000, unrecorded=1_000)


def test_a_batch_of_several_messages_is_held_once():
    ids = torch.tensor([4, 1])
    shared = [replace(down(t, m, None, kind), records=ids) for t in range(3) for m in range(2) for kind in "ab"]
    found = read([*shared, down(3, 0, [1, 5], "a"), down(4, 0, None, "a")])
    assert found.schedule.order.tolist() == [4, 1, 1, 5, 0, 1, 2, 3, 4, 5]
    assert counts(found, "a") == [1, 8, 1, 1, 7, 2]
    assert counts(found, "b", [1]) == [0, 3, 0, 0, 3, 0]
    assert found.schedule.first_rounds().tolist() == [7, 0, 7, 7, 0, 6]
