"""A training as a mechanism that `assert_epsilon` can test: from a world to all values that one adversary sees."""

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
"""A function of (wire, world, seed) that trains once. Worlds 0 and 1 differ in one unit, such as a record's label."""


def training_as_mechanism(
    train: Train, *, devices: int, classes: int, records: int, view: str
) -> Callable[[int, np.random.Generator], NDArray[np.float64]]:
    """A function from a world and a random generator to all values that the view sees, as one vector."""
    adversary = Adversary.parse(view)
    if len(adversary.each(devices)) > 1:
        raise InputError("view", view, "one adversary, such as device(0)")

    def run(world: int, rng: np.random.Generator) -> NDArray[np.float64]:
        wire = MemoryWire(devices=devices, classes=classes, records=records)
        train(wire, world, int(rng.integers(2**63 - 1)))
        seen = View.of(wire.transcript, adversary, devices=devices, classes=classes).messages
        flat = [t.double().reshape(-1) for m in seen for t in m.tensors.values()]
        values: NDArray[np.float64] = (torch.cat(flat) if flat else torch.zeros(1)).double().numpy()
        return values

    return run
