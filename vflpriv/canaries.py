"""Canaries: the one record that differs between the two worlds of an audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.data import VerticalData

__all__ = ["Canaries", "Canary", "CanaryKind"]


class CanaryKind(StrEnum):
    """Where a canary comes from, from mild to worst."""

    NATURAL = "natural"
    CRAFTED = "crafted"
    WORST_CASE = "worst-case"

    @property
    def description(self) -> str:
        return {
            CanaryKind.NATURAL: "a record of the data set, its label flipped",
            CanaryKind.CRAFTED: "features optimised so that a flipped label moves the release most",
            CanaryKind.WORST_CASE: "a record whose contribution sits at the clip, with the sign of its world",
        }[self]


@dataclass(frozen=True, eq=False, kw_only=True)
class Canary:
    """One record in two worlds. `world` is (R,) of 0 and 1: the world each replica lives in.

    `labels` are the record's label in either world. `at_clip` puts its contribution at the clip instead, plus in
    world 0 and minus in world 1. `blocks` replaces its features, (R, *shape of the device's block), in both worlds.
    """

    kind: CanaryKind
    record: int
    world: Tensor
    labels: tuple[int, int]
    blocks: Mapping[int, Tensor] = field(default_factory=dict)

    @property
    def at_clip(self) -> bool:
        return self.kind is CanaryKind.WORST_CASE

    def sign(self) -> Tensor:
        """(R,) plus one in world 0, minus one in world 1."""
        return 1.0 - 2.0 * self.world.float()

    def into(self, data: VerticalData) -> VerticalData:
        """The data with this canary in it: every replica sees its own world."""
        device = data.labels.device
        world = self.world.to(device).unsqueeze(1)
        labels = None if self.at_clip else self.labels[0] + world * (self.labels[1] - self.labels[0])
        blocks = {m: b.to(device).unsqueeze(1) for m, b in self.blocks.items()}
        return data.override([self.record], labels=labels, blocks=blocks)


@dataclass(frozen=True, eq=False, kw_only=True)
class Canaries:
    """Many records in one run, each in a world of its own: `worlds` is (R, m) of 0 and 1, from fair coins.

    `labels` (m, 2) are each record's label in either world. No record is there twice: a privacy unit holds one coin.
    """

    records: tuple[int, ...]
    labels: Tensor
    worlds: Tensor

    def __post_init__(self) -> None:
        if len(set(self.records)) != len(self.records):
            raise ValueError("Expected every canary in a record of its own: one coin a privacy unit.")

    def into(self, data: VerticalData) -> VerticalData:
        """The data with these canaries in it."""
        device = data.labels.device
        labels, worlds = self.labels.to(device), self.worlds.to(device)
        return data.override(self.records, labels=labels[:, 0] + worlds * (labels[:, 1] - labels[:, 0]))
