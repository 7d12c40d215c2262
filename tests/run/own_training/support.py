"""Ledgers for the trainings of `systems.py`, and audits of these."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import vflpriv
from tests.run.own_training import systems
from vflpriv.report.audit import MeasurementRow, Report

__all__ = ["SYSTEMS", "audited", "claim", "ledger", "measured"]

SYSTEMS = Path(systems.__file__)
_WORLDS = {"unit": "label", "record": systems.RECORD, "devices": 1, "records": systems.RECORDS, "classes": 2}
_ANSWER = {"kind": "answer", "noise": "gaussian", "scale": systems.STD, "sensitivity": {"label": 1.0}, "leak": "none"}


def claim(key: str = "labels", **changes: Any) -> dict[str, Any]:
    return {"key": key, "unit": "label", "view": "device", "epsilon": 1.0, "delta": 1e-5, **changes}


def ledger(folder: Path, *, trials: Mapping[str, Any] | None = None, **changes: Any) -> Path:
    """A ledger file of the sound system; `trials` are changes of that section."""
    fields = {"trials": _WORLDS | dict(trials or {}), "release": [_ANSWER], "claim": [claim()], **changes}
    path = folder / "ledger.yaml"
    path.write_text(yaml.safe_dump(fields))
    return path


def audited(
    folder: Path, name: str, *, count: int = 60, options: Mapping[str, Any] | None = None, **changes: Any
) -> Report:
    """The report of one of the trainings with this ledger."""
    usual = {"train": f"{SYSTEMS}:{name}", "workers": 1, "trials": count, "formats": ["json"]}
    return vflpriv.audit(ledger=ledger(folder, **changes), **(usual | dict(options or {})))


def measured(report: Report, key: str = "labels") -> MeasurementRow | None:
    """The test of one claim by trials, or None."""
    (own,) = (row for row in report.systems[0].claims if row.key == key)
    return next((row for row in own.measurements if not row.proves), None)
