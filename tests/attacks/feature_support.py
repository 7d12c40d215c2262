"""Two devices with independent features, and one attack on the second through one view."""

from __future__ import annotations

from typing import Any

import torch

from tests.support import make_system
from vflpriv.audits.scoring.features import FeatureAttempt, FeatureTrials
from vflpriv.common.registry import find
from vflpriv.core.data import VerticalData
from vflpriv.core.views import Adversary

__all__ = ["attack", "two_blocks"]


def two_blocks(own: int, other: int, *, classes: int = 10, binary: int = 0, records: int = 400) -> VerticalData:
    """Uniform features, the first `binary` of device 1's zero or one; nothing of one block can be told from another."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(records + 50, own + other, generator=generator)
    share = torch.linspace(0.25, 0.6, binary)
    rows[:, own : own + binary] = (rows[:, own : own + binary] < share).float()
    labels = (rows @ torch.randn(own + other, classes, generator=generator)).argmax(1)
    blocks = (rows[:, :own], rows[:, own:])
    return VerticalData(
        name="two",
        classes=classes,
        blocks=tuple(b[:records].clone() for b in blocks),
        labels=labels[:records],
        test_blocks=tuple(b[records:].clone() for b in blocks),
        test_labels=labels[records:],
    )


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
) -> FeatureAttempt:
    """The attack on device 1's block."""
    system = make_system(variant, data=data, rounds=rounds, batch_size=50, **changes)
    trials = FeatureTrials(system=system, seeds=seeds, confidence=0.95, known=known, victim=1, attribute=attribute)
    (tried,) = trials.run([find("attack", name)()], [Adversary.parse(adversary)])
    return tried
