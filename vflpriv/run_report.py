"""An audit as data: from a configuration, or from a recorded training, to the report."""

from __future__ import annotations

import json
from pathlib import Path

from vflpriv.config import Config, DataConfig
from vflpriv.config_ledger import LedgerConfig
from vflpriv.report import Report
from vflpriv.report_ledger import ledger_checks
from vflpriv.report_rows import build_report
from vflpriv.run import audit_system, workload
from vflpriv.run_features import FeatureAttempts
from vflpriv.run_progress import Task, progress_bar
from vflpriv.run_recorded import audit_recording
from vflpriv.run_systems import build_system, load_data
from vflpriv.transcript_format import Head
from vflpriv.verdicts import Word

__all__ = ["audit_config", "audit_transcript"]


def audit_config(config: Config, *, store: Path | None, command: str, quiet: bool | None) -> Report:
    """Audit every system of a configuration; `store` is a folder for finished trials."""
    data = load_data(config)
    systems = [build_system(config, place, data) for place in range(len(config.system))]
    features = FeatureAttempts.of(config, data)
    total = sum(workload(s, c, features) for s, c in zip(systems, config.system, strict=True))
    with progress_bar(quiet) as bar:
        task = Task(bar, total)
        audited = [
            audit_system(system, section, config, store=store, progress=task, features=features)
            for system, section in zip(systems, config.system, strict=True)
        ]
        task.stage("accounting")
        return build_report(audited, config, reproduce=command)


def audit_transcript(transcript: Path, config: LedgerConfig, *, command: str) -> Report:
    """Audit a recorded training by its transcript and its ledger file."""
    found = audit_recording(transcript, config)
    audited, head = found.audited, found.recording.head
    whole = Config(
        seed=config.seed,
        confidence=config.confidence,
        accountant=config.accountant,
        data=DataConfig(name=head.name, devices=head.devices),
        system=(audited.config,),
    )
    report = build_report([audited], whole, reproduce=command, select=False)
    checks = tuple(ledger_checks(found, config, command))
    facts = {"rounds": found.recording.rounds, "data": _facts(head), "staleness": None, "checks": checks}
    words = [*report.verdicts, *(check.verdict for check in checks)]
    return report.model_copy(
        update={
            "systems": tuple(system.model_copy(update=facts) for system in report.systems),
            "config": json.loads(config.model_dump_json()),
            "exit_code": 1 if Word.VIOLATED in words else 3 if Word.UNSUPPORTED in words else 0,
        }
    )


def _facts(head: Head) -> dict[str, object]:
    """What is known of the data: no features are in a transcript."""
    facts: dict[str, object] = {"name": head.name, "records": head.records, "devices": head.devices}
    facts |= {"classes": head.classes, "messages": dict(head.messages)}
    return facts if head.accuracy is None else facts | {"accuracy": head.accuracy, "tests": head.tests}
