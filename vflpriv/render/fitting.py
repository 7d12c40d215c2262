"""Widths of a table's columns in a terminal: no name is folded; what does not fit goes into a second table below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

__all__ = ["ColumnWidths", "chunks", "fitted"]

GAP = 2
"""Cells between two columns."""
_SENTENCE, _NARROWEST = 40, 24
"""A column with longer texts than the first holds sentences, and is at least as wide as the second."""


@dataclass(frozen=True)
class ColumnWidths:
    """The width that a column would have, and the least with which no word of it is folded."""

    natural: int
    least: int

    @classmethod
    def of(cls, texts: Sequence[str], *, rigid: bool, most: int) -> ColumnWidths:
        """Of a column with these texts; a `rigid` one is never wrapped, and no column needs more than `most`."""
        lines = [line for text in texts for line in text.split("\n")]
        natural = max((cell_len(line) for line in lines), default=0)
        if rigid:
            return cls(natural, natural)
        word = max((cell_len(word) for line in lines for word in line.split()), default=0)
        least = max(word, min(natural, _NARROWEST)) if natural > _SENTENCE else word
        return cls(natural, min(least, most, natural))


def chunks(columns: Sequence[ColumnWidths], width: int) -> list[list[int]]:
    """The columns of each table: one where all fit, else several that each begin with the first column.

    >>> chunks([ColumnWidths(6, 6), ColumnWidths(9, 4), ColumnWidths(5, 5)], 19), chunks([ColumnWidths(6, 6)] * 3, 14)
    ([[0, 1, 2]], [[0, 1], [0, 2]])
    """
    if not columns:
        return []
    tables = [[0]]
    for place in range(1, len(columns)):
        used = sum(columns[i].least for i in tables[-1]) + GAP * len(tables[-1])
        if len(tables[-1]) > 1 and used + columns[place].least > width:
            tables.append([0])
        tables[-1].append(place)
    return tables


def fitted(columns: Sequence[ColumnWidths], width: int) -> list[int]:
    """The width of each column of one table: as it would be, with the widest ones narrowed until all fit.

    >>> fitted([ColumnWidths(6, 6), ColumnWidths(30, 8), ColumnWidths(5, 5)], 30)
    [6, 15, 5]
    """
    widths = [column.natural for column in columns]
    excess = sum(widths) + GAP * (len(columns) - 1) - width
    while excess > 0:
        room = [place for place, column in enumerate(columns) if widths[place] > column.least]
        if not room:
            break
        widest = max(room, key=lambda place: widths[place])
        widths[widest] -= 1
        excess -= 1
    return widths
