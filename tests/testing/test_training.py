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


def test_calls_are_checked_as_by_the_recorder():
    with pytest.raises(InputError, match="one adversary"):
        assert_training_epsilon(noisy(1.0), 1.0, 1e-5, view="device", **SIZES)
    with pytest.raises(InputError, match="0 to 1"):
        assert_training_epsilon(noisy(1.0, to=2), 1.0, 1e-5, view="device(0)", **SIZES)
