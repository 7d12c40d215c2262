"""`vflpriv verify`: check a report against its own figures and its inputs, and write what can be signed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflpriv.errors import InputError

if TYPE_CHECKING:
    from vflpriv.report.audit import Report

__all__ = ["verify"]

_FORMATS = ("text", "intoto", "predicate")


def verify(
    path: Annotated[Path, typer.Argument(metavar="REPORT", help="A report.json, or the folder it is in.")] = Path(
        "vflpriv-report"
    ),
    transcript: Annotated[Path | None, typer.Option(help="The recorded training that was audited.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="Its ledger file.")] = None,
    config: Annotated[Path | None, typer.Option(help="The configuration that was audited.")] = None,
    model: Annotated[
        list[Path] | None, typer.Option(help="A file that the statement is about, such as the model; repeat for more.")
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", help="text, intoto for a statement that can be signed, or its predicate alone.")
    ] = ("text"),
    out: Annotated[Path | None, typer.Option(help="File for the statement; printed if not given.")] = None,
) -> None:
    """Decide again from the figures of a report, and compare hashes, claims and budgets with its inputs.

    Exit code 0 when all holds, 1 when something was changed (a line each), 2 when the report cannot be verified.
    """
    from rich.console import Console

    from vflpriv.cli.ci import report_file
    from vflpriv.common.files import write_atomically
    from vflpriv.render.console import print_line
    from vflpriv.report.audit import read_report
    from vflpriv.run.verify import verify as verified

    if format_ not in _FORMATS:
        raise InputError("--format", format_, f"one of {', '.join(_FORMATS)}")
    if (model or out is not None) and format_ == "text":
        raise InputError("--model" if model else "--out", str(model[0] if model else out), "--format intoto beside it")
    file = report_file(path)
    report = read_report(file)
    if any(system.evidence is None for system in report.systems):
        raise InputError("report: evidence", None, "the figures that verdicts rest on: older reports lack them")
    content = file.read_bytes()
    result = verified(report, content, transcript=transcript, ledger=ledger, config=config)
    console = Console(stderr=format_ != "text")
    for line in result.problems:
        print_line(console, f"does not hold: {line}")
    if result.problems:
        raise typer.Exit(result.exit_code)
    text = "" if format_ == "text" else _statement(report, file, transcript, model or ())
    for line in result.checked:
        print_line(console, f"holds: {line}")
    for line in result.unchecked:
        print_line(console, f"not checked: {line}")
    if text:
        made = text if format_ == "intoto" else json.dumps(json.loads(text)["predicate"], indent=2) + "\n"
        if out is None:
            print(made, end="")  # noqa: T201
        else:
            write_atomically(out, made)


def _statement(report: Report, file: Path, transcript: Path | None, models: Sequence[Path]) -> str:
    from vflpriv.report.statement import statement

    # The head of a transcript has the hashes of all that is in it.
    heads = () if transcript is None else (_protected_head(transcript),)
    subjects = {_name(path): _digest(path) for path in (*models, *heads)}
    return statement(report, subjects or {file.name: _digest(file)}, sha256=_digest(file))


def _protected_head(transcript: Path) -> Path:
    from vflpriv.recording.transcripts import read_transcript

    recording = read_transcript(transcript)
    if not recording.protected:
        version = recording.head.schema_version
        raise InputError("--transcript", version, "a transcript with hashes (version 3) for a statement to be about")
    return transcript / "transcript.json"


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}" if path.name == "transcript.json" else path.name


def _digest(path: Path) -> str:
    from vflpriv.common.files import regular

    try:
        return sha256(regular(path).read_bytes()).hexdigest()
    except OSError as error:
        raise InputError("--model", str(path), f"a file that can be read ({error.strerror})") from error
