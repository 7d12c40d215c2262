"""Trainings of one's own in two worlds, through the recorder's API."""

from __future__ import annotations

import pytest
import torch

from vflpriv.errors import InputError
from vflpriv.testing import assert_training_epsilon

SIZES = {"devices": 2, "classes": 2, "records": 4}


def noisy(std, to=0):
    """Three rounds that answer one device with the first record's label under noise."""

    def train(wire, world, seed):
        generator = torch.Generator().manual_seed(seed)
        for t in range(3):
            wire.down(t, to, "answer", {"x": world + std * torch.randn(1, generator=generator)}, [0])

    return train


def test_a_sound_training_passes_and_one_with_too_little_noise_fails():
    # mu = sqrt(3) / 4, that is epsilon = 1.70 at delta = 1e-5.
    assert assert_training_epsilon(noisy(4.0), 1.72, 1e-5, view="device(0)", **SIZES) <= 1.72
    with pytest.raises(AssertionError, match="measured epsilon >= "):
        assert_training_epsilon(noisy(0.3), 1.72, 1e-5, view="device(0)", trials=400, **SIZES)


def test_only_what_the_view_sees_counts():
    assert assert_training_epsilon(noisy(0.0, to=1), 0.1, 1e-5, view="device(0)", **SIZES) == 0
    with pytest.raises(AssertionError, match="measured epsilon >= "):
        assert_training_epsilon(noisy(0.0, to=1), 0.1, 1e-5, view="eavesdropper", **SIZES)


def beside(send):
    """The sound training, with more messages beside its own."""

    def train(wire, world, seed):
        generator = torch.Generator().manual_seed(seed)
        for t in range(3):
            wire.down(t, 0, "answer", {"x": world + 4 * torch.randn(1, generator=generator)}, [0])
            send(wire, t, world, generator)

    return train


def order(wire, t, world, generator):
    for m in (0, 1) if world else (1, 0):
        wire.down(t, m, "clock", {"round": float(t)}, [0])


def message(wire, t, world, generator):
    for _ in range(world):
        wire.down(t, 1, "clock", {"round": float(t)}, [0])


def rare_message(wire, t, world, generator):
    """What is sent in one world has no place in the layout."""
    if world and torch.rand(1, generator=generator) < 0.5:
        wire.down(t, 1, f"clock{int(torch.randint(10**9, (1,), generator=generator))}", {}, [0])


def round_number(wire, t, world, generator):
    if t == 2:
        wire.down(3 + world, 1, "clock", {"round": 0.0}, [0])


def ids(wire, t, world, generator):
    wire.down(t, 1, "clock", {"round": 0.0}, [2, 3] if world else [3, 2])


def size(wire, t, world, generator):
    wire.down(t, 1, "clock", {"round": torch.zeros(2 + world)}, None)


def shape(wire, t, world, generator):
    wire.down(t, 1, "clock", {"round": torch.zeros((2, 1 + world))[:, :1].T if world else torch.zeros(2, 1)}, None)


def type_(wire, t, world, generator):
    wire.down(t, 1, "clock", {"round": torch.zeros(2, dtype=torch.float64 if world else torch.float32)}, None)


def names(wire, t, world, generator):
    wire.down(t, 1, "clock", {"a": 0.0, "b": 0.0} if world else {"b": 0.0, "a": 0.0}, None)


@pytest.mark.parametrize("send", [order, message, rare_message, round_number, ids, size, shape, type_, names])
def test_all_that_is_sent_counts_beside_the_values(send):
    with pytest.raises(AssertionError, match="measured epsilon >= "):
        assert_training_epsilon(beside(send), 1.72, 1e-5, view="eavesdropper", trials=300, **SIZES)


def random_sizes(wire, t, world, generator):
    for _ in range(int(torch.randint(3, (1,), generator=generator))):
        count = int(torch.randint(5, (1,), generator=generator))
        values = torch.randn(count, generator=generator)
        wire.down(t, 1, "padding", {"x": values}, torch.randperm(4, generator=generator)[:2])


def test_trainings_of_random_length_can_be_compared():
    assert assert_training_epsilon(beside(random_sizes), 1.72, 1e-5, view="eavesdropper", **SIZES) <= 1.72


def test_who_does_not_know_batches_sees_no_ids():
    measured = assert_training_epsilon(beside(ids), 1.72, 1e-5, view="outsider", trials=300, **SIZES)
    assert measured <= 1.72


def test_a_certain_difference_is_seen_among_many_noisy_values():
    def train(wire, world, seed):
        generator = torch.Generator().manual_seed(seed)
        wire.down(0, 0, "answer", {"x": torch.randn(3000, generator=generator)}, None)
        wire.down(0, 0, "clock", {"tick": 1e-3 * world}, None)

    with pytest.raises(AssertionError, match="measured epsilon >= "):
        assert_training_epsilon(train, 1.72, 1e-5, view="device(0)", **SIZES)


def test_outputs_begin_with_the_values_in_order():
    outputs = []

    def score(given):
        outputs.append(given)
        return given[:, 0]

    def train(wire, world, seed):
        for t in range(3):
            wire.down(t, 0, "answer", {"x": [t, world], "y": 10 * t}, [0])

    assert_training_epsilon(train, 1.72, 1e-5, view="device(0)", score=score, **SIZES)
    assert outputs[1][0, :9].tolist() == [0, 1, 0, 1, 1, 10, 2, 1, 20]


def test_calls_are_checked_as_by_the_recorder():
    with pytest.raises(InputError, match="one adversary"):
        assert_training_epsilon(noisy(1.0), 1.0, 1e-5, view="device", **SIZES)
    with pytest.raises(InputError, match="0 to 1"):
        assert_training_epsilon(noisy(1.0, to=2), 1.0, 1e-5, view="device(0)", **SIZES)
