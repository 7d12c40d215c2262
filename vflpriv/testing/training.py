"""A training as a mechanism that `assert_epsilon` can test: from a world to everything that one adversary sees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vflpriv.audits.learned.layout import ViewLayout
from vflpriv.common.numerics import Floats
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Message
from vflpriv.errors import InputError
from vflpriv.recording.checked_wire import CheckedWire, MemoryWire

__all__ = ["Train", "training_as_mechanism"]

Train = Callable[[CheckedWire, int, int], object]
"""A function of (wire, world, seed) that trains once. Worlds 0 and 1 differ in one unit, such as a record's label."""


def training_as_mechanism(
    train: Train, *, devices: int, classes: int, records: int, view: str
) -> Callable[[int, np.random.Generator], Floats]:
    """A function from a world and a random generator to all that the view sees, as one vector of fixed length.

    One training in each world gives the layout of the vector. What another training sends beyond it is counted and
    added up.
    """
    adversary = Adversary.parse(view)
    if len(adversary.each(devices)) > 1:
        raise InputError("view", view, "one adversary, such as device(0)")

    def seen(world: int, seed: int) -> tuple[Message, ...]:
        wire = MemoryWire(devices=devices, classes=classes, records=records)
        train(wire, world, seed)
        return View.of(wire.transcript, adversary, devices=devices, classes=classes).messages

    layout = ViewLayout([seen(world, 0) for world in (0, 1)])

    def run(world: int, rng: np.random.Generator) -> Floats:
        return layout.vector(seen(world, int(rng.integers(2**63 - 1))))

    return run
