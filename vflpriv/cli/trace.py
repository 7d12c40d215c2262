"""`vflpriv trace`: follow a script of your own, operation by operation, without a ledger and without canaries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflpriv.cli.options import FormatOption, QuietOption, is_json
from vflpriv.errors import InputError

__all__ = ["trace"]


def trace(
    script: Annotated[Path, typer.Argument(help="Your script, with vflpriv.watch, vflpriv.record or vflpriv.trace.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script, after --.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that are followed, from the first on.")] = 20,
    unit: Annotated[
        list[str] | None, typer.Option(help="label or features; those of --against, else label. Repeat for more.")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ at which ε is read.")] = 1e-5,
    against: Annotated[
        Path | None, typer.Option(help="Your ledger: its claims stand beside what is accounted, differences are named.")
    ] = None,
    ledger: Annotated[Path | None, typer.Option(help="Also write the derived ledger to this file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    format_: FormatOption = "text",
    quiet: QuietOption = False,
) -> None:
    """Run a script, and follow what is private and what is random through every operation to every message.

    It says what noise hides what, writes the ledger, and gives the ε that the code has. Exit code 1 when something
    private leaves without noise or a pair of worlds costs more than is claimed, 3 when something is not explained, or
    a claim not accounted for.
    """
    from rich.console import Console

    from vflpriv import api
    from vflpriv.common.files import write_atomically
    from vflpriv.render.console import print_line
    from vflpriv.render.terminal import print_result

    as_json = is_json(format_)
    if ledger is not None and ledger.exists() and not force:
        raise InputError("--ledger", str(ledger), "a file that is not there, or --force to replace it")
    report = api.trace(
        script,
        arguments=tuple(arguments or ()),
        rounds=rounds,
        units=tuple(unit or ()),
        delta=delta,
        against=against,
        quiet=quiet,
    )
    if as_json:
        print(report.to_json())  # noqa: T201
    else:
        print_result(report, Console())
    if ledger is not None:
        write_atomically(ledger, report.ledger)
        print_line(Console(stderr=as_json), f"wrote {ledger}")
    raise typer.Exit(report.exit_code)
