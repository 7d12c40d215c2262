"""Settings checked against their model; the first error becomes one line that names the field and the value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from vflpriv.errors import InputError, first_problem

__all__ = ["parse_settings"]

M = TypeVar("M", bound=BaseModel)


def parse_settings(model: type[M], raw: Mapping[str, Any], where: str) -> M:
    """The settings as their model; an error names the field below `where`."""
    try:
        text = json.dumps(raw, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(where or "config", raw, "plain values") from error
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "json_invalid":  # nested too deeply, or half a character
            raise InputError(where or "config", "settings", f"plain values ({first['ctx']['error']})") from error
        problem = first_problem(error)
        if first["type"] == "extra_forbidden" and problem.place in _of_systems(model):
            expected = f"it in a system: [system.{problem.place}] below the [[system]] that it is of"
            raise InputError(problem.place, problem.value, expected) from error
        raise problem.error(".".join(part for part in (where, problem.place) if part) or "config") from error


def _of_systems(model: type[BaseModel]) -> frozenset[str]:
    """The fields of each system of a configuration."""
    field = model.model_fields.get("system")
    inner = next((kind for kind in get_args(field.annotation) if isinstance(kind, type)), None) if field else None
    return frozenset(inner.model_fields) if inner is not None and issubclass(inner, BaseModel) else frozenset()
