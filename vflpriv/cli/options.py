"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from vflpriv.errors import InputError

__all__ = [
    "BaselineOption",
    "DeviceOption",
    "FormatOption",
    "FormatsOption",
    "FreshOption",
    "JunitOption",
    "LedgerOption",
    "OutOption",
    "QuietOption",
    "SarifOption",
    "SeedOption",
    "SummaryOption",
    "ToleranceOption",
    "TranscriptOption",
    "assignments",
    "formats",
    "given",
    "plain",
]

FORMATS = ("json", "html", "md")

OutOption = Annotated[Path, typer.Option(help="Folder for the report.")]
SeedOption = Annotated[str | None, typer.Option(metavar="INTEGER", help="Seed of all random streams.")]
DeviceOption = Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")]
FormatsOption = Annotated[list[str] | None, typer.Option("--format", help="html, json, md; repeat for more.")]
FormatOption = Annotated[str, typer.Option("--format", help="text or json.")]
FreshOption = Annotated[
    bool, typer.Option("--fresh/--resume", help="Forget finished trials of an earlier run here, or go on with them.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
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


def assignments(texts: Sequence[str] | None) -> dict[str, Any]:
    """What `--set FIELD=VALUE` asks for, by field."""
    found = {}
    for text in texts or ():
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise InputError("--set", text, "FIELD=VALUE")
        found[key.strip()] = plain(value)
    return found


def plain(text: str | None) -> Any:
    """A value as TOML reads it, or the text itself; the configuration says whether it fits."""
    import tomllib

    try:
        return None if text is None else tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return None if text is None else text.strip()


def given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were given."""
    return {key: value for key, value in flags.items() if value is not None}


def formats(chosen: Sequence[str] | None) -> tuple[str, ...]:
    """Formats of a report by their names, each once; all of them if none is named."""
    for name in chosen or ():
        if name not in FORMATS:
            raise InputError("--format", name, f"one of {', '.join(FORMATS)}")
    return tuple(dict.fromkeys(chosen or FORMATS))
