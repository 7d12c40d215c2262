"""Finished attacks on disk: a killed run of attacks goes on with the system and defence it was at."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

from vflpriv import __version__
from vflpriv.config import Config
from vflpriv.files import write_atomically
from vflpriv.report_attacks import Cell, FeatureCell, TrainedRow
from vflpriv.report_tests import Row
from vflpriv.systems import System

__all__ = ["AttemptStore", "Attempted"]


class Attempted(Row):
    """Everything that was found on one system under one defence."""

    accuracy: float
    cells: tuple[Cell, ...]
    features: tuple[FeatureCell, ...] = ()


class AttemptStore:
    """One file a system and defence, named by a hash of all that decides it. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None, config: Config) -> None:
        self.folder = folder
        asked = (config.attack.model_dump_json(exclude={"defences"}), config.data.model_dump_json())
        self._asked = "\0".join((__version__, *asked, str(config.confidence), config.accountant))

    def load(self, row: TrainedRow, system: System) -> Attempted | None:
        """What was found, or None; a file that cannot be read counts as absent and is computed again."""
        path = self._path(row, system)
        if path is None or not path.exists():
            return None
        try:
            return Attempted.model_validate_json(path.read_bytes())
        except ValidationError:
            return None

    def save(self, row: TrainedRow, system: System, found: Attempted) -> None:
        """Keep it; a reader sees all of it or nothing."""
        path = self._path(row, system)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, found.model_dump_json())

    def _path(self, row: TrainedRow, system: System) -> Path | None:
        if self.folder is None:
            return None
        words = f"{self._asked}\0{row.system}\0{row.defence}\0{system.fingerprint()}"
        return self.folder / f"{hashlib.sha256(words.encode()).hexdigest()[:24]}.json"
