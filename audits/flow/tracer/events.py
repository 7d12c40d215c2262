"""What a trace notes: private sources, seals, messages, and values that left the tracer's sight."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vflpriv.audits.flow.draws.families import FAMILIES
from vflpriv.audits.flow.draws.registry import Draws
from vflpriv.audits.flow.draws.rows import Rows, no_columns
from vflpriv.audits.flow.plain.wire import Party, SentMessage

__all__ = ["FILE", "PLACE", "Choice", "HostRead", "Meeting", "Seal", "Source", "Trail", "gap_between"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A private value."""

    what: str
    owner: Party
    where: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Seal:
    """Values that an adversary is given: how far they lie apart in the two worlds, under which noise."""

    gap: Tensor
    rows: Rows
    grain: Tensor
    """By how much rounding may have moved each gap."""
    given: Tensor = field(default_factory=no_columns)
    """Columns that the values depend on in other ways than as noise: whoever sees them may know those."""
    exact: bool = True
    """Whether the values themselves are sent; else something that was computed from them may be."""
    open: bool = False
    """Whether they depend on draws in no other way than by their rows."""
    taint: frozenset[int] = frozenset()
    where: str = ""
    met: frozenset[int] = frozenset()
    """The meetings that it shows."""

    def described(self, draws: Draws) -> str:
        """Its noise: families, sizes and entries."""
        used = self.rows.used
        families = sorted({FAMILIES[n].name for n in torch.unique(draws.families(used)).tolist()})
        size = self.rows.scales.square().sum(1).sqrt()
        spread = f"{float(size.min()):.4g}" if len(size) else "0"
        if len(size) and float(size.max()) > float(size.min()) * (1 + 1e-6):
            spread += f" to {float(size.max()):.4g}"
        return f"{' + '.join(families)} of scale {spread} on {len(size)} entries"


@dataclass(frozen=True, kw_only=True, eq=False)
class Meeting:
    """Where noise comes to lie on a private value: all that is made of both afterwards costs nothing more."""

    where: str
    rows: Rows
    moves: float
    """By how much the private value moves in L2, at most, when one record changes, whatever the data are."""
    entries: int
    """How many numbers move, at most."""
    stale: bool
    """Whether it depends on state that earlier steps computed from private values."""
    why: str
    """What is to blame where nothing bounds it."""
    joint: Mapping[tuple[int, int], float]
    """By what it was clipped with and its place there: it moves by so many times its share in that; see `Moves`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """Values chosen by draws, with the law of each in both worlds: (elements, outcomes), rows that sum to 1."""

    weights: tuple[Tensor, Tensor]
    columns: Tensor
    taint: frozenset[int]
    where: str
    kind: str
    exact: bool = False

    def described(self, draws: Draws) -> str:
        """What chose, and how often."""
        return f"choice by {self.kind} on {len(self.weights[0])} entries"


def gap_between(own: Tensor, other: Tensor) -> Tensor:
    """How far values lie apart in the worlds; infinitely far where one is no finite number and the other is another."""
    first, second = own.double(), other.double()
    alike = (first == second) | (first.isnan() & second.isnan())
    gap = torch.where(alike, 0.0, second - first)
    return torch.where(gap.isfinite(), gap, math.inf)


PLACE = "an index or a factor"
"""How a host read is called that chooses an entry, or that an operation takes as a plain number."""
FILE = "a file"
"""How a host read is called that writes to a file, or to a buffer of its form."""


@dataclass(frozen=True, kw_only=True)
class HostRead:
    """A private value that became a Python or NumPy object, or decided a branch."""

    how: str
    where: str
    log: bool = False
    """Whether it was only printed or written to a file."""
    private: bool = True
    drawn: bool = False
    """Whether draws reached it."""
    same: bool = False
    """Whether it is the same in both worlds."""

    @property
    def returns(self) -> bool:
        """Whether the program may go on with it: what is printed is gone, what is in a file can be loaded."""
        return not self.log or self.how == FILE


@dataclass(kw_only=True, eq=False)
class Trail:
    """One message as the tracer saw it."""

    message: SentMessage
    where: str
    seals: list[int] = field(default_factory=list)
    """Numbers of the seals whose values it shows, or was computed from."""
    inherited: bool = False
    """Whether it was made of values that were sealed before: in a plain run of the other world those differ."""
    bare: frozenset[int] = frozenset()
    """Private values that show without noise."""
    open: frozenset[int] = frozenset()
    """Private values that reach it in a way that is not understood."""
    why: str = ""
    given: list[Tensor] = field(default_factory=list)
    """Columns that it shows in other ways than as noise."""
    others: dict[str, Tensor] = field(default_factory=dict)
    """Its tensors in the other world, where all that was sealed before is as it is here."""
    fresh: set[str] = field(default_factory=set)
    """Those that no earlier seal reached."""
    own: dict[str, int] = field(default_factory=dict)
    """The seals of tensors that are sent with their noise on every entry."""
