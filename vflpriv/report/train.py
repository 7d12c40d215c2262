"""The record of `vflpriv train`: one training of each system, how good its model is and what it cost."""

from __future__ import annotations

import json
from typing import Any

from vflpriv.report.audit import Staleness, Traffic, Utility
from vflpriv.report.rows import Displayed, Row

__all__ = ["TrainReport", "TrainRow"]


class TrainRow(Row):
    """One training."""

    key: str
    title: str
    engine: str
    settings: dict[str, Any]
    rounds: int
    parameters: int
    """Of all parties' models together."""
    utility: Utility | None
    traffic: Traffic | None
    staleness: Staleness | None
    models: str | None = None
    """The file that the models were saved to, if they were."""


class TrainReport(Displayed, Row):
    """One training of each system. The same configuration and seed give the same bytes."""

    schema_version: str = "vflpriv-train/1"
    tool_version: str
    seed: int
    confidence: float
    data: dict[str, Any]
    systems: tuple[TrainRow, ...]

    def to_json(self) -> str:
        """Canonical JSON: stable key order, two spaces, a final newline."""
        return json.dumps(json.loads(self.model_dump_json()), indent=2, ensure_ascii=False) + "\n"
