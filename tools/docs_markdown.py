"""Docstrings, tables and settings as Markdown, for the pages that are generated from the code."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

__all__ = [
    "PAPERS",
    "cell",
    "docstrings",
    "fence",
    "join",
    "paper",
    "part",
    "prose",
    "sentence",
    "settings_table",
    "table",
    "with_part",
]

PAPERS = {
    "DPZV": "dpzv",
    "DPZV (conference)": "dpzv-conference",
    "VAFL": "vafl",
    "VFL-Cascaded": "vfl-cascaded",
    "VIMADMM": "vimadmm",
}
"""The papers by the short names that docstrings and claims use, with their anchors in docs/papers.md."""

_NAMES = "|".join(re.escape(name) for name in sorted(PAPERS, key=len, reverse=True))
_CITATION = re.compile(rf"(?<![\w-])({_NAMES})(?=,? (?:Theorem|Lemma|Algorithm|Appendix|Table|eqs?\.|§))")
_PLAIN = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "null": "nothing",
}
_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def prose(text: str) -> str:
    """A docstring as Markdown: only backticks are markup in it, and citations of papers are links."""
    parts = re.split(r"(`[^`]*`)", inspect.cleandoc(text))
    escaped = (part if part.startswith("`") else re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts)
    return _CITATION.sub(lambda citation: paper(citation[1]), "".join(escaped))


def paper(name: str) -> str:
    """The paper with this short name as a link from a folder of pages; any other source as it is."""
    return f"[{name}](../papers.md#{PAPERS[name]})" if name in PAPERS else prose(name)


def docstrings(item: type) -> str:
    """What a module and its class say of themselves; of the module, all of it."""
    texts = [sys.modules[item.__module__].__doc__ or "", item.__doc__ or ""]
    return "\n\n".join(prose(text) for text in texts if text)


def cell(text: object) -> str:
    """Text for a table, on one line."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table, or nothing without rows."""
    lines = [f"| {' | '.join(cell(c) for c in row)} |" for row in rows]
    rule = ["---"] * len(header)
    return "\n".join([f"| {' | '.join(header)} |", f"| {' | '.join(rule)} |", *lines]) + "\n" if lines else ""


def settings_table(model: type[BaseModel], only: Sequence[str] | None = None) -> str:
    """Every field of a model, or these: what it takes, its default, what it is for."""
    schema = model.model_json_schema(mode="validation")
    required, definitions = schema.get("required", []), schema.get("$defs", {})
    rows = []
    for name, field in schema.get("properties", {}).items():
        if only is not None and name not in only:
            continue
        default = "required" if name in required else _default(model, name, field)
        rows.append((f"`{name}`", _expected(field, definitions), default, prose(field.get("description", ""))))
    return table(("setting", "takes", "default", "what it is"), rows)


def _default(model: type[BaseModel], name: str, field: Mapping[str, Any]) -> str:
    if "default" not in field:
        return "empty" if model.model_fields[name].default_factory else "see below"
    value = field["default"]
    if value is None:
        return "–"
    if isinstance(value, dict):
        return "see its own table"
    if isinstance(value, list):
        return f"`[{', '.join(_literal(v) for v in value)}]`"
    return f"`{_literal(value)}`"


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else f"{value}"


def _expected(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """What JSON Schema says a field takes, in words."""
    if "$ref" in field:
        return _expected(definitions[field["$ref"].rsplit("/", 1)[1]], definitions)
    if "allOf" in field:
        return _expected(field["allOf"][0], definitions)
    if "anyOf" in field:
        expected = [_expected(choice, definitions) for choice in field["anyOf"]]
        return " or ".join(word for word in dict.fromkeys(expected) if word != "nothing")
    if "const" in field:
        return f"`{_literal(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{_literal(value)}`" for value in field["enum"])
    if field.get("type") == "array":
        items = field.get("items") or next(iter(field.get("prefixItems", ())), {})
        return f"list of {_expected(items, definitions)}"
    if field.get("type") == "object":
        return "table"
    limits = [f"{sign} {field[name]:,g}" for name, sign in _LIMITS.items() if name in field]
    return f"{_PLAIN.get(str(field.get('type')), 'anything')} {', '.join(limits)}".strip()


def sentence(summary: str) -> str:
    """A summary with a capital letter and a full stop."""
    return prose(f"{summary[:1].upper()}{summary[1:]}.")


def fence(language: str, text: str) -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def join(*blocks: str) -> str:
    """Blocks with an empty line between them."""
    return "\n\n".join(block.strip() for block in blocks if block.strip()) + "\n"


def part(text: str, name: str) -> str:
    """What stands between the marks of a part."""
    return _pattern(name).search(text)[2]  # type: ignore[index]


def with_part(text: str, name: str, content: str) -> str:
    """A text with another content between the marks of a part."""
    return _pattern(name).sub(lambda marks: f"{marks[1]}\n{content.strip()}\n{marks[3]}", text)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name}\b[^>]*-->)\n(.*?)(<!-- /{name} -->)", re.DOTALL)
