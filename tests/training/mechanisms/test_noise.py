"""The noise source of mechanisms."""

from __future__ import annotations

import torch

from vflpriv.common.random import Stream
from vflpriv.training.mechanisms.base import NoiseSource


def test_noise_for_an_empty_batch_is_empty():
    source = NoiseSource(Stream.of(0, "noise", [0, 1], torch.device("cpu")))
    assert source.tensor((0, 4), 3, 1).shape == (2, 0, 4)


def test_every_round_has_its_own_draw_however_late_and_in_whatever_order():
    """Draws are made for 1,024 rounds at once: round 1,030 has the sixth of the second thousand."""
    stream = Stream.of(3, "noise", [0, 1], torch.device("cpu"))
    rounds = [0, 1, 1023, 1024, 1030, 2047, 2048, 3000]
    forwards, backwards = (NoiseSource(stream), NoiseSource(stream))
    late = {t: forwards.scalar(t).clone() for t in rounds}
    early = {t: backwards.scalar(t).clone() for t in reversed(rounds)}
    for t in rounds:
        assert late[t].shape == (2,)
        assert torch.equal(late[t], early[t])
        block = forwards._law.draw(stream, 1024, t // 1024)
        assert torch.equal(late[t], block[:, t % 1024])
    values = torch.stack(list(late.values())).flatten()
    assert len(values.unique()) == len(values)
