"""Named columns of tables, and public knowledge about them: limits of numbers and values of texts.

Numbers are otherwise scaled by their mean and deviation over the training records, and texts have a column of 0 and 1
for each value in those records: one record then has a say in the features of all others, which no budget counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vflpriv.errors import InputError

__all__ = ["Column", "Ranges", "Values", "check_declared", "decided_by_all", "declared"]

Ranges = Mapping[str, tuple[float, float]]
"""The limits of columns of numbers, by name."""
Values = Mapping[str, Sequence[str]]
"""The values of columns of texts, by name."""
Block = NDArray[np.float64]


class Column(NamedTuple):
    """One column of features: its name in the table and, where that holds texts, the value that it is 1 for."""

    name: str
    value: str | None = None
    public: bool = False
    """Whether its scale, or the list of values that it is one of, was declared and not taken from the records."""


def check_declared(name: str, columns: Sequence[Column] | None, ranges: Ranges, values: Values) -> None:
    """Raise an InputError that names the column if what is declared does not fit the columns of a data set."""
    declarations: Sequence[tuple[str, Mapping[str, Sequence[object]], str]] = (
        ("data.ranges", ranges, "numbers"),
        ("data.values", values, "texts"),
    )
    for field, given, kind in declarations:
        known = sorted({c.name for c in columns or () if (c.value is None) == (kind == "numbers")})
        for column, entry in given.items():
            if column not in known:
                fitting = f"a column of {kind}: {', '.join(known)}" if known else f"none: {name} has no such columns"
                raise InputError(f"{field}.{column}", list(entry), fitting)
    for column, (low, high) in ranges.items():
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InputError(f"data.ranges.{column}", [low, high], "two numbers, the lower one first")
    for column, texts in values.items():
        if not texts or len(set(texts)) < len(texts):
            raise InputError(f"data.values.{column}", list(texts), "at least one value, each once")


def declared(
    features: Block,
    test_features: Block,
    columns: Sequence[Column],
    views: Sequence[int],
    ranges: Ranges,
    values: Values,
) -> tuple[Block, Block, tuple[Column, ...], tuple[int, ...]]:
    """Training and test features with declared columns as they are declared; `views` count the columns of each party.

    Of a text column that is not declared, values that test records alone have are left out: all zeros.
    """
    seen = (features != 0).any(axis=0)
    kept: list[Placed] = []
    widths, end = [], 0
    for width in views:
        begin, end = end, end + width
        placed = [(columns[place], place) for place in range(begin, end)]
        groups = [_declared(list(group), seen, ranges, values) for _, group in groupby(placed, _name)]
        own = [column for group in groups for column in group]
        kept += own
        widths.append(len(own))
    train, test = (
        np.concatenate([_column(part, column, place, ranges) for column, place in kept], axis=1)
        for part in (features, test_features)
    )
    return train, test, tuple(column for column, _ in kept), tuple(widths)


def decided_by_all(columns: Sequence[Column] | None) -> tuple[str, ...]:
    """What the training records together decide of standardised columns; without names, of all of them."""
    undeclared = [Column("")] if columns is None else [column for column in columns if not column.public]
    numbers = ["the means and deviations of the columns"] if any(c.value is None for c in undeclared) else []
    texts = ["the values that texts take"] if any(c.value is not None for c in undeclared) else []
    return (*numbers, *texts)


Placed = tuple[Column, int | None]
"""A column, and its place among the features; None for a value that no record has."""


def _name(placed: tuple[Column, int]) -> str:
    return placed[0].name


def _declared(own: list[tuple[Column, int]], seen: NDArray[np.bool_], ranges: Ranges, values: Values) -> list[Placed]:
    """The columns that those of one name are afterwards; `seen` are those that are not 0 in all training records."""
    first = own[0][0]
    if first.name in values and first.value is not None:
        places = {column.value: place for column, place in own}
        return [(Column(first.name, value, public=True), places.get(value)) for value in values[first.name]]
    if first.name in ranges and first.value is None:
        return [(column._replace(public=True), place) for column, place in own]
    return [(column, place) for column, place in own if column.value is None or column.public or seen[place]]


def _column(features: Block, column: Column, place: int | None, ranges: Ranges) -> Block:
    """(N, 1): -1 to 1 within declared limits, to which other values are moved; zeros for a value that none has."""
    if place is None:
        return np.zeros((len(features), 1), dtype=features.dtype)
    own = features[:, place : place + 1]
    if not column.public or column.value is not None:
        return own
    low, high = ranges[column.name]
    scaled: Block = np.clip(2 * (own - low) / (high - low) - 1, -1, 1).astype(features.dtype)
    return scaled
