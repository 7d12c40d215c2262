"""Markdown that stays what it is whatever names are in it: escaped text, tables, commands, and a limit on its size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from vflpriv.common import formatting as f

__all__ = ["LIMIT", "command_block", "escape", "paragraph", "table", "within"]

LIMIT = 1_000_000
"""Bytes. GitHub drops a step summary above 1 MiB."""

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LONGEST_CELL = 400


def escape(text: object) -> str:
    """Any text as one line that is shown literally: no markup, no table cell of its own, no link, no mention.

    >>> escape("a|b `c` <i>\\n@d")
    'a\\\\|b \\\\`c\\\\` &lt;i&gt; @\\u2060d'
    """
    line = "".join(_ENTITIES.get(c, c) for c in f.shorten(text, _LONGEST_CELL))
    line = re.sub(r"([\\`*_{}\[\]#|~!$])", r"\\\1", line)
    # At the start of a line these would begin a list or a rule.
    line = re.sub(r"^(?:[-+=]|\d{1,9}[.)](?=\s|$))", lambda m: f"{m[0][:-1]}\\{m[0][-1]}", line)
    # Bare addresses and @names become links by themselves; a word joiner inside them prevents it.
    return re.sub(r"(:(?=//)|\bwww(?=\.)|@(?=\w))", "\\1\u2060", line, flags=re.IGNORECASE)


def paragraph(text: str) -> str:
    """A text of several sentences, shown literally; however long it is, only a single sentence is ever cut.

    >>> paragraph("One *word*. Two.")
    'One \\\\*word\\\\*. Two.'
    """
    return " ".join(escape(sentence) for sentence in re.split(r"(?<=[.;:,]) ", text))


def command_block(text: str) -> str:
    """A shell command in a fenced block, with a fence longer than any in the command."""
    command = f.shorten(text, 2000)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", command)), default=0))
    return f"{fence}sh\n{command}\n{fence}"


def table(header: Sequence[str], aligned: str, rows: Iterable[Sequence[str]]) -> str:
    """`aligned` has a colon for each column of text and a dash for each column of numbers."""
    rule = ["---" if mark == ":" else "--:" for mark in aligned]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


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
