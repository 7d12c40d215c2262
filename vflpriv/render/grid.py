"""A table as plain data, from which every output makes its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    def markdown(self) -> str:
        """The table in Markdown; every text in it is escaped."""
        marks = "".join("-" if number else ":" for _, number in self.header)
        header = [escape(name) for name, _ in self.header]
        return table(header, marks, [[escape(cell) for cell in row] for row in self.rows])
