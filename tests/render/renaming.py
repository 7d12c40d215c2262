"""The same report with other names: every free text in it replaced, equal ones by equal ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel

__all__ = ["HOSTILE", "names", "renamed"]

M = TypeVar("M", bound=BaseModel)

HOSTILE = (
    "<script>alert(1)</script>",
    "</td></tr></table><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "</script><script>",
    "]]><x>",
    "<!--",
    "-->",
    "&lt;b&gt;&amp;#x3c;",
    "{{ 7 * 7 }}{% raw %}",
    "a|b\\|c\\",
    "`code` ```\n```",
    "~~~",
    "[x](http://evil.example)",
    "![x](http://evil.example/x.png)",
    "[x]: http://evil.example",
    "[^1]",
    "http://evil.example www.evil.example mail@evil.example @someone #1",
    "<http://evil.example>",
    "**b** __b__ ~~s~~ $x$ $$y$$",
    "# heading",
    "- item",
    "+ item",
    "1. item",
    "2) item",
    "> quote",
    "---",
    "===",
    "    code",
    "a\n\n# b\n\n- c",
    "a\r\nb\u2028c\u2029d\x85e",
    "\x1b[2J\x1b]0;owned\x07\x9b31m",
    "[red]x[/red] [/] [link=http://evil.example]y[/link] :smile:",
    "\u202egnp.exe\u2066\u200b",
    "\x00\x08\x0b\ufffe\uffff",
    "{0} {{1}} %s %n",
    "\ud800",
    "",
    " ",
)
"""Attempts to leave the place where a name stands, of each format."""


def names() -> st.SearchStrategy[str]:
    """Short hostile texts, alone and in pieces, and any text at all."""
    return st.one_of(
        st.sampled_from(HOSTILE),
        st.lists(st.sampled_from(HOSTILE), min_size=2, max_size=3).map("".join),
        st.text(max_size=30),
        st.text(alphabet="|`[]()<>*_#-+=!\\~$&{}@:/.\n 1a", max_size=12),
    )


def renamed(row: M, *texts: str) -> M:
    """The row with one text after the other, and a number, in place of its free texts; words of a fixed choice stay."""
    seen: dict[str, str] = {}
    return _row(row, lambda old: seen.setdefault(old, f"{texts[len(seen) % len(texts)]}{len(seen)}"))


def _row(row: M, name: Callable[[str], str]) -> M:
    fixed = {n for n, field in type(row).model_fields.items() if get_origin(field.annotation) is Literal}
    fixed |= {"picture"}  # an address of its own, checked by the model
    changed = {n: _any(getattr(row, n), name) for n in type(row).model_fields if n not in fixed}
    return row.model_copy(update=changed)


def _any(value: Any, name: Callable[[str], str]) -> Any:
    if isinstance(value, BaseModel):
        return _row(value, name)
    if isinstance(value, dict):
        return {_any(key, name): _any(item, name) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_any(item, name) for item in value)
    return name(value) if type(value) is str else value
