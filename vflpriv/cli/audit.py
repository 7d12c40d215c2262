"""The commands that audit and attack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflpriv.cli.options import (
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
    assignments,
    formats,
    given,
    plain,
)

__all__ = ["attack", "audit"]


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
    confidence: Annotated[str | None, typer.Option(metavar="NUMBER", help="Of every interval and lower bound.")] = None,
    device: DeviceOption = None,
    accountant: Annotated[str | None, typer.Option(help="auto, gdp, rdp or prv.")] = None,
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
    quiet: QuietOption = False,
    transcript: TranscriptOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Audit the systems of a configuration and write the report. Exit code 1 when a claim is violated."""
    from vflpriv.cli.ci import CiOptions
    from vflpriv.cli.commands.audit import run_audit, run_recorded
    from vflpriv.run.selection import recorded_paths

    ci = CiOptions(junit=junit, sarif=sarif, summary=summary, baseline=baseline, tolerance=tuple(tolerance or ()))
    beside = {
        "CONFIG": config, "--seed": seed, "--trials": trials, "--confidence": confidence, "--device": device,
        "--accountant": accountant, "--data": data, "--only": only, "--set": set_,
    }  # fmt: skip
    recorded = recorded_paths(transcript, ledger, beside)
    if recorded is not None:
        raise typer.Exit(run_recorded(*recorded, out=out, formats=formats(format_), ci=ci))
    overrides = given(
        {
            "seed": plain(seed),
            "confidence": plain(confidence),
            "device": device,
            "accountant": accountant,
            "data.name": data,
        }
    ) | assignments(set_)
    code = run_audit(
        config,
        out=out,
        overrides=overrides,
        trials=plain(trials),
        only=tuple(only or ()),
        formats=formats(format_),
        fresh=fresh,
        quiet=quiet,
        ci=ci,
    )
    raise typer.Exit(code)


def attack(
    config: Annotated[Path | None, typer.Argument(help="TOML or YAML file; the embedded matrix if not given.")] = None,
    out: OutOption = Path("vflpriv-report"),
    seed: SeedOption = None,
    seeds: Annotated[str | None, typer.Option(metavar="INTEGER", help="Trainings of each system.")] = None,
    device: DeviceOption = None,
    only: Annotated[list[str] | None, typer.Option(help="Attack only the systems with these keys.")] = None,
    fail_on: Annotated[
        list[str] | None, typer.Option("--fail-on", help="Exit code 1 above a limit, such as 'leakage>0.05'.")
    ] = None,
    correction: Annotated[
        str, typer.Option(help="For the number of tests of --fail-on: holm over all cells, or none.")
    ] = "holm",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any field, such as attack.labels_per_class=1.")
    ] = None,
    format_: FormatsOption = None,
    fresh: FreshOption = False,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    summary: SummaryOption = None,
    baseline: BaselineOption = None,
    tolerance: ToleranceOption = None,
    quiet: QuietOption = False,
) -> None:
    """Try attacks on every system, with and without defences, and write the matrix of what leaks."""
    from vflpriv.cli.ci import CiOptions
    from vflpriv.cli.commands.attack import run_attacks

    ci = CiOptions(junit=junit, sarif=sarif, summary=summary, baseline=baseline, tolerance=tuple(tolerance or ()))
    overrides = given({"seed": plain(seed), "attack.seeds": plain(seeds), "device": device}) | assignments(set_)
    code = run_attacks(
        config,
        out=out,
        overrides=overrides,
        only=tuple(only or ()),
        fail_on=tuple(fail_on or ()),
        correction=correction,
        formats=formats(format_),
        fresh=fresh,
        quiet=quiet,
        ci=ci,
    )
    raise typer.Exit(code)
