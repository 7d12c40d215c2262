"""The commands about reports: render one again, compare two, print a schema, replay a witness."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflpriv.cli.options import (
    BaselineOption,
    FormatsOption,
    JunitOption,
    SarifOption,
    SummaryOption,
    ToleranceOption,
    formats,
)

__all__ = ["compare", "replay", "report", "schema"]


def report(
    path: Annotated[Path, typer.Argument(help="A report.json or attacks.json, or the folder it is in.")] = Path(
        "vflpriv-report"
    ),
    format_: FormatsOption = None,
    config: Annotated[Path | None, typer.Option(help="The audited file, for the lines SARIF points to.")] = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    summary: SummaryOption = None,
    baseline: BaselineOption = None,
    tolerance: ToleranceOption = None,
) -> None:
    """Render an existing report.json again, and print it."""
    from vflpriv.cli.ci import CiOptions
    from vflpriv.cli.commands.audit import rerender

    ci = CiOptions(junit=junit, sarif=sarif, summary=summary, baseline=baseline, tolerance=tuple(tolerance or ()))
    raise typer.Exit(rerender(path, formats=formats(format_), config=config, ci=ci))


def compare(
    old: Annotated[Path, typer.Argument(help="A report.json or attacks.json, or the folder it is in.")],
    new: Annotated[Path, typer.Argument(help="Another one.")],
    tolerance: ToleranceOption = None,
    format_: Annotated[str, typer.Option("--format", help="text, md or json.")] = "text",
) -> None:
    """Print what differs between two reports. Exit code 1 when something is worse beyond the tolerance."""
    from vflpriv.cli.commands.compare import run_compare

    raise typer.Exit(run_compare(old, new, tolerance=tolerance or [], format_=format_))


def schema(
    name: Annotated[str, typer.Argument(help="config, report, attacks or comparison.")] = "config",
) -> None:
    """Print the JSON Schema of a configuration or of a report."""
    from vflpriv.cli.commands.schema import print_schema

    print_schema(name)


def replay(
    witness: Annotated[Path, typer.Argument(help="A .json in the witnesses folder of a report.")],
) -> None:
    """Compute a witness of the sensitivity search again. Exit code 1 when it breaks the declared bound."""
    from vflpriv.cli.commands.replay import replay as run

    raise typer.Exit(run(witness))
