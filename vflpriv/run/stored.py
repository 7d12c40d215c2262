"""Finished parts of long work as sealed JSON files: what was computed is not computed again after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from vflpriv.common.sealed import SEAL, UNSEALED, damaged, read_sealed, sealed_path, write_sealed
from vflpriv.report.rows import Row

__all__ = ["RowStore"]

R = TypeVar("R", bound=Row)


class _Stored(Row, Generic[R]):
    """The content of a file."""

    model_config = ConfigDict(validate_by_name=True)

    seal: str = Field(alias=SEAL)
    results: R


class RowStore(Generic[R]):
    """One file for each result, named by a hash of everything that decides it. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None, kind: type[R]) -> None:
        self.folder, self._file = folder, _Stored[kind]  # type: ignore[valid-type]

    def load(self, key: str | None) -> R | None:
        """The stored result, or None; a file with any other content than was stored is not used, with a warning."""
        if self.folder is None or key is None:
            return None
        path = sealed_path(self.folder, key, "json")
        content = read_sealed(path, key)
        if content is None:
            return None
        try:
            return self._file.model_validate_json(content).results
        except ValidationError:
            damaged(path)
            return None

    def save(self, key: str | None, result: R) -> None:
        """Store a result; a reader sees the whole file or none."""
        if self.folder is not None and key is not None:
            content = self._file(seal=UNSEALED, results=result).model_dump_json(by_alias=True)
            write_sealed(sealed_path(self.folder, key, "json"), key, content.encode())
