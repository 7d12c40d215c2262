"""Lines, lists and tables in a terminal: whatever names are in them, they are text and steer nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vflpriv.common import formatting as f

__all__ = ["Cell", "Writer", "say"]

Cell = str | Text
_WIDE = 100
"""From this width on, columns that explain are shown too."""


class Writer:
    """Prints to a console; on one that has no Greek letters, in ASCII."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.plain = console.options.ascii_only
        self.wide = console.width >= _WIDE

    def text(self, cell: Cell) -> Text:
        """Never markup, nor what steers a terminal: names come from elsewhere."""
        text = cell if isinstance(cell, Text) else Text(cell)
        words = f.clean_lines(text.plain)
        return Text(f.ascii_only(words) if self.plain else words, style=text.style)

    def line(self, cell: Cell) -> None:
        self.console.print()
        self.console.print(self.text(cell), highlight=False)

    def list(self, rows: Sequence[tuple[Cell, Cell]]) -> None:
        """A word, and the sentence that goes with it."""
        if not rows:
            return
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for word, sentence in rows:
            grid.add_row(self.text(word), self.text(sentence))
        self.console.print()
        self.console.print(grid, highlight=False)

    def table(
        self, title: str, columns: str | Sequence[str], rows: Iterable[tuple[Cell, ...]], *, leading: int = 0
    ) -> None:
        """`columns` are names, or a text split by `;`: with `>` right-aligned, with `?` only where there is room."""
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, leading=leading)
        names = columns.split(";") if isinstance(columns, str) else columns
        shown = [i for i, name in enumerate(names) if self.wide or not name.startswith("?")]
        for name in (names[i].lstrip("?") for i in shown):
            right = name.startswith(">")
            header = self.text(name.lstrip(">").replace("/", "\n"))
            table.add_column(header, justify="right" if right else "left", no_wrap=right, overflow="fold")
        for cells in rows:
            table.add_row(*(self.text(cells[i]) for i in shown))
        self.line(Text(title, style="bold"))
        self.console.print(table, highlight=False)


def say(console: Console, words: str) -> None:
    """A line as it is, whatever names are in it, and not wrapped: paths can be copied from it."""
    line = f.clean_lines(words).replace("\n", " ")
    console.print(Text(f.ascii_only(line) if console.options.ascii_only else line), soft_wrap=True, highlight=False)
