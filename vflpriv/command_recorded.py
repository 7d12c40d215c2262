"""What `vflpriv audit --transcript DIR --ledger FILE` does."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from vflpriv.command_audit import show, write_report
from vflpriv.command_ci import CiOptions, Gate, writable
from vflpriv.config import Config, DataConfig
from vflpriv.config_ledger import LedgerConfig, load_ledger
from vflpriv.report import Report
from vflpriv.transcript_format import Head
from vflpriv.verdicts import Word

__all__ = ["run_recorded"]


def run_recorded(transcript: Path, ledger: Path, *, out: Path, formats: Sequence[str], ci: CiOptions) -> int:
    """Audit a recorded training, write the report, print it; the exit code is the report's, or 1 if it got worse."""
    config, gate = load_ledger(ledger), Gate(ci)
    writable(out)
    command = shlex.join(["vflpriv", "audit", "--transcript", str(transcript), "--ledger", str(ledger)])
    report = _audit(transcript, config, command)
    show(report, write_report(report, out, formats))
    return gate.publish(report, ledger, Console())


def _audit(transcript: Path, config: LedgerConfig, command: str) -> Report:
    from vflpriv.report_ledger import ledger_checks
    from vflpriv.report_rows import build_report
    from vflpriv.run_recorded import audit_recording

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
