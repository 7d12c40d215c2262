"""Errors that a user can act on: one line that names the field, the value and what was expected."""

from __future__ import annotations

__all__ = ["InputError", "VflprivError"]


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
        super().__init__(f"{field} = {_short(value)}: expected {expected}")


def _short(value: object) -> str:
    """One line; of anything but text, which may be a path, at most 80 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 or isinstance(value, str) else f"{text[:76]} ..."
