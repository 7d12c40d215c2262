"""Two plain runs of a program in neighbouring worlds with the same seed; the second receives what the first sent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from vflpriv.audits.flow.wire import PlainWire, Program, identical

__all__ = ["run_twins", "seeded"]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch, NumPy and `random`, and give them back as they were."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


def run_twins(program: Program, seed: int) -> str:
    """What differs between the worlds, in a sentence."""
    with seeded(seed):
        program(first := PlainWire(0))
    with seeded(seed):
        program(second := PlainWire(1, first.sent))
    if len(first.sent) != len(second.sent):
        return f"{len(first.sent)} messages in one world, {len(second.sent)} in the other"
    differing = [
        number
        for number, (message, twin) in enumerate(zip(first.sent, second.sent, strict=True))
        if message.kind != twin.kind
        or message.tensors.keys() != twin.tensors.keys()
        or not all(identical(message.tensors[name], twin.tensors[name]) for name in message.tensors)
    ]
    return f"{len(differing)} of {len(first.sent)} messages differ between the worlds under the same seed"
