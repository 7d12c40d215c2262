"""Data sets with known dependencies, views of one training, and one feature attack on the second of two devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tests.support import make_system
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.trials import Trials
from vflpriv.common.registry import find
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Transcript, Wire

__all__ = ["attack", "seen", "split_rows", "two_blocks", "view_of"]


def view_of(system: System, engine: Any, transcript: Transcript, adversary: str) -> View:
    """An adversary's view of a finished training."""
    own = {m: engine.belongings(m) for m in range(system.data.devices)}
    shape = {"devices": system.data.devices, "classes": system.data.classes}
    return View.of(transcript, Adversary.parse(adversary), own=own, **shape)


def seen(system: System, adversary: str, *, conducts: Any = None, replica: int = 0) -> View:
    """Train a system once: an adversary's view of it."""
    transcript, engine = Transcript(), system.train([replica], conducts=conducts)
    engine.run(Wire(transcript))
    return view_of(system, engine, transcript, adversary)


def split_rows(name: str, classes: int, blocks: Sequence[Tensor], labels: Tensor, *, test: int) -> VerticalData:
    """Vertical data whose last `test` records are the test set."""
    return VerticalData(
        name=name,
        classes=classes,
        blocks=tuple(block[:-test].clone() for block in blocks),
        labels=labels[:-test],
        test_blocks=tuple(block[-test:].clone() for block in blocks),
        test_labels=labels[-test:],
    )


def two_blocks(own: int, other: int, *, classes: int = 10, binary: int = 0, records: int = 400) -> VerticalData:
    """Uniform features, the first `binary` of device 1's zero or one; the two blocks are independent."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(records + 50, own + other, generator=generator)
    share = torch.linspace(0.25, 0.6, binary)
    rows[:, own : own + binary] = (rows[:, own : own + binary] < share).float()
    labels = (rows @ torch.randn(own + other, classes, generator=generator)).argmax(1)
    return split_rows("two", classes, (rows[:, :own], rows[:, own:]), labels, test=50)


def attack(
    name: str,
    variant: str,
    data: VerticalData,
    adversary: str,
    *,
    rounds: int = 8,
    known: int = 100,
    seeds: int = 1,
    attribute: int | None = None,
    **changes: Any,
) -> Attempt:
    """The result of one attack on device 1's block."""
    system = make_system(variant, data=data, rounds=rounds, **{"batch_size": 50, **changes})
    trials = Trials(system=system, seeds=seeds, confidence=0.95, known=known, victim=1, attribute=attribute)
    (tried,) = trials.run([find("attack", name)()], [Adversary.parse(adversary)])
    return tried
