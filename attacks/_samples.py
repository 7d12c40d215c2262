"""The records that an attack guesses about: all of them, or a random sample of many."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vflpriv.common.random import Stream
from vflpriv.core.attack import Auxiliary, Guess

__all__ = ["Sample"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sample:
    """The chosen ones of sorted records and their positions among these, and which of them were drawn at random.

    `population` is how many they were drawn from; None, as `drawn`, where all records are chosen.
    """

    records: Tensor
    positions: Tensor
    drawn: Tensor | None = None
    population: int | None = None

    @classmethod
    def draw(cls, records: Tensor, auxiliary: Auxiliary, most: int) -> Sample:
        """All of the records up to the number `most`; of more, so many: the known ones, and a sample of the others.

        Records that are asked for (`Auxiliary.asked`) are added to these. The draw depends on the seed and on the
        number of records, not on any label.
        """
        positions = torch.arange(len(records), device=records.device)
        asked = torch.isin(records, auxiliary.asked.to(records)) & ~torch.isin(records, auxiliary.records)
        fixed = asked | torch.isin(records, auxiliary.records)
        size = most + int(asked.sum())
        if size >= len(records):
            return cls(records=records, positions=positions)
        stream = Stream.of(auxiliary.seed, "attack", [0], records.device)
        order = stream.uniform(len(records), 0)[0].masked_fill_(fixed, -1.0).argsort(stable=True)
        chosen = order[:size].sort().values
        population = int((~fixed).sum())
        return cls(records=records[chosen], positions=chosen, drawn=~fixed[chosen], population=population)

    def guess(self, labels: Tensor) -> Guess:
        """The guessed labels (1, n) as an attack's answer."""
        return Guess(self.records, labels, drawn=self.drawn, population=self.population)
