"""The back end for Markdown: a document that stays what it is whatever names are in it, within a limit on its size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from vflpriv.common import formatting as f
from vflpriv.core.claims import Verdict
from vflpriv.render import document as d

__all__ = ["LIMIT", "escape", "paragraph", "to_markdown", "written_blocks"]

LIMIT = 1_000_000
"""Bytes. GitHub drops a step summary above 1 MiB."""

_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LONGEST_CELL = 400
_EMOJI = {
    Verdict.VIOLATED: "❌",
    Verdict.UNSUPPORTED: "⚠️",
    Verdict.UNMEASURED: "❔",
    Verdict.CONSISTENT: "✅",
    Verdict.NOT_APPLICABLE: "➖",
}
_BOLD = ("alarm", "strong", "leak1", "leak2", "leak3", "leak4")


def escape(text: object) -> str:
    """Any text as one line that is shown literally: no markup, no table cell of its own, no link, no mention.

    >>> escape("a|b `c` <i>\\n@d")
    'a\\\\|b \\\\`c\\\\` &lt;i&gt; @\\u2060d'
    """
    # At the start of a line these would begin a list or a rule.
    start = r"^(?:[-+](?!\d)|=|\d{1,9}[.)](?=\s|$))"
    return re.sub(start, lambda m: f"{m[0][:-1]}\\{m[0][-1]}", _inside(text))


def _inside(text: object) -> str:
    """A text that does not begin a line."""
    line = f.shorten(text, _LONGEST_CELL).translate(_ENTITIES)
    line = re.sub(r"([\\`*_{}\[\]#|~!$])", r"\\\1", line)
    # Bare addresses and @names become links by themselves; a word joiner inside them prevents it.
    return re.sub(r"(:(?=//)|\bwww(?=\.)|@(?=\w))", "\\1\u2060", line, flags=re.IGNORECASE)


def paragraph(text: str) -> str:
    """A text of several sentences, shown literally; however long it is, only a single sentence is ever cut.

    >>> paragraph("One *word*. Two.")
    'One \\\\*word\\\\*. Two.'
    """
    first, *others = re.split(r"(?<=[.;:,]) ", text)
    return " ".join([escape(first), *map(_inside, others)])


def to_markdown(
    document: d.Document, *, medium: d.Medium = d.MARKDOWN, limit: int = LIMIT, whole: str = "report.json"
) -> str:
    """The document, at most `limit` bytes long; where it is cut it names the file that has the `whole` of it."""
    return within(_document(document, medium), limit, whole=whole)


def _document(document: d.Document, medium: d.Medium) -> Iterator[str]:
    yield f"{'#' * document.level} {escape(document.heading or document.headline)}"
    yield from written_blocks([*document.said, *document.blocks], medium)


def written_blocks(blocks: Iterable[d.Block], medium: d.Medium = d.MARKDOWN) -> Iterator[str]:
    """One text for each paragraph, table, list and fold that this medium shows."""
    for block in blocks:
        if not block.only & medium:
            continue
        if isinstance(block, d.Section):
            within_it = list(written_blocks(block.blocks, medium))
            if within_it and block.headed & medium:
                yield f"{'#' * block.level} {inline(block.title)}"
            yield from within_it
        elif isinstance(block, d.Card):
            yield f"### {_sign(block.badge)}{inline(block.title)}"
            yield from written_blocks(block.blocks, medium)
        elif isinstance(block, d.Group):
            yield from written_blocks(block.blocks, medium)
        elif text := _written(block, medium):
            yield text


def _written(block: d.Block, medium: d.Medium) -> str:
    if isinstance(block, d.Paragraph):
        text = inline(block.text, sentences=True)
        return f"<sub>{text}</sub>" if block.style == "small" else text
    if isinstance(block, d.Table):
        return _table(block, medium)
    if isinstance(block, d.Bullets):
        return "\n".join(f"- {inline(item, sentences=True)}" for item in block.items)
    if isinstance(block, d.Terms):
        return "\n".join(f"- **{inline(term)}**: {inline(said, sentences=True)}" for term, said in block.rows)
    if isinstance(block, d.Command):
        return _command(block.text)
    if isinstance(block, d.Heading):
        return f"{'#' * block.level} {inline(block.text)}"
    if isinstance(block, d.Fold):
        # One text: a limit on the size must not cut between the tags.
        inside = "\n\n".join(written_blocks(block.blocks, medium))
        return f"<details><summary>{inline(block.summary)}</summary>\n\n{inside}\n\n</details>"
    return ""


def inline(content: d.Content, *, sentences: bool = False) -> str:
    """A text in one line, shown literally; of `sentences` only a single one that is too long is ever cut."""
    if isinstance(content, tuple):
        return "".join(inline(part, sentences=sentences) for part in content)
    if isinstance(content, d.Badge):
        return f"{_sign(content)}**{escape(content.text or content.verdict)}**"
    if isinstance(content, d.Span) and content.style == "code" and not re.search(r"[`|]", content.text):
        return f"`{f.clean(content.text)}`"
    if isinstance(content, d.Span) and content.style == "em":
        return f"*{escape(content.text)}*"
    if isinstance(content, d.Span):
        return _spaced(d.plain(content), "**" if content.style in _BOLD else "", sentences=sentences)
    return _spaced(content, "", sentences=sentences) if isinstance(content, str) else ""


def _spaced(text: str, mark: str, *, sentences: bool) -> str:
    """The escaped text with the spaces around it, which join it to its neighbours."""
    stripped, before, after = text.strip(), " " * text[:1].isspace(), " " * text[-1:].isspace()
    return (
        f"{before}{mark}{paragraph(stripped) if sentences else escape(stripped)}{mark}{after}" if stripped else before
    )


def _sign(badge: d.Badge) -> str:
    return f"{_EMOJI[badge.verdict]} " if badge.verdict else ""


def _table(block: d.Table, medium: d.Medium) -> str:
    columns, rows = block.shown(medium)
    names = [escape(column.title) for column in columns]
    rule = ["--:" if column.number else "---" for column in columns]
    lines = [[_cell(*pair) for pair in zip(columns, row, strict=True)] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (names, rule, *lines))


def _cell(column: d.Column, cell: d.Cell) -> str:
    text = inline(cell.text, sentences=column.style == "notes")
    text = f"**{text}**" if text and cell.tone in _BOLD[:1] + _BOLD[2:] else text
    return f"{text} ({escape(cell.below)})" if cell.below else text


def _command(text: str) -> str:
    """A shell command in a fenced block, with a fence longer than any in the command."""
    command = f.shorten(text, 2000)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", command)), default=0))
    return f"{fence}sh\n{command}\n{fence}"


def within(blocks: Iterable[str], limit: int, *, whole: str = "report.json") -> str:
    """Blocks with an empty line between them, at most `limit` bytes in all.

    The first block that does not fit ends the text: of a table, the rows that fit are kept; a last line says so.
    """
    last = f"**Cut here**: the report is longer than a step summary may be. `{whole}` has all of it.\n"
    kept: list[str] = []
    room = limit - len(last.encode())
    for block in blocks:
        size = len(block.encode()) + 2
        if size > room:
            rows = block.encode()[: max(0, room - 2)].decode(errors="ignore").rpartition("\n")[0]
            return "\n\n".join([*kept, *([rows] if rows.startswith("|") else []), last])
        room -= size
        kept.append(block)
    return "\n\n".join(kept) + "\n"
