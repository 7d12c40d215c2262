"""Lines, lists and tables in a terminal. Names in them are printed as text: no markup, no control sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from vflpriv.common import formatting as f
from vflpriv.render.fitting import ColumnWidths, chunks, fitted

__all__ = ["Cell", "Writer", "print_line"]

Cell = str | Text
"""Styles of the levels of leakage, from none to the highest."""
_WIDE = 100
"""The width from which optional columns are shown too."""


class Writer:
    """Prints to a console; in ASCII where its encoding has no Greek letters."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.plain = console.options.ascii_only
        self.wide = console.width >= _WIDE

    def text(self, cell: Cell) -> Text:
        """The cell without markup and control characters: names come from configurations and files."""
        text = cell if isinstance(cell, Text) else Text(cell)
        content = f.clean_lines(text.plain)
        return Text(f.ascii_only(content) if self.plain else content, style=text.style)

    def line(self, cell: Cell) -> None:
        """An empty line, then this one."""
        self.console.print()
        self.console.print(self.text(cell), highlight=False)

    def list(self, rows: Sequence[tuple[Cell, Cell]]) -> None:
        """Two columns without a header: a term, and the sentence about it."""
        if not rows:
            return
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for term, sentence in rows:
            grid.add_row(self.text(term), self.text(sentence))
        self.console.print()
        self.console.print(grid, highlight=False)

    def table(
        self, title: str, columns: str | Sequence[str], rows: Iterable[tuple[Cell, ...]], *, leading: int = 0
    ) -> None:
        """Print a table under a title.

        `columns` are names, or one text with `;` between them. A name that begins with `>` is aligned right, one with
        `?` is left out in a narrow terminal, and `/` breaks the line. Where words would have to be broken all the same,
        the last columns go into a table of their own.
        """
        names = columns.split(";") if isinstance(columns, str) else columns
        shown = [i for i, name in enumerate(names) if self.wide or not name.startswith("?")]
        heads = [names[i].lstrip("?") for i in shown]
        right = [head.startswith(">") for head in heads]
        headers = [self.text(head.lstrip(">").replace("/", "\n")) for head in heads]
        body = [[self.text(cells[i]) for i in shown] for cells in rows]
        self.line(Text(title, style="bold"))
        for number, table in enumerate(self._tables(headers, right, body, leading)):
            if number:
                self.console.print()
            self.console.print(table, highlight=False)

    def _tables(
        self, headers: Sequence[Text], right: Sequence[bool], body: Sequence[Sequence[Text]], leading: int
    ) -> Iterator[Table]:
        """The table, or several with some of its columns each where the terminal is too narrow for all of them."""
        width, most = self.console.width, max(1, self.console.width // 2)
        columns = [
            ColumnWidths.of([header.plain, *(row[i].plain for row in body)], rigid=right[i], most=most)
            for i, header in enumerate(headers)
        ]
        for chosen in chunks(columns, width):
            table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, leading=leading)
            for place, wide in zip(chosen, fitted([columns[i] for i in chosen], width), strict=True):
                justify: JustifyMethod = "right" if right[place] else "left"
                table.add_column(headers[place], justify=justify, no_wrap=right[place], overflow="fold", width=wide)
            for row in body:
                table.add_row(*(row[i] for i in chosen))
            yield table


def print_line(console: Console, text: str) -> None:
    """Print one line that is not wrapped, so that paths can be copied from it; names in it are not read as markup."""
    line = f.clean_lines(text).replace("\n", " ")
    console.print(Text(f.ascii_only(line) if console.options.ascii_only else line), soft_wrap=True, highlight=False)
