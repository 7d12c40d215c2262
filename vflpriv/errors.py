"""Errors that a user can act on: one line that names the field, the value and what was expected."""

from __future__ import annotations

__all__ = ["InputError", "OutputError", "StoreWarning", "VflprivError", "wanted"]


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


def wanted(message: str) -> str:
    """The expected value, out of the message of a pydantic validator.

    >>> wanted("Input should be a valid tuple"), wanted("Value error, one of a and b")
    ('a valid tuple', 'one of a and b')
    """
    return message.removeprefix("Value error, ").removeprefix("Input should be ")


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
