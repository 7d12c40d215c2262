"""What a result says, as one document of headings, paragraphs, tables and figures that every back end renders.

A module of `render/results/` (or of an experiment) describes a kind of result once. The back ends are `terminal.py`,
`markdown.py`, `html/blocks.py` and `notebook.py`: none of them knows any result, and no result knows how it is written.
A block that only some of them show says so (`only`), and each text is plain until a back end escapes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Flag, auto
from functools import singledispatch
from operator import itemgetter
from typing import Any

from vflpriv.common.formatting import NOTHING
from vflpriv.common.registry import available
from vflpriv.core.claims import Verdict

__all__ = [
    "BREAK", "EVERYWHERE", "MARKDOWN", "NOTEBOOK", "PAGE", "SUMMARY", "TERMINAL", "WRITTEN", "Badge", "Block",
    "Bullets", "Card", "Cell", "Code", "Column", "Command", "Content", "Document", "Figure", "Fold", "Group", "Heading",
    "Medium", "Number", "Pairs", "Paragraph", "Picture", "Plot", "Section", "Span", "Static", "Table", "Terms",
    "describe", "described_by", "link", "muted", "plain", "strong", "table_of",
]  # fmt: skip


class Medium(Flag):
    """Where a document is shown."""

    TERMINAL = auto()
    MARKDOWN = auto()
    SUMMARY = auto()
    """The step summary of a CI job: Markdown that is shorter."""
    PAGE = auto()
    NOTEBOOK = auto()


TERMINAL, MARKDOWN, SUMMARY, PAGE, NOTEBOOK = Medium
WRITTEN = MARKDOWN | SUMMARY
EVERYWHERE = TERMINAL | WRITTEN | PAGE | NOTEBOOK


@dataclass(frozen=True)
class Span:
    """A part of a text that stands out: `strong`, `muted`, `alarm`, `code`, `sub` (a line of its own, smaller).

    A `reference` is a number that leads to a note, which pages alone show.
    """

    text: str
    style: str = ""
    _: KW_ONLY
    link: str = ""
    """The id of the part of the page that it leads to."""
    exact: str = ""
    """The same figure with more digits, shown where a pointer rests on it."""
    label: str = ""
    """What a screen reader says in place of a text that is only a sign."""


@dataclass(frozen=True)
class Badge:
    """A verdict with its sign and colour; `text` says more than its name, None is no verdict."""

    verdict: Verdict | None
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of a document."""

    only: Medium = EVERYWHERE


Content = str | Span | Badge | Block | tuple["Content", ...]
"""A text. Blocks inside of one are for pages alone, such as a fold in a cell of a table."""


BREAK = Span("\n", "break")
"""The end of a line inside a text."""


def strong(text: str) -> Span:
    """A text that stands out."""
    return Span(text, "strong")


def muted(text: str) -> Span:
    """A text that steps back."""
    return Span(text, "muted")


def link(text: str, place: str) -> Span:
    """A text that leads to a part of the page."""
    return Span(text, link=place)


def plain(content: Content) -> str:
    """The text alone."""
    if isinstance(content, tuple):
        return "".join(plain(part) for part in content)
    if isinstance(content, Badge):
        return content.text or str(content.verdict)
    if isinstance(content, Span):
        return "" if content.style == "reference" else content.text
    return content if isinstance(content, str) else ""


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: Content
    _: KW_ONLY
    below: str = ""
    """A second line: in brackets where a cell has one line, left out in terminals unless the table is `tall`."""
    detail: tuple[Content, ...] = ()
    """Lines that stand there on pages, which have more room."""
    tone: str = ""
    """`strong`, `alarm`, `muted`, or how much leaks: `leak0` to `leak4`."""
    exact: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, and what it shows of a row.

    A name that begins with `>` is one of numbers; `?` before that leaves it out in a narrow terminal.
    """

    name: str
    cell: Callable[[Any], Cell | Content]
    short: str = ""
    """Its name in a terminal, in which / breaks the line; without one it is the name with a small first letter."""
    only: Medium = EVERYWHERE
    style: str = ""

    @property
    def number(self) -> bool:
        """Whether it is one of numbers."""
        return self.name.lstrip("?").startswith(">")

    @property
    def optional(self) -> bool:
        """Whether a narrow terminal leaves it out."""
        return self.name.startswith("?")

    @property
    def title(self) -> str:
        """Its name without marks."""
        return self.name.lstrip("?>")

    @property
    def narrow_title(self) -> str:
        """Its name in a terminal."""
        return self.short or self.title[:1].lower() + self.title[1:]


@dataclass(frozen=True)
class Table(Block):
    """Rows of any kind, of which each column shows a part."""

    columns: Sequence[Column]
    rows: Sequence[Any]
    _: KW_ONLY
    title: str = ""
    """The line above it in a terminal."""
    caption: Content = ""
    place: str = ""
    style: str = "sortable"
    tall: bool = False
    """Whether cells have two lines in a terminal, with an empty line between rows."""
    filled: bool = False
    """Whether columns that hold nothing in any row are left out."""
    below: Callable[[Any], Content] | None = None
    """A sentence under each row, on pages."""

    def shown(self, medium: Medium) -> tuple[list[Column], list[list[Cell]]]:
        """The columns that this medium shows, and the cells of each row."""
        columns = [column for column in self.columns if medium & column.only]
        rows = [[_cell(column.cell(row)) for column in columns] for row in self.rows]
        if self.filled:
            kept = [n for n in range(len(columns)) if any(row[n].text != NOTHING for row in rows)]
            columns, rows = [columns[n] for n in kept], [[row[n] for n in kept] for row in rows]
        return columns, rows


def _cell(content: Cell | Content) -> Cell:
    return content if isinstance(content, Cell) else Cell(content)


def table_of(names: str, rows: Sequence[Sequence[Content | Cell]], **fields: Any) -> Table:
    """A table of cells that are there already.

    `names` has `;` between the names of its columns, and `|` before the name that a column has in a terminal.

    >>> [column.title for column in table_of("row;>paper;>ours|us", [("A", "–", "2")], filled=True).shown(PAGE)[0]]
    ['row', 'ours']
    """
    columns = []
    for place, name in enumerate(names.split(";")):
        title, _, short = name.partition("|")
        columns.append(Column(title, itemgetter(place), short))
    return Table(columns, rows, **fields)


@dataclass(frozen=True)
class Plot:
    """A drawing, its caption, and the figures that it was drawn from as a table."""

    _: KW_ONLY
    svg: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure(Block):
    """A plot or several, which are drawn where they are shown; where there is nothing to show it is None."""

    draw: Callable[[], Plot | Sequence[Plot] | None]
    name: str = ""
    """What its figures are of; its caption if empty."""
    _: KW_ONLY
    only: Medium = PAGE


@dataclass(frozen=True)
class Picture(Block):
    """Images as data addresses, each with the words for those who cannot see it, and a caption."""

    images: Sequence[tuple[str, str]]
    caption: str
    _: KW_ONLY
    only: Medium = PAGE


@dataclass(frozen=True)
class Heading(Block):
    """A heading inside a section."""

    text: Content
    level: int = 4
    place: str = ""


@dataclass(frozen=True)
class Paragraph(Block):
    """One or more sentences."""

    text: Content
    style: str = ""


@dataclass(frozen=True)
class Bullets(Block):
    """A list; where it is numbered, the items of a page have ids for links: `place` and their number."""

    items: Sequence[Content]
    numbered: str = ""


@dataclass(frozen=True)
class Terms(Block):
    """Terms, each with what is said of it."""

    rows: Sequence[tuple[Content, Content]]
    style: str = ""


@dataclass(frozen=True)
class Pairs(Block):
    """Settings with their values, one after another."""

    rows: Sequence[tuple[str, str]]
    _: KW_ONLY
    only: Medium = PAGE


@dataclass(frozen=True)
class Command(Block):
    """A shell command."""

    text: str


@dataclass(frozen=True)
class Code(Block):
    """Text with its line breaks."""

    text: str
    label: str
    _: KW_ONLY
    only: Medium = PAGE


@dataclass(frozen=True)
class Number(Block):
    """A large figure with its label: the sign before it ("ε ≤"), a smaller one below it, and what it depends on."""

    label: str
    value: str
    second: str = ""
    lines: Sequence[Content] = ()
    _: KW_ONLY
    sign: str = ""
    exact: str = ""
    figure: bool = True
    """Whether the value is a figure and not a few words."""
    style: str = ""
    only: Medium = PAGE


@dataclass(frozen=True)
class Static(Block):
    """A part of a page that is the same in every report: the name of its template."""

    name: str
    _: KW_ONLY
    only: Medium = PAGE


@dataclass(frozen=True)
class Group(Block):
    """Blocks that a page lays out together, in the way that `style` names."""

    style: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Fold(Block):
    """Blocks behind a line that opens them."""

    summary: Content
    blocks: Sequence[Block]
    style: str = ""
    _: KW_ONLY
    opened: bool = False


@dataclass(frozen=True)
class Section(Block):
    """Blocks under a heading; one without any is left out."""

    title: Content
    blocks: Sequence[Block]
    place: str = ""
    _: KW_ONLY
    level: int = 2
    headed: Medium = EVERYWHERE
    """The media in which the heading is shown; terminals have none in any case."""
    note: str = ""
    """A few more words beside the heading of a page."""
    contents: str = ""
    """Its name in the page's list of contents."""
    folded: bool = False
    """Whether a page shows the heading alone until it is opened."""
    style: str = ""


@dataclass(frozen=True)
class Card(Block):
    """A frame around what is said of one claim or finding, in the colour of its verdict."""

    title: Content
    badge: Badge
    blocks: Sequence[Block]
    place: str
    style: str


@dataclass(frozen=True, kw_only=True)
class Document:
    """All that is said of a result: its outcome in one line, and the blocks with the details.

    Terminals print the headline last, where it is seen without scrolling; all other media show it first.
    """

    headline: str
    line: str = ""
    """The result in one line, for a shell; the headline if empty."""
    verdict: Verdict | None = None
    outcome: str = "headline"
    """What terminals print last: the `headline`, the headline with the sign of the `verdict`, or nothing if empty."""
    said: Sequence[Block] = ()
    """What stands beside the headline."""
    facts: Sequence[tuple[str, str]] = ()
    """What the result was made from, in a line below the headline of a page."""
    eyebrow: str = ""
    title: str = ""
    """Of the page; the headline if empty."""
    heading: str = ""
    """The first heading in Markdown; the headline if empty."""
    level: int = 1
    blocks: Sequence[Block] = ()
    source: str = ""
    """The file that the page is rendered from, with its version."""

    @property
    def sentence(self) -> str:
        """The headline with a capital letter."""
        return self.headline[:1].upper() + self.headline[1:]


@singledispatch
def described_by(result: object) -> Document:
    """The document of a result; each module that describes a kind of result registers a function for its type."""
    raise TypeError(f"nothing describes {type(result).__name__}")


def describe(result: object) -> Document:
    """The document of any result."""
    available("document")  # imports the modules that describe results
    return described_by(result)
