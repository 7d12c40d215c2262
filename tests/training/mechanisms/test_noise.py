"""The noise source of mechanisms."""

from __future__ import annotations

import torch

from vflpriv.common.random import Stream
from vflpriv.training.mechanisms.base import NoiseSource


def test_noise_for_an_empty_batch_is_empty():
    source = NoiseSource(Stream.of(0, "noise", [0, 1], torch.device("cpu")))
    assert source.tensor((0, 4), 3, 1).shape == (2, 0, 4)
