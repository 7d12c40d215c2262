"""`vflpriv reproduce`: a published table, trained again, beside its printed figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflpriv.cli.options import (
    DeviceOption,
    FormatsOption,
    FreshOption,
    QuietOption,
    SeedOption,
    WorkersOption,
    parsed_value,
)

__all__ = ["reproduce"]


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A table or figure, or a file of your own; all are listed if not given.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds and records: the shape in minutes.")] = False,
    share: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Share of each row's rounds to train, above 0 and at most 1.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="INTEGER", help="Trainings of each row.")] = None,
    seed: SeedOption = None,
    only: Annotated[list[str] | None, typer.Option(help="Train only the rows with these keys.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the table, its curves, and finished trainings.")] = Path(
        "vflpriv-reproduction"
    ),
    device: DeviceOption = None,
    format_: FormatsOption = None,
    fresh: FreshOption = False,
    workers: WorkersOption = None,
    quiet: QuietOption = False,
) -> None:
    """Train the rows of a published table again, and print its figures beside ours."""
    from rich.console import Console

    from vflpriv import api
    from vflpriv.cli.ci import print_saved
    from vflpriv.experiments.reproduce.profile import load_profile, profile_names
    from vflpriv.render.console import Writer
    from vflpriv.report.formats import DEFAULT_FORMATS

    console = Console()
    if name is None:
        rows = [(known, load_profile(known).title) for known in profile_names()]
        Writer(console).table("Tables and figures that can be trained again", "name;what it is", rows)
        return
    formats = tuple(format_ or DEFAULT_FORMATS)
    report = api.reproduce(
        name,
        quick=quick,
        share=parsed_value(share),
        seeds=parsed_value(seeds),
        seed=parsed_value(seed),
        only=tuple(only or ()),
        out=out,
        device=device,
        formats=formats,
        fresh=fresh,
        quiet=quiet,
        workers=parsed_value(workers),
    )
    print_saved(report, out, formats, console)
