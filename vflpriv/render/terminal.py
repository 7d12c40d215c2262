"""The back end for terminals: a document as aligned tables and lines, its outcome last, readable without colour."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from vflpriv.core.claims import Verdict
from vflpriv.render import document as d
from vflpriv.render.console import Writer

__all__ = ["print_result"]

_VERDICTS = {
    Verdict.VIOLATED: "bold red",
    Verdict.UNSUPPORTED: "bold yellow",
    Verdict.UNMEASURED: "bold blue",
    Verdict.CONSISTENT: "bold green",
    Verdict.NOT_APPLICABLE: "dim",
    None: "bold",
}
_TONES = {
    "strong": "bold",
    "alarm": "bold red",
    "good": "green",
    "leak0": "dim",
    "leak1": "green",
    "leak2": "yellow",
    "leak3": "red",
    "leak4": "bold red",
}


def print_result(result: object, console: Console) -> None:
    """Print all that a terminal shows of a result: its blocks, then its outcome in the last line."""
    document = d.describe(result)
    _Terminal(console).show(document)


class _Terminal(Writer):
    """Prints blocks."""

    def show(self, document: d.Document) -> None:
        self._blocks(document.blocks)
        if document.outcome:
            sign = f"{document.verdict.icon} " if document.verdict and document.outcome == "verdict" else ""
            self.line(Text(f"{sign}{document.headline}", _VERDICTS[document.verdict]))

    def _blocks(self, blocks: Sequence[d.Block]) -> None:
        for block in blocks:
            if not block.only & d.TERMINAL:
                continue
            if isinstance(block, d.Table):
                self._table(block)
            elif isinstance(block, d.Terms):
                self.list([(_text(term), _text(said)) for term, said in block.rows])
            elif isinstance(block, d.Paragraph):
                self.line(_text(block.text))
            elif isinstance(block, d.Bullets):
                self.list([("-", _text(item)) for item in block.items])
            elif isinstance(block, d.Code):
                # As it is: lines of a file are neither broken nor read as markup.
                self.console.print(block.text, markup=False, highlight=False, soft_wrap=True)
            elif isinstance(block, d.Section | d.Group | d.Fold | d.Card):
                self._blocks(block.blocks)

    def _table(self, table: d.Table) -> None:
        columns, rows = table.shown(d.TERMINAL)
        if rows:
            cells = [tuple(_cell(cell, tall=table.tall) for cell in row) for row in rows]
            self.table(table.title, [_head(column) for column in columns], cells, leading=int(table.tall))


def _head(column: d.Column) -> str:
    """The name as `Writer.table` reads it."""
    return f"{'?' * column.optional}{'>' * column.number}{column.narrow_title}"


def _cell(cell: d.Cell, *, tall: bool) -> Text:
    text = _text(cell.text)
    if tall and cell.below:
        text.append(f"\n{cell.below}")
    if cell.tone:
        text.style = _TONES.get(cell.tone, "")
    return text


def _text(content: d.Content) -> Text:
    """A text in the style of its first part that has one: a cell or line has one colour."""
    parts = content if isinstance(content, tuple) else (content,)
    style = next((_style(part) for part in parts if _style(part)), "")
    return Text("".join(f"{_sign(part)}{d.plain(part)}" for part in parts), style)


def _sign(part: d.Content) -> str:
    return f"{part.verdict.icon} " if isinstance(part, d.Badge) and part.verdict is not None else ""


def _style(part: d.Content) -> str:
    if isinstance(part, d.Badge):
        return _VERDICTS[part.verdict]
    return _TONES.get(part.style, "") if isinstance(part, d.Span) else ""
