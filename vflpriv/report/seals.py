"""Canonical JSON of results, and its seal: whether a file of results holds what was written, and who wrote it."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel

from vflpriv.common.files import BLANK, SEAL, SIGNING_KEY, Seal, opened, parsed_json, sealed, signing_key

__all__ = ["canonical_json", "changed_since_written", "sealed_json", "unsigned"]

_NUMBER = r"(?:-?\d[\d.eE+-]*|null)"
_NUMBERS = re.compile(rf"\[\s+{_NUMBER}(?:,\s+{_NUMBER})*\s+\]")
"""A list of numbers in indented JSON: no string has a line break in it."""


def canonical_json(model: BaseModel) -> str:
    """JSON with a stable order of keys, two spaces, lists of numbers on one line, and a final newline."""
    return _text(json.loads(model.model_dump_json(by_alias=True)))


def _text(value: Any) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return _NUMBERS.sub(lambda numbers: f"[{' '.join(numbers[0][1:-1].split())}]", text) + "\n"


def sealed_json(model: BaseModel) -> str:
    """Canonical JSON of a result with a field `seal`, which is filled in; signed if the environment has a key."""
    content = canonical_json(model.model_copy(update={"seal": BLANK})).encode()
    parts, _ = sealed(_what(json.loads(content)), content, signing_key())
    return b"".join(map(bytes, parts)).decode()


def changed_since_written(content: bytes, *, required: bool = True) -> list[str]:
    """What the seal of a file of results tells of changes; nothing if its values are those that were written.

    A file without a seal is one of an earlier version, or somebody took the seal away: where it is not `required`, only
    whoever has the key that signs asks for it.
    """
    key, value = signing_key(), parsed_json(content)
    if not (isinstance(value, dict) and value.get(SEAL)) and key is None and not required:
        return []
    try:
        seal = _opened(value)
    except ValueError:
        return [f"{SEAL}: expected that of these values: they were changed after they were written"]
    if key is not None and not seal.made_with(key):
        return [f"{SEAL}: expected one that is signed with {SIGNING_KEY}"]
    return []


def unsigned(content: bytes) -> str:
    """Why it is not known who wrote a file that was not changed; empty if it is."""
    if not _opened(parsed_json(content)).signed:
        return "it is not signed, and whoever can write the file can seal another"
    return f"{SIGNING_KEY} is not set" if signing_key() is None else ""


def _opened(value: Any) -> Seal:
    """The seal, which is that of the values: spaces and line ends may be others than those that were written."""
    return opened(_what(value), _text(value).encode())


def _what(value: Any) -> str:
    return str(value.get("schema_version")) if isinstance(value, dict) else ""
