"""Errors that a user can act on: one line that names the field, the value and what was expected.

What pydantic finds wrong is put into plain words here, and nowhere else: its own words are never shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

__all__ = [
    "PATTERNS",
    "InputError",
    "OutputError",
    "Problem",
    "StoreWarning",
    "VflprivError",
    "expected_words",
    "first_problem",
]

PATTERNS = {
    r"^[\w.-]+$": "a name of letters, digits, '.', '_' and '-'",
    r"^[A-Za-z][A-Za-z0-9_-]{0,63}$": "a name of at most 64 letters, digits, '_' and '-' that begins with a letter",
    r"^[A-Za-z][\w.-]{0,63}$": "a name of at most 64 letters, digits, '.', '_' and '-' that begins with a letter",
    r"^[0-9a-f]{32}$": "32 hexadecimal digits",
    r"^[0-9a-f]{64}$": "64 hexadecimal digits",
    r"^[0-9a-f]{128}$": "128 hexadecimal digits",
    r"^data:image/png;base64,[A-Za-z0-9+/=]*$": "a PNG picture as a data: address",
}
"""The patterns of fields, and what they ask for."""

_LIST, _TABLE, _TEXT = "a list", "a table of fields and values", "text"
_WORDS = {
    "missing": "a value; it is required",
    "extra_forbidden": "no such field",
    "invalid_key": "names of fields as text",
    "greater_than": "a number > {gt}",
    "greater_than_equal": "a number >= {ge}",
    "less_than": "a number < {lt}",
    "less_than_equal": "a number <= {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "none_required": "no value",
    "string_type": _TEXT,
    "string_unicode": "text in UTF-8",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_not_ascii": "text of ASCII characters",
    "literal_error": "{one_of}",
    "enum": "{one_of}",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
    "json_invalid": "valid JSON ({error})",
    "json_type": "JSON",
    "recursion_loop": "values that do not hold themselves",
    "recursion_depth_exceeded": "values that are nested less deeply",
    "value_error": "{error}",
    "assertion_error": "{error}",
    "union_tag_invalid": "one of {expected_tags}",
    "union_tag_not_found": "a table with the field {discriminator}",
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "deque_type", "iterable_type"), _LIST),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"), _TABLE),
}
_OTHERWISE = "a value of another kind"

# Parts that pydantic adds to the location of a field with several types, names of models among them. No field has such
# a name, but one that is misspelt may.
_TAG = re.compile(r"constrained-\w+|function-.*|\w+\[.*\]|\[key\]|int|float|str|bool|[A-Z]\w+")
_ABOUT_NAMES = ("missing", "extra_forbidden")


class VflprivError(Exception):
    """Base of every error this package raises on purpose."""

    exit_code = 4


class InputError(VflprivError, ValueError):
    """Something the user gave cannot be used.

    >>> str(InputError("engine.noise_std", -1.0, "a number >= 0"))
    'engine.noise_std = -1.0: expected a number >= 0'
    """

    exit_code = 2

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field, self.value, self.expected = field, value, expected
        super().__init__(_line(f"{_cut(field, 200)} = {_short(value)}: expected {_cut(expected, 400)}"))

    def __reduce__(self) -> tuple[type[InputError], tuple[str, object, str]]:
        return type(self), (self.field, self.value, self.expected)


class OutputError(VflprivError, OSError):
    """A file could not be written; a file that was there before is unchanged.

    >>> str(OutputError("report.json", "No space left on device"))
    'report.json could not be written: No space left on device'
    """

    exit_code = 2

    def __init__(self, path: object, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(_line(f"{_cut(str(path), 250)} could not be written: {_cut(' '.join(why.split()), 400)}"))

    def __reduce__(self) -> tuple[type[OutputError], tuple[object, str]]:
        return type(self), (self.path, self.why)


class StoreWarning(UserWarning):
    """A stored result is not used, or a result is not stored; it is computed again."""


def _short(value: object) -> str:
    """The value on one line: at most 80 characters, or 250 of a text, which may be a path."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number with too many digits
        text = f"a very large {type(value).__name__}"
    return _cut(" ".join(text.split()), 250 if isinstance(value, str) else 80)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 4]} ..."


def _line(text: str) -> str:
    """The text without control characters, which could act on a terminal: some names come from files."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# What pydantic finds wrong


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One wrong field."""

    place: str
    """The names of the fields that lead to it, with dots between them; empty for the whole."""
    value: Any
    expected: str

    def error(self, place: str) -> InputError:
        """The error of one line, with the place as the caller names it."""
        return InputError(place, self.value, self.expected)


def expected_words(kind: str, context: Mapping[str, Any]) -> str:
    """What was expected where pydantic reports an error of this kind.

    >>> expected_words("literal_error", {"expected": "'a', 'b' or 'c'"}), expected_words("url_type", {})
    ("one of 'a', 'b' or 'c'", 'a value of another kind')
    """
    if kind == "string_pattern_mismatch":
        pattern = str(context.get("pattern", "that this field has"))
        return PATTERNS.get(pattern, f"text of the form {pattern}")
    choices = str(context.get("expected", _OTHERWISE))
    known = {**context, "one_of": f"one of {choices}" if " or " in choices else choices}
    try:
        return _WORDS.get(kind, _OTHERWISE).format(**known)
    except KeyError:
        return _OTHERWISE


def first_problem(error: ValidationError) -> Problem:
    """The first wrong field, in the words of this program.

    A misspelt field also makes another one missing: the misspelt one is named. Where a field may have several types,
    each of them is said; unless a value fits one of them but for a part, which is then named instead.
    """
    errors = error.errors(include_url=False)
    first = min(errors, key=lambda e: e["type"] == "missing")
    related = [e for e in errors if _place(e)[: len(_place(first))] == _place(first)]
    deepest = max(related, key=lambda e: len(_place(e)))
    cause = deepest.get("ctx", {}).get("error")
    place = ".".join(_place(deepest))
    if isinstance(cause, InputError):
        return Problem(place=place, value=cause.value, expected=cause.expected)
    return Problem(place=place, value=_value(deepest), expected=_expected(related, deepest))


def _place(error: ErrorDetails) -> list[str]:
    parts = [str(part) for part in error["loc"]]
    names = parts[-1:] if error["type"] in _ABOUT_NAMES else []
    return [part for part in parts[: len(parts) - len(names)] if not _TAG.fullmatch(part)] + names


def _expected(related: Sequence[ErrorDetails], chosen: ErrorDetails) -> str:
    """What was expected at the place of the chosen error, by each type that the field may have."""
    same = [e for e in related if _place(e) == _place(chosen)]
    by_type = [expected_words(e["type"], e.get("ctx", {})) for e in same]
    return ", or ".join(dict.fromkeys(by_type))


def _value(error: ErrorDetails) -> Any:
    """The wrong value; of a whole section whose fields do not go together, not all of them."""
    if error["type"] == "missing":
        return "nothing"
    return "settings" if isinstance(error["input"], dict) and error["type"] == "value_error" else error["input"]
