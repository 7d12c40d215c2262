"""Links of Markdown pages: where they lead, and the headings that they can name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath

from markdown_it import MarkdownIt

__all__ = ["anchors", "broken", "links"]

_MARKDOWN = MarkdownIt("commonmark").enable("table")


def anchors(text: str) -> list[str]:
    """The names of all headings, as GitHub and MyST make them; a name that occurs again has a number."""
    tokens = _MARKDOWN.parse(text)
    titles = [after.children or [] for token, after in pairwise(tokens) if token.type == "heading_open"]
    found: list[str] = []
    for title in titles:
        words = "".join(part.content for part in title if part.type in ("text", "code_inline"))
        name = re.sub(r"[^\w\u4e00-\u9fff\- ]", "", words.strip().lower()).replace(" ", "-")
        again = sum(other == name or other.rpartition("-")[0] == name for other in found)
        found.append(f"{name}-{again}" if name in found else name)
    return found


def links(text: str) -> Iterator[str]:
    """The targets of links and pictures, but those of other sites."""
    for token in _MARKDOWN.parse(text):
        for part in token.children or []:
            target = part.attrGet("href") if part.type == "link_open" else part.attrGet("src")
            if isinstance(target, str) and not re.match(r"[a-z]+:", target):
                yield target


def broken(pages: Mapping[str, str], root: Path) -> Iterator[str]:
    """A line for each link of these pages, by their path below `root`, to a page, heading or file that is not there."""
    known = {name: set(anchors(text)) for name, text in pages.items()}
    for name, text in pages.items():
        for target in links(text):
            path, _, anchor = target.partition("#")
            where = _joined(PurePosixPath(name).parent, path) if path else name
            there = where in known or (root / where).exists()
            if not there or (anchor and where in known and anchor not in known[where]):
                yield f"{name}: {target}"


def _joined(folder: PurePosixPath, path: str) -> str:
    parts: list[str] = []
    for part in (folder / path).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
