"""Defences of `vflpriv attack` in a configuration: engine settings by a name, some of them at several strengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from vflpriv.core.attack import NO_DEFENCE
from vflpriv.errors import InputError

__all__ = ["DefenceVariant", "defence_variants"]

_STRENGTHS = "strengths"
_EXPECTED = "strengths as a table of fields with one or more different values each, such as {scale = [0.01, 0.1]}"


@dataclass(frozen=True, kw_only=True)
class DefenceVariant:
    """One defence at one strength, a row of the attack matrix: the engine settings that it changes."""

    name: str
    section: str
    """The name under which the configuration has it, the same for all of its strengths."""
    changes: Mapping[str, Any]


def defence_variants(section: str, entry: Mapping[str, Any]) -> tuple[DefenceVariant, ...]:
    """The defence of one section at each combination of its strengths; as it is where it lists none.

    >>> entry = {"defence": "laplace", "strengths": {"scale": [0.01, 0.1]}}
    >>> for variant in defence_variants("noise", entry):
    ...     print(variant.name, variant.changes)
    noise (scale 0.01) {'defence': {'name': 'laplace', 'scale': 0.01}}
    noise (scale 0.1) {'defence': {'name': 'laplace', 'scale': 0.1}}
    """
    changes = {field: value for field, value in entry.items() if field != _STRENGTHS}
    if section == NO_DEFENCE:
        raise InputError(_field(section), NO_DEFENCE, "another name: this one stands for the system without a defence")
    if _STRENGTHS not in entry:
        return (DefenceVariant(name=section, section=section, changes=changes),)
    strengths = _strengths(entry[_STRENGTHS], _field(section, _STRENGTHS))
    chosen = [dict(zip(strengths, values, strict=True)) for values in product(*strengths.values())]
    return tuple(
        DefenceVariant(name=_name(section, s), section=section, changes=_at(changes, s, section)) for s in chosen
    )


def _field(*path: str) -> str:
    return ".".join(("attack.defences", *path))


def _strengths(given: Any, field: str) -> Mapping[str, Sequence[Any]]:
    """The values of each field, checked: a list of different plain values."""
    if not isinstance(given, Mapping) or not given:
        raise InputError(field, given, _EXPECTED)
    for values in given.values():
        plain = isinstance(values, list | tuple) and all(isinstance(v, str | int | float) for v in values)
        if not plain or not values or len({_shown(v) for v in values}) < len(values):
            raise InputError(field, given, _EXPECTED)
    return given


def _at(changes: Mapping[str, Any], strength: Mapping[str, Any], section: str) -> dict[str, Any]:
    """The changes at one strength: of the registered defence that they name, or of the engine's settings."""
    defence = changes.get("defence")
    fixed = changes if defence is None else defence if isinstance(defence, Mapping) else {"name": defence}
    for name in strength:
        if name in fixed:
            raise InputError(_field(section, _STRENGTHS, name), strength[name], "a field that is given nowhere else")
    return {**fixed, **strength} if defence is None else {**changes, "defence": {**fixed, **strength}}


def _name(section: str, strength: Mapping[str, Any]) -> str:
    return f"{section} ({', '.join(f'{field} {_shown(value)}' for field, value in strength.items())})"


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
