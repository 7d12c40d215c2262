"""Releases and schedules on a few odd rounds: what is protected, who reads it, and what stops early."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.core.test_small_ledgers import BATCHES, DEVICES, MASK, RECORDS, SENDERS, SMALL, release, small
from vflpriv.core.releases import StateLeak
from vflpriv.core.schedules import Activation, Batching, Schedule
from vflpriv.core.units import Unit
from vflpriv.errors import InputError
from vflpriv.laws import Exact, Gaussian
from vflpriv.laws.opaque import Opaque


def test_what_is_not_said_of_a_release_is_not_so() -> None:
    plain = release({Unit.LABEL: 1.0})
    assert (plain.additive, plain.fresh, plain.once, plain.redrawn) == (False, False, False, True)
    assert (plain.reaches_all, plain.carried) == (False, False)
    assert not StateLeak(carrier="x", sensitivity={}).own


@pytest.mark.parametrize(
    ("noise", "bounds", "protects"),
    [
        (Gaussian(1.0), {Unit.LABEL: 5.0}, True),
        (Gaussian(1.0), {Unit.LABEL: math.inf}, False),
        (Gaussian(1.0), {}, True),
        (Exact(), {Unit.LABEL: 5.0}, False),
        (Exact(), {}, False),
    ],
)
def test_noise_protects_what_moves_by_so_much(noise: object, bounds: dict[Unit, float], protects: bool) -> None:
    assert release(bounds, noise=noise).protects(Unit.LABEL) == protects


@pytest.mark.parametrize(
    ("bounds", "once", "depends"),
    [
        ({Unit.LABEL: 0.1}, False, True),
        ({Unit.LABEL: 0.0}, False, False),
        ({Unit.CLIENT: 1.0}, False, False),
        ({Unit.LABEL: 0.1}, True, False),
        ({}, False, False),
    ],
)
def test_a_release_depends_on_the_batch_if_a_record_moves_it(
    bounds: dict[Unit, float], once: bool, depends: bool
) -> None:
    assert release(bounds, once=once).depends_on_batch == depends


def test_a_ciphertext_is_read_with_its_key_or_through_the_model() -> None:
    sealed = release({Unit.LABEL: 1.0}, noise=Opaque("CKKS", readers=frozenset({"server"})))
    assert sealed.observed_by("eavesdropper") is None
    server, model = sealed.observed_by("server"), sealed.observed_by("model")
    assert server is not None
    assert model is not None
    assert server.what == "x; read with its key"
    assert model.what == "x; the model depends on what was decrypted"
    assert server.noise.exact
    plain = release({Unit.LABEL: 1.0})
    assert plain.observed_by("eavesdropper") is plain


@pytest.mark.parametrize("rounds", [0, 1, 4, 7, 9])
def test_a_run_that_stops_early_releases_nothing_later(rounds: int) -> None:
    early = np.arange(7) < rounds
    stopped = release({Unit.LABEL: 1.0}, senders=SENDERS).until(rounds)
    assert stopped.rounds.tolist() == (MASK & early).tolist()
    assert stopped.senders is not None
    assert stopped.senders.tolist() == (SENDERS & early[:, None]).tolist()
    assert release({Unit.LABEL: 1.0}).until(rounds).senders is None


# Schedules ----------------------------------------------------------------------------------------------------------


def test_masks_of_rounds() -> None:
    assert SMALL.last_round.tolist() == [False] * 6 + [True]
    assert SMALL.every_round.tolist() == [True] * 7
    assert SMALL.turns is None
    one = replace(SMALL, active=np.eye(7, 3, dtype=np.bool_)[[0, 1, 2, 1, 0, 2, 2]])
    assert one.turns == [0, 1, 2, 1, 0, 2, 2]
    assert [batching.sampled for batching in (Batching.POISSON, Batching.FIXED, Batching.SHUFFLE, Batching.FULL)] == [
        True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize("marked", [None, MASK, ~MASK, np.zeros(7, dtype=np.bool_), np.arange(7) > 3])
def test_first_rounds_are_those_of_the_batches(marked: np.ndarray | None) -> None:
    for schedule in (SMALL, with_whole(2), with_whole(0), with_whole(6)):
        rounds = np.arange(7) if marked is None else np.flatnonzero(marked)
        expected = [next((int(t) for t in rounds if i in schedule.batch(int(t))), 7) for i in range(RECORDS)]
        assert schedule.first_rounds(marked).tolist() == expected


def with_whole(round_: int) -> Schedule:
    """The small schedule with one round of all records, and some batches that share their start or their end."""
    batches = [list(range(RECORDS)) if t == round_ else batch for t, batch in enumerate(BATCHES)]
    size = np.array([len(batch) for batch in batches])
    order = np.concatenate([np.array(batch, dtype=np.int64) for batch in batches])
    return replace(small(), order=order, start=np.cumsum(size) - size, size=size)


def test_rounds_that_begin_at_the_same_place_are_different_batches_if_they_are_longer() -> None:
    """Five records in three rounds over one order: [0, 1), [0, 4), and [1, 5)."""
    schedule = replace(
        SMALL,
        active=np.ones((3, 3), dtype=np.bool_),
        order=np.array([3, 1, 4, 0, 2]),
        start=np.array([0, 0, 1]),
        size=np.array([1, 4, 4]),
    )
    assert schedule.first_rounds().tolist() == [1, 1, 2, 0, 1]
    assert schedule.counts(schedule.every_round).tolist() == [2, 2, 1, 2, 2]


def test_an_empty_batch_is_not_taken_for_one_that_begins_before_it() -> None:
    schedule = replace(
        SMALL,
        active=np.ones((2, 3), dtype=np.bool_),
        order=np.array([3, 1, 4, 0, 2]),
        start=np.array([1, 0]),
        size=np.array([0, 4]),
    )
    assert schedule.first_rounds().tolist() == [1, 1, 2, 1, 1]


def drawn(batching: Batching, activation: Activation, rounds: int, **changes: object) -> Schedule:
    fields = {"records": 23, "batch_size": 5, "devices": DEVICES, "seed": 4}
    return Schedule.draw(batching=batching, activation=activation, rounds=rounds, **fields | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("batching", list(Batching))
def test_no_rounds_have_no_batches(batching: Batching) -> None:
    schedule = drawn(batching, Activation.ALL, 0)
    assert (schedule.rounds, len(schedule.start), schedule.counts(schedule.every_round).sum()) == (0, 0, 0)
    assert len(schedule.order) == (23 if batching is Batching.FULL else 0)


def test_epochs_are_shuffled_as_often_as_they_are_needed() -> None:
    """23 records in batches of 5 are five rounds: eleven rounds need three permutations, together 69 places."""
    schedule = drawn(Batching.SHUFFLE, Activation.ALL, 11)
    assert len(schedule.order) == 3 * 23
    assert schedule.size.tolist() == [5, 5, 5, 5, 3] * 2 + [5]
    for epoch in range(2):
        ids = np.concatenate([schedule.batch(5 * epoch + t) for t in range(5)])
        assert sorted(ids.tolist()) == list(range(23))


def test_devices_in_turn_start_their_epochs_at_different_batches() -> None:
    """Five batches an epoch for three devices: they begin at batches 0, 1 and 3, and go on from there."""
    schedule = drawn(Batching.SHUFFLE, Activation.ROUND_ROBIN, 15)
    assert (schedule.start[:6] // 5).tolist() == [0, 1, 3, 1, 2, 4]


def test_a_round_of_several_devices_ends_with_the_last_of_those_it_waits_for() -> None:
    """Every round's wait is that of the second clock: the sum of all is near the mean of the second of three."""
    schedule = drawn(Batching.FIXED, Activation.SEVERAL, 4000, together=2)
    assert schedule.active.sum(1).tolist() == [2] * 4000
    assert schedule.seconds is not None
    # Of three clocks of rate 1 the first rings after 1/3 on average, the second after 1/3 + 1/2.
    assert schedule.seconds[-1] / 4000 == pytest.approx(1 / 3 + 1 / 2, rel=0.05)
    alone = drawn(Batching.FIXED, Activation.CLOCKS, 4000)
    assert alone.seconds is not None
    assert alone.seconds[-1] / 4000 == pytest.approx(1 / 3, rel=0.05)


def test_clocks_without_a_rate_are_refused() -> None:
    for rates in ([1.0, 0.0, 2.0], [1.0, 2.0], [1.0, -1.0, 1.0]):
        with pytest.raises(InputError, match="3 positive numbers"):
            drawn(Batching.FIXED, Activation.CLOCKS, 5, rates=rates)


def test_several_devices_share_one_epoch() -> None:
    """Not alone: all take the same turns, whoever is active."""
    schedule = drawn(Batching.SHUFFLE, Activation.SEVERAL, 10, together=2)
    assert sorted(np.concatenate([schedule.batch(t) for t in range(5)]).tolist()) == list(range(23))
    assert schedule.start.tolist() == [0, 5, 10, 15, 20, 23, 28, 33, 38, 43]


@pytest.mark.parametrize("batching", list(Batching))
def test_sampled_batches_can_be_drawn_anew_and_others_stay(batching: Batching) -> None:
    schedule = drawn(batching, Activation.ROUND_ROBIN, 12)
    again = schedule.with_batches_of(np.random.default_rng(9))
    assert (again is schedule) == (batching in (Batching.SHUFFLE, Batching.FULL))
    assert (again.active == schedule.active).all()
    if again is not schedule:
        same = [set(schedule.batch(t).tolist()) == set(again.batch(t).tolist()) for t in range(12)]
        assert not all(same)
        assert all(len(again.batch(t)) == again.size[t] for t in range(12))
