"""Settings checked against their model; the first error becomes one line that names the field and the value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from vflpriv.errors import InputError, wanted

__all__ = ["parse_settings"]

M = TypeVar("M", bound=BaseModel)

_LIMITS = {
    "greater_than": "a number > {gt}",
    "greater_than_equal": "a number >= {ge}",
    "less_than": "a number < {lt}",
    "less_than_equal": "a number <= {le}",
    "finite_number": "a finite number",
    "missing": "a value; it is required",
    "extra_forbidden": "no such field",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "literal_error": "one of {expected}",
    "enum": "one of {expected}",
}

# Parts that pydantic adds to the location of a field with several types; no field has such a name.
_TAG = re.compile(r"constrained-\w+|function-.*|\w+\[.*\]|int|float|str|bool")


def _first_error(error: ValidationError, where: str) -> InputError:
    # A misspelt field also makes another one missing: report the misspelt one.
    first = min(error.errors(include_url=False), key=lambda e: e["type"] == "missing")
    named = [str(part) for part in first["loc"] if not _TAG.fullmatch(str(part))]
    place = ".".join(part for part in (where, *named) if part) or "config"
    context = {k: v for k, v in first.get("ctx", {}).items() if k != "error"}
    template = _LIMITS.get(first["type"])
    expected = template.format(**context) if template else wanted(first["msg"])
    value, cause = first.get("input"), first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return InputError(place, cause.value, cause.expected)
    if first["type"] == "missing" or (isinstance(value, dict) and first["type"] == "value_error"):
        return InputError(place, "nothing" if first["type"] == "missing" else "settings", expected)
    return InputError(place, value, expected)


def parse_settings(model: type[M], raw: Mapping[str, Any], where: str) -> M:
    """The settings as their model; an error names the field below `where`."""
    try:
        text = json.dumps(raw, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(where or "config", raw, "plain values") from error
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise _first_error(error, where) from error
