"""Sections of TOML files as models, and TOML text of plain values: a whole file, or one value on a line.

TOML has no null, so that None is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomlkit
from pydantic import BaseModel, ConfigDict

__all__ = ["Section", "toml_file", "toml_value"]


class Section(BaseModel):
    # Without a docstring: schemas would show it for every section that has none of its own.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def toml_file(values: Mapping[str, Any]) -> str:
    """A file of these values, with a table for each mapping.

    >>> print(toml_file({"seed": 1, "system": [{"key": "a", "title": None, "rates": [0.5, 1e-5]}]}), end="")
    seed = 1
    <BLANKLINE>
    [[system]]
    key = "a"
    rates = [0.5, 1e-05]
    """
    return tomlkit.dumps(_without_none(values))


def toml_value(value: Any) -> str:
    """A value on one line, mappings as inline tables.

    >>> toml_value({"age": [0, 99.5], "my job": ["a"]})
    '{age = [0, 99.5],"my job" = ["a"]}'
    """
    # Everything in an array is inline; outside one, tomlkit would begin a table.
    array = tomlkit.array()
    array.append(_without_none(value))
    return array.as_string()[1:-1]


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_none(part) for name, part in value.items() if part is not None}
    if isinstance(value, list | tuple):
        return [_without_none(part) for part in value if part is not None]
    return value
