"""Commands about reports: compare two of them, print a schema; and the options for CI that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "BaselineOption",
    "JunitOption",
    "LedgerOption",
    "SarifOption",
    "SummaryOption",
    "ToleranceOption",
    "TranscriptOption",
    "compare",
    "schema",
]

JunitOption = Annotated[Path | None, typer.Option("--junit", help="Also write JUnit XML to this file.")]
SarifOption = Annotated[Path | None, typer.Option("--sarif", help="Also write SARIF 2.1.0 to this file.")]
SummaryOption = Annotated[
    Path | None,
    typer.Option("--summary", help="Also write a Markdown summary to this file; always added to GitHub's own."),
]
BaselineOption = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        help="Earlier report.json, or attacks.json of attacks: exit code 1 if ε, success or accuracy is worse.",
    ),
]
ToleranceOption = Annotated[
    list[str] | None,
    typer.Option("--tolerance", help="NUMBER for all, or epsilon=, success= or accuracy=NUMBER; repeat for more."),
]
TranscriptOption = Annotated[
    Path | None,
    typer.Option("--transcript", help="A recorded training, with --ledger, in place of a configuration."),
]
LedgerOption = Annotated[
    Path | None,
    typer.Option("--ledger", help="TOML or YAML file: what a recorded training lets out and claims."),
]


def compare(
    old: Annotated[Path, typer.Argument(help="A report.json or attacks.json, or the folder it is in.")],
    new: Annotated[Path, typer.Argument(help="Another one.")],
    tolerance: ToleranceOption = None,
    format_: Annotated[str, typer.Option("--format", help="text, md or json.")] = "text",
) -> None:
    """Print what differs between two reports. Exit code 1 when something is worse beyond the tolerance."""
    from vflpriv.command_compare import run_compare

    raise typer.Exit(run_compare(old, new, tolerance=tolerance or [], format_=format_))


def schema(
    name: Annotated[str, typer.Argument(help="config, report, attacks or comparison.")] = "config",
) -> None:
    """Print the JSON Schema of a configuration or of a report."""
    from vflpriv.command_schema import print_schema

    print_schema(name)
