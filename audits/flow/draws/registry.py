"""All random draws of a run: their laws, which of them hide nothing, and from which states of a generator they came.

Each element of a real-valued draw is a column, a standard draw of its family. A generator that is in the same state
twice gives the same draws: then they are the same columns.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflpriv.audits.flow.draws.families import FAMILIES, Family
from vflpriv.common.random import WholeSteps

__all__ = ["Draws", "RecognisedDraws", "fingerprint"]


def fingerprint(tensor: Tensor) -> bytes:
    """A hash of a tensor's values."""
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(data, digest_size=12).digest()


_KEPT = 1 << 14
_BY_CHANCE = 1e-6
_GUESSABLE = 1 << 48
"""Seeds below this can be tried out, or were known to whoever chose them."""
_COUNTED = 1 << 16
"""Seeds below this are sent by chance: they may be a count, or the number of a record."""
_NEAR = 1 << 20
"""A seed that is nearer than this to a number that is sent was made of it, such as by adding the round."""
_LONG = 4
"""Draws of so many numbers are never equal by chance."""


@dataclass(frozen=True, eq=False)
class RecognisedDraws:
    """Columns of a law that was recognised in functions of other columns, its `parents`, (elements, K)."""

    columns: Tensor
    parents: Tensor
    variant: int

    def independent_of(self, other: RecognisedDraws) -> bool:
        """Whether both are the sine and the cosine of Box and Muller's formula for the same uniforms."""
        same = self.parents.shape == other.parents.shape and torch.equal(self.parents, other.parents)
        return same and self.variant > 0 and (self.variant - 1) ^ 2 == other.variant - 1


def _tells(tensor: Tensor, seed: int) -> bool:
    """Whether a tensor holds a seed, as a number or as bytes, or a number that it was made of."""
    if seed >= _GUESSABLE:
        raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        size = (seed.bit_length() + 7) // 8
        if seed.to_bytes(size, "little") in raw or seed.to_bytes(size, "big") in raw:
            return True
    apart = _NEAR if seed >= _GUESSABLE else 1
    numbers = tensor.reshape(-1).double().nan_to_num().tolist()
    return any(abs(int(number) - seed) < apart for number in numbers)


class Draws:
    """Columns in the order in which they were drawn. `others` are fingerprints of the draws under another seed."""

    def __init__(self, others: Sequence[bytes] = ()) -> None:
        self._starts: list[int] = []
        self._families: list[int] = []
        self._known: list[bool] = []
        self._guessed: list[bool] = []
        self._seeds: list[int | None] = []
        self._seed: int | None = None
        self.told = False
        """Whether the program is told a seed, which stands for a secret one however small it is."""
        self._count = 0
        self._others, self._long = others, frozenset(others)
        self.position = 0
        """How many real-valued draws there were, also those before any private value."""
        self._states: dict[bytes, tuple[str, int, int]] = {}
        self._derived: dict[tuple[bytes, int], RecognisedDraws] = {}
        self._recognised: list[RecognisedDraws] = []
        self._values: dict[int, Tensor] = {}
        self._grids: dict[int, float] = {}
        self._laws: dict[int, WholeSteps | float | None] = {}
        self.repeated = 0
        self.constant = 0

    def seed(self, seed: int | None) -> None:
        """By what the generator of the next draw was seeded; None where nobody chose that."""
        self._seed = seed

    def add(self, family: Family, count: int, *, known: bool = False) -> Tensor:
        """New columns of a family; `known` ones hide nothing."""
        self._starts.append(self._count)
        self._families.append(FAMILIES.index(family))
        self._known.append(known)
        self._guessed.append(self._seed is not None and self._seed < _GUESSABLE and not self.told)
        self._seeds.append(self._seed)
        self._count += count
        return torch.arange(self._count - count, self._count)

    def drawn(self, name: str, family: Family, value: Tensor, state: bytes | None, *, chance: float = 0.0) -> Tensor:
        """The columns of what an operation drew from a generator in this state.

        `chance` is that of drawing the same twice: coins with a rare side fall alike under most seeds.
        """
        same = self._states.get(state) if state is not None else None
        if same is not None and same[0] == name and same[2] == value.numel():
            self.repeated += 1
            return torch.arange(same[1], same[1] + same[2])
        constant = value.is_floating_point() and chance < _BY_CHANCE and self._constant(value)
        self.constant += constant
        columns = self.add(family, value.numel(), known=constant or same is not None)
        if same is not None and same[1] >= 0:
            self._known[bisect_right(self._starts, same[1]) - 1] = True
        elif state is not None and same is None and value.numel():
            self._states[state] = (name, int(columns[0]) if len(columns) else -1, value.numel())
        return columns

    def seen(self, state: bytes) -> Tensor:
        """The columns that were drawn from this state; none where nothing was."""
        _, start, count = self._states.get(state, ("", 0, 0))
        return torch.arange(start, start + count)

    def on_grid(self, columns: Tensor, step: float, law: WholeSteps | float | None) -> None:
        """Draws that are whole multiples of a step; the law or the rate of those that are counted in steps."""
        for start in torch.unique(torch.tensor(self._starts)[self._blocks(columns)]).tolist():
            self._grids[start], self._laws[start] = step, law

    def grids(self, columns: Tensor) -> Tensor:
        """The step that each column is a whole multiple of; 0 where there is none."""
        starts = torch.tensor(self._starts)[self._blocks(columns)]
        return starts.double().apply_(lambda start: self._grids.get(int(start), 0.0))

    def law(self, column: int) -> WholeSteps | float | None:
        """The law or the rate of a draw that is counted in steps."""
        return self._laws.get(self._starts[bisect_right(self._starts, column) - 1])

    def _constant(self, value: Tensor) -> bool:
        """Whether a draw was the same under another seed: at the same place, or, if it is long, anywhere."""
        if not value.numel():
            return False
        drawn = fingerprint(value)
        if value.numel() >= _LONG and drawn in self._long:
            return True
        return self.position < len(self._others) and self._others[self.position] == drawn

    def shown(self, tensor: Tensor) -> Tensor | None:
        """The draws that follow from what a tensor holds, if that is the state of a generator or its seed."""
        first = self._states.get(fingerprint(tensor)) if tensor.dtype == torch.uint8 else None
        if first is not None:
            return torch.arange(max(first[1], 0), self._count)
        told = {seed for seed in set(self._seeds) if seed is not None and seed >= _COUNTED and _tells(tensor, seed)}
        ends = [*self._starts, self._count][1:]
        blocks = [
            torch.arange(start, end)
            for start, end, seed in zip(self._starts, ends, self._seeds, strict=True)
            if seed in told
        ]
        return torch.cat(blocks) if blocks else None

    def public(self, state: bytes, name: str) -> None:
        """A draw before any private value: whoever draws from this state again draws what is known."""
        self._states.setdefault(state, (f"public {name}", -1, 0))

    def derived(self, parents: Tensor, family: Family, variant: int) -> Tensor:
        """The columns of a law that was recognised in functions of other columns; the same ones for the same."""
        identity = (fingerprint(parents), variant * len(FAMILIES) + FAMILIES.index(family))
        law = self._derived.get(identity)
        if law is None:
            law = self._derived[identity] = RecognisedDraws(self.add(family, len(parents)), parents, variant)
            self._recognised.append(law)
        return law.columns

    def recognised(self, columns: Tensor) -> list[RecognisedDraws]:
        """The recognised laws among these columns."""
        return [law for law in self._recognised if bool(torch.isin(law.columns, columns).any())]

    def families(self, columns: Tensor) -> Tensor:
        """The number of each column's family."""
        return torch.tensor(self._families)[self._blocks(columns)]

    def family(self, columns: Tensor) -> Family | None:
        """The one family of all these columns; None if there are several."""
        numbers = torch.unique(self.families(columns))
        return FAMILIES[int(numbers[0])] if len(numbers) == 1 else None

    def known(self, columns: Tensor) -> Tensor:
        """Which columns hide nothing from anybody."""
        return torch.tensor(self._known)[self._blocks(columns)]

    def guessed(self, columns: Tensor) -> Tensor:
        """Which columns are from a generator whose seed is small enough to be tried out."""
        return torch.tensor(self._guessed)[self._blocks(columns)]

    def keep(self, columns: Tensor, values: Tensor) -> None:
        """Remember what was drawn, as standard draws; of large tensors it is not needed."""
        if 0 < len(columns) <= _KEPT:
            self._values[int(columns[0])] = values.reshape(-1)

    def values(self, columns: Tensor) -> Tensor | None:
        """What was drawn in these columns; None where it was not kept."""
        starts = torch.tensor(self._starts)[self._blocks(columns)]
        values = torch.empty(columns.shape, dtype=torch.float64)
        for start in torch.unique(starts).tolist():
            if start not in self._values:
                return None
            here = starts == start
            values[here] = self._values[start][columns[here] - start]
        return values

    def _blocks(self, columns: Tensor) -> Tensor:
        return torch.searchsorted(torch.tensor(self._starts), columns.contiguous(), right=True) - 1

    def __len__(self) -> int:
        return self._count
