"""Output formats as results see them: what a format declares, and how a result is written in formats by name.

The formats themselves are in `vflpriv/render/formats`, one module each; a plug-in adds one through the entry point
group `vflpriv.formats`. A result finds them through the registry, so that `report/` does not depend on `render/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from vflpriv.common.files import write_atomically
from vflpriv.common.registry import available, find
from vflpriv.errors import InputError

__all__ = ["DEFAULT_FORMATS", "Context", "Format", "Saved", "checked_formats", "file_names", "save_result"]

DEFAULT_FORMATS = ("json", "html", "md")
"""The formats that are written when none is named."""


class Saved(Protocol):
    """A result that formats can write."""

    stem: ClassVar[str]
    """The kind of result, and the first part of the names of its files: `report` of an audit, `attacks` of attacks."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a format may show beside the result itself."""

    comparison: Any = None
    """A `vflpriv.report.compare.Comparison` with a baseline; that module imports the results, hence no type here."""
    config: Path | None = None
    """The audited file, for the lines that findings are attached to."""
    limit: int | None = None
    """The most bytes that the text may have, for formats that can leave parts out."""


class Format(ABC):
    """An output format: turns a result into the text of one file."""

    name: ClassVar[str]
    summary: ClassVar[str]
    results: ClassVar[tuple[str, ...]] = ("report", "attacks")
    """The stems of the results that it can write."""
    suffix: ClassVar[str] = ""
    """What follows the stem in a file name; the format's name if empty."""

    def file_name(self, result: Any) -> str:
        """The name of the file that a result is written to."""
        return f"{result.stem}.{self.suffix or self.name}"

    @abstractmethod
    def render(self, result: Any, context: Context) -> str:
        """The content of that file."""


def checked_formats(names: Iterable[str], stem: str) -> tuple[str, ...]:
    """The names of formats, each once; an error names the first that does not exist or cannot write such a result."""
    chosen = tuple(dict.fromkeys(names))
    usable = [name for name, item in available("format").items() if stem in item.results]
    for name in chosen:
        if name not in usable:
            try:
                find("format", name)
            except InputError as error:
                raise InputError("--format", name, error.expected) from error
            raise InputError("--format", name, f"one of {', '.join(usable)}")
    return chosen


def save_result(result: Saved, folder: Path, names: Iterable[str], context: Context | None = None) -> list[Path]:
    """Write a result into a folder in these formats, and return the paths. Each file is whole or absent."""
    paths = []
    for name in checked_formats(names, result.stem):
        item: Format = find("format", name)()
        path = folder / item.file_name(result)
        write_atomically(path, item.render(result, context or Context()))
        paths.append(path)
    return paths


def file_names(result: Saved, names: Iterable[str]) -> list[str]:
    """The names of the files that a result is written to in these formats."""
    return [find("format", name)().file_name(result) for name in dict.fromkeys(names)]
