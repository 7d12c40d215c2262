"""`vflpriv audit`: audit the systems of a configuration, a recorded training, or a training function."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import typer

from vflpriv.cli.options import (
    AccountantOption,
    BaselineOption,
    ConfidenceOption,
    ConfigArgument,
    DataOption,
    DateOption,
    DeviceOption,
    FormatsOption,
    FreshOption,
    JunitOption,
    LedgerOption,
    OnlyOption,
    OutOption,
    QuietOption,
    SarifOption,
    SeedOption,
    SetOption,
    SummaryOption,
    ToleranceOption,
    TrainOption,
    TranscriptOption,
    TrialsOption,
    TrustLedgerOption,
    WorkersOption,
    assignments,
    given,
    parsed_value,
)

__all__ = ["audit", "papers"]

_OF_OTHER_SYSTEMS = ("config", "transcript", "train", "ledger", "trust_ledger")
"""Parameters that say what to audit."""


def audit(
    config: ConfigArgument = None,
    out: OutOption = Path("vflpriv-report"),
    seed: SeedOption = None,
    trials: TrialsOption = None,
    confidence: ConfidenceOption = None,
    device: DeviceOption = None,
    accountant: AccountantOption = None,
    data: DataOption = None,
    only: OnlyOption = None,
    set_: SetOption = None,
    format_: FormatsOption = None,
    fresh: FreshOption = False,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    summary: SummaryOption = None,
    baseline: BaselineOption = None,
    tolerance: ToleranceOption = None,
    workers: WorkersOption = None,
    date: DateOption = "",
    quiet: QuietOption = False,
    transcript: TranscriptOption = None,
    train: TrainOption = None,
    ledger: LedgerOption = None,
    trust_ledger: TrustLedgerOption = False,
) -> None:
    """Audit the systems of a configuration, or a training of your own, and write the report.

    Exit code 1 when a claim is violated or a premise broken, 3 when a claim is unsupported or unmeasured.
    """
    from vflpriv import api
    from vflpriv.cli.ci import Gate, report_at
    from vflpriv.report.formats import DEFAULT_FORMATS

    gate = Gate(report_at, baseline=baseline, tolerance=tolerance, junit=junit, sarif=sarif, summary=summary)
    fields = {"seed": parsed_value(seed), "confidence": parsed_value(confidence), "device": device}
    fields |= {"accountant": accountant, "data.name": data}
    report = api.audit(
        config,
        transcript=transcript,
        train=train,
        ledger=ledger,
        out=out,
        overrides=given(fields) | assignments(set_),
        trials=parsed_value(trials),
        only=tuple(only or ()),
        formats=format_ or DEFAULT_FORMATS,
        fresh=fresh,
        trust_ledger=trust_ledger,
        date=date,
        quiet=quiet,
        workers=parsed_value(workers),
    )
    raise typer.Exit(gate.finish(report, out, format_ or DEFAULT_FORMATS, config=ledger or config))


def papers(**options: Any) -> None:
    """Audit published systems, each gap between a paper and its algorithm a system of its own: `audit papers`."""
    audit(Path("papers"), **options)


_signature = inspect.signature(audit, eval_str=True)
_kept = [p for name, p in _signature.parameters.items() if name not in _OF_OTHER_SYSTEMS]
papers.__signature__ = _signature.replace(parameters=_kept)  # type: ignore[attr-defined]
