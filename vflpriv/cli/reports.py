"""The commands about results: render one again, compare two, print a schema, recompute a witness."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflpriv.cli.options import (
    BaselineOption,
    DateOption,
    FormatsOption,
    JunitOption,
    SarifOption,
    SummaryOption,
    ToleranceOption,
)
from vflpriv.errors import InputError

__all__ = ["compare", "replay", "report", "schema"]

_COMPARE_FORMATS = ("text", "md", "json")


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
    date: DateOption = "",
) -> None:
    """Render an existing report.json again, and print it."""
    from vflpriv.cli.ci import Gate, any_report_at, attacks_at, report_at
    from vflpriv.report.audit import Report
    from vflpriv.report.formats import DEFAULT_FORMATS, Context, checked_formats, save_result
    from vflpriv.run.selection import checked_date

    result = any_report_at(path)
    if date:
        if not isinstance(result, Report):
            raise InputError("--date", date, "a report of an audit: others bear none")
        result = result.model_copy(update={"date": checked_date(date)})
    # The JSON is what is rendered, and stays as it is.
    formats = [name for name in checked_formats(format_ or DEFAULT_FORMATS, result.stem) if name != "json"]
    read = report_at if isinstance(result, Report) else attacks_at
    gate = Gate(read, baseline=baseline, tolerance=tolerance, junit=junit, sarif=sarif, summary=summary)
    if config is not None and not config.is_file():
        raise InputError("--config", str(config), "a readable file")
    folder = path if path.is_dir() else path.parent
    save_result(result, folder, formats, Context(config=config))
    raise typer.Exit(gate.finish(result, folder, formats, config=config))


def compare(
    old: Annotated[Path, typer.Argument(help="A report.json or attacks.json, or the folder it is in.")],
    new: Annotated[Path, typer.Argument(help="The one to compare with it.")],
    tolerance: ToleranceOption = None,
    format_: Annotated[str, typer.Option("--format", help="text, md or json.")] = "text",
) -> None:
    """Print what differs between two reports. Exit code 1 when something is worse beyond the tolerance."""
    from rich.console import Console

    from vflpriv.cli.ci import any_report_at
    from vflpriv.render.document import describe
    from vflpriv.render.markdown import to_markdown
    from vflpriv.render.terminal import print_result
    from vflpriv.report.compare import Tolerance, compare_any

    if format_ not in _COMPARE_FORMATS:
        raise InputError("--format", format_, f"one of {', '.join(_COMPARE_FORMATS)}")
    comparison = compare_any(any_report_at(old), any_report_at(new), Tolerance.parse(tolerance or []))
    if format_ == "text":
        print_result(comparison, Console())
    else:
        print(comparison.to_json() if format_ == "json" else to_markdown(describe(comparison)), end="")  # noqa: T201
    raise typer.Exit(comparison.exit_code)


def schema(
    name: Annotated[str, typer.Argument(help="config, ledger, report, attacks or comparison.")] = "config",
) -> None:
    """Print the JSON Schema of a configuration, a ledger or a report."""
    from vflpriv.cli.schemas import schema_text

    print(schema_text(name))  # noqa: T201


def replay(
    witness: Annotated[Path, typer.Argument(help="A .json in the witnesses folder of a report.")],
) -> None:
    """Compute a witness of the sensitivity search again. Exit code 1 when it breaks the declared bound."""
    from rich.console import Console

    from vflpriv.audits.sensitivity import replay_witness
    from vflpriv.render.console import print_line

    finding = replay_witness(witness)
    side = "within" if finding.holds else "beyond"
    bound = f"observed {finding.observed:.6g}, {side} the declared {finding.declared:.6g}"
    print_line(Console(), f"{finding.mechanism}, {finding.unit}: {bound}")
    raise typer.Exit(0 if finding.holds else 1)
