"""Schedules: blind to the data, drawn from the seed, balanced where they say so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vflpriv.core.schedules import Activation, Batching, Schedule
from vflpriv.errors import InputError


def draw(**changes) -> Schedule:
    base = {
        "batching": Batching.SHUFFLE,
        "activation": Activation.ROUND_ROBIN,
        "records": 53,
        "batch_size": 8,
        "rounds": 120,
        "devices": 3,
        "seed": 0,
    }
    return Schedule.draw(**{**base, **changes})


@given(
    st.sampled_from(list(Batching)),
    st.sampled_from(list(Activation)),
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 30),
    st.integers(1, 5),
)
def test_counts_are_those_of_the_batches(batching, activation, records, batch, rounds, devices):
    batch = min(batch, records)
    s = draw(
        batching=batching, activation=activation, records=records, batch_size=batch, rounds=rounds, devices=devices
    )
    counts, first = np.zeros(records, dtype=int), np.full(records, rounds)
    for t in range(rounds):
        ids = s.batch(t)
        assert len(set(ids.tolist())) == len(ids), "a record is in a batch once"
        counts[ids] += 1
        first[ids] = np.minimum(first[ids], t)
    assert np.array_equal(s.counts(np.ones(rounds, dtype=bool)), counts)
    assert np.array_equal(s.first_rounds(), first)


def test_a_shuffled_epoch_passes_over_every_record_once_for_each_device():
    s = draw()
    per_epoch = -(-53 // 8)
    for m in range(3):
        mine = np.flatnonzero(s.active[:, m])
        for epoch in range(len(mine) // per_epoch):
            ids = np.concatenate([s.batch(t) for t in mine[epoch * per_epoch : (epoch + 1) * per_epoch]])
            assert sorted(ids) == list(range(53))


def test_devices_in_turn_see_every_record_equally_often_but_for_one():
    s = draw(records=1437, batch_size=64, rounds=1122, devices=4)
    for m in range(4):
        counts = s.counts(s.visible([m]))
        assert counts.max() - counts.min() <= 1
    total = s.counts(np.ones(1122, dtype=bool))
    assert total.max() - total.min() <= 1
    assert (s.counts(s.visible([0])).max(), total.max()) == (13, 49)


def test_poisson_batches_have_the_binomial_size_and_fixed_ones_the_given_one():
    poisson = draw(batching=Batching.POISSON, rounds=4000)
    assert abs(poisson.size.mean() - 8) < 0.2
    assert abs(poisson.size.var() - 53 * (8 / 53) * (45 / 53)) < 0.6
    assert (draw(batching=Batching.FIXED).size == 8).all()


def test_clocks_ring_at_their_rates():
    s = draw(activation=Activation.CLOCKS, rounds=6000, rates=(1.0, 2.0, 3.0))
    shares = s.active.mean(0)
    assert np.abs(shares - np.array([1, 2, 3]) / 6).max() < 0.03


def test_several_devices_take_part_together():
    s = draw(activation=Activation.SEVERAL, together=2, rounds=4000, rates=(1.0, 1.0, 4.0))
    assert (s.active.sum(1) == 2).all()
    assert s.active.mean(0)[2] > s.active.mean(0)[0]
    assert s.turns is None
    assert draw().turns == [t % 3 for t in range(120)]


def test_staleness_is_the_age_of_what_a_round_reads():
    s = draw(rounds=30)
    sent: dict[tuple[int, int], int] = {}
    expected: list[int] = []
    for t in range(30):
        (active,) = s.members(t)
        for i in s.batch(t):
            expected += [t - sent[i, m] if (i, m) in sent else -1 for m in range(3) if m != active]
        for i in s.batch(t):
            sent[i, active] = t
    assert dict(s.staleness()) == {age: expected.count(age) for age in set(expected)}
    assert not draw(activation=Activation.ALL).staleness()


def test_the_seed_decides():
    first, again, other = draw(seed=1), draw(seed=1), draw(seed=2)
    assert np.array_equal(first.order, again.order)
    assert not np.array_equal(first.order, other.order)


def test_full_batches_hold_everybody_every_time():
    s = draw(batching=Batching.FULL)
    assert s.rate == 1.0
    assert (s.counts(np.ones(120, dtype=bool)) == 120).all()
    assert (s.first_rounds() == 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 54}, "batch_size = 54: expected at most the 53 records there are"),
        ({"activation": Activation.SEVERAL, "together": 4}, "together = 4: expected 1 to 3 devices"),
        ({"activation": Activation.CLOCKS, "rates": (1.0,)}, "expected 3 positive numbers"),
        ({"activation": Activation.CLOCKS, "rates": (1.0, -1.0, 1.0)}, "expected 3 positive numbers"),
    ],
)
def test_impossible_schedules_are_refused(changes, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        draw(**changes)
