"""`vflpriv audit`: audit the systems of a configuration, or a recorded training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflpriv.cli.options import (
    AccountantOption,
    BaselineOption,
    DeviceOption,
    FormatsOption,
    FreshOption,
    JunitOption,
    LedgerOption,
    OutOption,
    QuietOption,
    SarifOption,
    SeedOption,
    SummaryOption,
    ToleranceOption,
    TranscriptOption,
    WorkersOption,
    assignments,
    given,
    parsed_value,
)

__all__ = ["audit"]


def audit(
    config: Annotated[
        Path | None,
        typer.Argument(help="TOML or YAML file, or papers; the embedded audit if not given."),
    ] = None,
    out: OutOption = Path("vflpriv-report"),
    seed: SeedOption = None,
    trials: Annotated[
        str | None, typer.Option(metavar="INTEGER", help="Trainings in each world, for every system.")
    ] = None,
    confidence: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Confidence of every interval and lower bound.")
    ] = None,
    device: DeviceOption = None,
    accountant: AccountantOption = None,
    data: Annotated[str | None, typer.Option(help="Data set by name.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Audit only the systems with these keys.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any field, such as system.0.engine.rounds=92.")
    ] = None,
    format_: FormatsOption = None,
    fresh: FreshOption = False,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    summary: SummaryOption = None,
    baseline: BaselineOption = None,
    tolerance: ToleranceOption = None,
    workers: WorkersOption = None,
    quiet: QuietOption = False,
    transcript: TranscriptOption = None,
    ledger: LedgerOption = None,
    trust_ledger: Annotated[
        bool,
        typer.Option("--trust-ledger", help="Exit code 0, not 3, for claims that the ledger alone speaks for."),
    ] = False,
) -> None:
    """Audit the systems of a configuration and write the report.

    Exit code 1 when a claim is violated or a premise broken, 3 when a claim is unsupported or unmeasured.
    """
    from vflpriv import api
    from vflpriv.cli.ci import Gate, report_at
    from vflpriv.report.formats import DEFAULT_FORMATS
    from vflpriv.run.selection import recorded_paths

    beside_transcript = {
        "CONFIG": config, "--seed": seed, "--trials": trials, "--confidence": confidence, "--device": device,
        "--accountant": accountant, "--data": data, "--only": only, "--set": set_, "--workers": workers,
    }  # fmt: skip
    recorded_paths(transcript, ledger, beside_transcript)
    gate = Gate(report_at, baseline=baseline, tolerance=tolerance, junit=junit, sarif=sarif, summary=summary)
    fields = {"seed": parsed_value(seed), "confidence": parsed_value(confidence), "device": device}
    fields |= {"accountant": accountant, "data.name": data}
    report = api.audit(
        config,
        transcript=transcript,
        ledger=ledger,
        out=out,
        overrides=given(fields) | assignments(set_),
        trials=parsed_value(trials),
        only=tuple(only or ()),
        formats=format_ or DEFAULT_FORMATS,
        fresh=fresh,
        trust_ledger=trust_ledger,
        quiet=quiet,
        workers=parsed_value(workers),
    )
    raise typer.Exit(gate.finish(report, out, format_ or DEFAULT_FORMATS, config=ledger or config))
