"""For the tests of your own training: does what an adversary sees of it show more than epsilon?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from vflpriv.core.views import Adversary, View
from vflpriv.errors import InputError
from vflpriv.recording.checked_wire import CheckedWire, MemoryWire

__all__ = ["Train", "training_as_mechanism"]

Train = Callable[[CheckedWire, int, int], object]
"""Trains once on a wire, in world 0 or 1, with a seed: the worlds differ in one unit, such as one record's label."""


def training_as_mechanism(
    train: Train, *, devices: int, classes: int, records: int, view: str
) -> Callable[[int, np.random.Generator], NDArray[np.float64]]:
    """A training as `assert_epsilon` takes mechanisms: from a world and coins to all that the view sees, flat."""
    adversary = Adversary.parse(view)
    if len(adversary.each(devices)) > 1:
        raise InputError("view", view, "one adversary, such as device(0)")

    def run(world: int, rng: np.random.Generator) -> NDArray[np.float64]:
        wire = MemoryWire(devices=devices, classes=classes, records=records)
        train(wire, world, int(rng.integers(2**63 - 1)))
        seen = View.of(wire.transcript, adversary, devices=devices, classes=classes).messages
        flat = [t.double().reshape(-1) for m in seen for t in m.tensors.values()]
        found: NDArray[np.float64] = (torch.cat(flat) if flat else torch.zeros(1)).double().numpy()
        return found

    return run
