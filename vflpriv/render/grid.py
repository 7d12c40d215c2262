"""A table as plain data, from which every output makes its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflpriv.common.formatting import NOTHING
from vflpriv.render.markdown import escape, table

__all__ = ["Grid"]


@dataclass(frozen=True)
class Grid:
    """A table: its columns, of which those that begin with > hold numbers, and its rows of plain text."""

    columns: str
    rows: Sequence[Sequence[str]]

    @property
    def header(self) -> list[tuple[str, bool]]:
        return [(name.removeprefix(">"), name.startswith(">")) for name in self.columns.split(";")]

    @property
    def filled(self) -> Grid:
        """The same table without columns that hold nothing in any row.

        >>> Grid("row;>paper;>ours", [("A", "–", "2"), ("B", "–", "–")]).filled
        Grid(columns='row;>ours', rows=[['A', '2'], ['B', '–']])
        """
        kept = [place for place in range(len(self.header)) if any(row[place] != NOTHING for row in self.rows)]
        names = self.columns.split(";")
        return Grid(";".join(names[place] for place in kept), [[row[place] for place in kept] for row in self.rows])

    @property
    def markdown(self) -> str:
        """The table in Markdown; every text in it is escaped."""
        marks = "".join("-" if number else ":" for _, number in self.header)
        header = [escape(name) for name, _ in self.header]
        return table(header, marks, [[escape(cell) for cell in row] for row in self.rows])
