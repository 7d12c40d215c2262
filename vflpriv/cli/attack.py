"""`vflpriv attack`: run attacks on every system under every defence."""

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
    OutOption,
    QuietOption,
    SarifOption,
    SeedOption,
    SummaryOption,
    ToleranceOption,
    WorkersOption,
    assignments,
    given,
    parsed_value,
)

__all__ = ["attack"]


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
    quick: Annotated[
        bool, typer.Option("--quick", help="Without defences, at most 3 seeds and 200 rounds: a system in a minute.")
    ] = False,
    malicious: Annotated[
        bool, typer.Option("--malicious", help="Also parties that depart from the protocol: backdoors, forged answers.")
    ] = False,
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
    workers: WorkersOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run attacks on every system, with and without defences, and write the matrix of what leaks."""
    from vflpriv import api
    from vflpriv.cli.ci import Gate, attacks_at
    from vflpriv.report.formats import DEFAULT_FORMATS

    gate = Gate(attacks_at, baseline=baseline, tolerance=tolerance, junit=junit, sarif=sarif, summary=summary)
    fields = {"seed": parsed_value(seed), "attack.seeds": parsed_value(seeds), "device": device}
    fields["attack.malicious"] = malicious or None
    report = api.attack(
        config,
        out=out,
        overrides=given(fields) | assignments(set_),
        only=tuple(only or ()),
        fail_on=tuple(fail_on or ()),
        correction=correction,
        quick=quick,
        formats=format_ or DEFAULT_FORMATS,
        fresh=fresh,
        quiet=quiet,
        workers=parsed_value(workers),
    )
    raise typer.Exit(gate.finish(report, out, format_ or DEFAULT_FORMATS, config=config))
