"""What is known of a tensor for all private data: bounds on its norms, and which records its rows depend on.

Whether a clip bounds a value cannot be read off norms alone: `x · min(1, C/‖x‖)` is short because its two factors
belong together. So a bound is a number times norms of earlier tensors, `C · ‖x‖⁻¹`, and the product with `x`, whose
norm is at most `1 · ‖x‖`, is at most `C`. What no rule bounds is unbounded, never a number by luck.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

__all__ = [
    "CONSTANT",
    "UNKNOWN",
    "Bounds",
    "Fact",
    "Moves",
    "Norms",
    "Share",
    "constant",
    "least",
    "most",
    "norm_of",
    "shares",
    "times",
]

Norms = tuple[tuple[tuple[int, str], float], ...]
"""A product of norms: (number of a tensor, "row" or "whole") with its exponent, in order."""
Bounds = Mapping[Norms, float]
"""Several bounds that hold together, each a factor by the product of norms that it is multiplied with."""
CONSTANT: Norms = ()
Share: TypeAlias = tuple[int, int]
"""The number of a tensor whose rows are norms beside each other, and that of a tensor one of these norms is of."""


def norm_of(number: int, level: str) -> Bounds:
    """One times the norm of a tensor: of each of its rows, or of all of it."""
    return {(((number, level), 1.0),): 1.0}


def constant(bounds: Bounds) -> float:
    """The bound that depends on nothing; infinite if there is none.

    >>> constant({CONSTANT: 2.0, (((0, "row"), 1.0),): 1.0}), constant({})
    (2.0, inf)
    """
    return bounds.get(CONSTANT, math.inf)


def times(first: Bounds, second: Bounds, power: float = 1.0) -> Bounds:
    """Bounds on a product of two numbers, the second of which is raised to a power.

    >>> x = norm_of(0, "row")
    >>> times(x, times({CONSTANT: 5.0}, x, -1.0))[CONSTANT]
    5.0
    """
    merged: dict[Norms, float] = {}
    for norms, factor in first.items():
        for others, other in second.items():
            exponents = dict(norms)
            for symbol, exponent in others:
                exponents[symbol] = exponents.get(symbol, 0.0) + power * exponent
            key = tuple(sorted((symbol, e) for symbol, e in exponents.items() if e))
            value = factor * other**power if other or power > 0 else math.inf
            merged[key] = min(merged.get(key, math.inf), value)
    return merged


def shares(bounds: Bounds, factor: float = 1.0) -> dict[Share, float]:
    """Bounds on rows that are a number times the norm of one tensor's row by that of another.

    >>> x, y = norm_of(0, "row"), norm_of(1, "row")
    >>> shares(times(x, times({CONSTANT: 5.0}, y, -1.0)))
    {(1, 0): 5.0}
    """
    known: dict[Share, float] = {}
    for norms, bound in bounds.items():
        by_power = {power: number for (number, level), power in norms if level == "row"}
        if len(norms) == 2 and set(by_power) == {-1.0, 1.0}:
            known[by_power[-1.0], by_power[1.0]] = bound * factor
    return known


def least(*several: Bounds) -> Bounds:
    """All of these bounds hold."""
    merged: dict[Norms, float] = {}
    for bounds in several:
        for norms, factor in bounds.items():
            merged[norms] = min(merged.get(norms, math.inf), factor)
    return {norms: factor for norms, factor in merged.items() if factor < math.inf}


def most(first: Bounds, second: Bounds) -> Bounds:
    """Either of the two holds: what both have in common, at the larger factor."""
    return {norms: max(first[norms], second[norms]) for norms in first if norms in second}


def _lowest(first: Bounds, second: Bounds) -> Bounds:
    return {norms: min(first[norms], second[norms]) for norms in first if norms in second}


@dataclass(frozen=True, kw_only=True)
class Moves:
    """How far a tensor moves in L2, at most, when private data change."""

    replace: float = math.inf
    """One record is replaced."""
    remove: float = math.inf
    """One record's row becomes zeros."""
    client: float = math.inf
    """All records are replaced."""
    empty: float = math.inf
    """All records become zeros."""
    joint: Mapping[Share, float] = field(default_factory=dict)
    """One record is replaced: so many times the share of a part in the norm of all. Squares of shares add up to one."""

    def scaled(self, factor: float) -> Moves:
        """Of a tensor that is so many times as large, or less."""
        return Moves(
            replace=_product(self.replace, factor),
            remove=_product(self.remove, factor),
            client=_product(self.client, factor),
            empty=_product(self.empty, factor),
            joint={share: bound * factor for share, bound in self.joint.items()},
        )

    def added(self, other: Moves) -> Moves:
        """Of a sum of two tensors."""
        return Moves(
            replace=self.replace + other.replace,
            remove=self.remove + other.remove,
            client=self.client + other.client,
            empty=self.empty + other.empty,
        )


def _product(bound: float, factor: float) -> float:
    return 0.0 if factor == 0 and math.isfinite(bound) else bound * factor


@dataclass(frozen=True, kw_only=True)
class Fact:
    """What is known of a private tensor, whatever the private data are, if what enters a clip is finite.

    A *row* is what lies at one place of the axis.
    """

    axis: int | None = None
    """The axis along which bounds on rows hold; that of records where each row is of one."""
    own: bool = True
    """Whether each row is computed from its own record and public values alone."""
    order: int = 0
    """Of which records the rows are: rows of another order are those of other records."""
    row: Bounds = field(default_factory=dict)
    """On the L2 norm of each row."""
    whole: Bounds = field(default_factory=dict)
    """On the L2 norm of the tensor."""
    long: Bounds = field(default_factory=dict)
    """The L2 norm of each row is at least this."""
    entry: Bounds = field(default_factory=dict)
    """On the size of each entry."""
    low: Bounds = field(default_factory=dict)
    """Each entry is at least this."""
    finite: bool = True
    """Whether each entry is a finite number, so that bounds hold of it."""
    positive: bool = False
    """Whether no entry is negative."""
    vanishes: bool = False
    """Whether a row is zeros where its record is."""
    tensor: int | None = None
    """The number of the tensor that this is, in whatever shape."""
    square: int | None = None
    """The number of the tensor whose entries' squares these are."""
    single: bool = False
    """Whether each row has at most one entry that is not zero."""
    along: bool = False
    """Whether it is the private value times one number that is not negative."""
    parts: tuple[frozenset[int], ...] = ()
    """For each entry of a row the numbers of tensors whose rows are no longer than it."""
    moves: Moves | None = None
    """What is known of how far a tensor moves that is made of all records."""
    why: str = ""
    """The operation after which nothing bounds it any more."""
    orders: frozenset[int] = frozenset({-2, -1})
    """Of rows that may depend on several records, the orders of those that they are made of: two, if not one."""

    def rows(self, width: int) -> Bounds:
        """On the norm of each row of so many entries."""
        spread = {norms: factor * math.sqrt(width) for norms, factor in self.entry.items()}
        return least(self.row, spread, self.whole) if self.finite else {}

    def entries(self) -> Bounds:
        """On the size of each entry, which may be infinite where the bound is."""
        return least(self.entry, self.row, self.whole)

    def all(self, rows: int, width: int) -> Bounds:
        """On the norm of the whole tensor of so many rows; a norm of rows says nothing of it."""
        row = self.rows(width) if self.axis is not None else {}
        flat = constant(self.entries()) * math.sqrt(rows * width)
        stacked = {CONSTANT: min(constant(row) * math.sqrt(rows), flat)}
        return least(self.whole, stacked) if self.finite else {}

    def moved(self, rows: int, width: int) -> Moves:
        """How far it moves, for all private data."""
        if not self.finite:
            return Moves()
        known = self.moves or Moves()
        apart = math.sqrt(2) if self.positive else 2.0  # between two points of a ball, or of its positive part
        size = constant(self.all(rows, width))
        client = min(known.client, apart * size)
        change = min(known.replace, client)
        away = min(known.remove, change)
        if self.axis is not None and self.own:
            row = constant(self.rows(width))
            change = min(change, apart * row)
            away = min(away, change, row if self.vanishes else math.inf)
        if self.along:
            # A tensor and the same one with a row of zeros are at most 90 degrees apart, however either is scaled.
            away = min(away, math.sqrt(2) * size)
        empty = min(known.empty, client, size if self.vanishes else math.inf)
        return Moves(replace=change, remove=away, client=client, empty=empty, joint=known.joint)

    def either(self, other: Fact) -> Fact:
        """Of a tensor whose entries are those of the one or of the other."""
        same = self.axis is not None and self.axis == other.axis
        return Fact(
            axis=self.axis if same else None,
            entry=most(self.entries(), other.entries()),
            low=_lowest(self.low, other.low),
            finite=self.finite and other.finite,
            positive=self.positive and other.positive,
            vanishes=self.vanishes and other.vanishes,
        )

    def changed(self, **fields: object) -> Fact:
        """The same with other fields; it is another tensor then, of which squares and directions are not known."""
        other = {"tensor": None, "square": None, "along": False, "single": False, "long": {}, "parts": (), **fields}
        return replace(self, **other)  # type: ignore[arg-type]

    def alone(self) -> Fact:
        """Without bounds that speak of norms of rows where there are no rows, or of all of them at once."""
        plain = replace(self, whole=_of_all(self.whole))
        if self.axis is not None:
            return plain
        return replace(plain, row={}, entry=_of_all(self.entry), low=_of_all(self.low))


def _of_all(bounds: Bounds) -> Bounds:
    return {norms: factor for norms, factor in bounds.items() if all(level == "whole" for (_, level), _ in norms)}


UNKNOWN = Fact()
