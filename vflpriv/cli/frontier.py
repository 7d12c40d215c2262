"""`vflpriv frontier`: what to use at an accounted ε, on a data set, for a unit and a view."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflpriv.cli.options import (
    DataOption,
    DeviceOption,
    FormatsOption,
    FreshOption,
    QuietOption,
    SeedOption,
    WorkersOption,
    assignments,
    given,
    parsed_value,
)

__all__ = ["frontier"]


def frontier(
    config: Annotated[
        Path | None, typer.Argument(help="TOML or YAML file with candidates; the embedded ones if not given.")
    ] = None,
    data: DataOption = None,
    folder: Annotated[str | None, typer.Option(help="Where the files of the data set are.")] = None,
    unit: Annotated[str | None, typer.Option(help="What is protected: record, label, features, …")] = None,
    view: Annotated[str | None, typer.Option(help="From whom: devices(all), server, …")] = None,
    delta: Annotated[str | None, typer.Option(metavar="NUMBER", help="δ at which ε is read.")] = None,
    epsilon: Annotated[list[str] | None, typer.Option(metavar="NUMBER", help="A budget; repeat for more.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="INTEGER", help="Trainings of the best at each ε.")] = None,
    seed: SeedOption = None,
    trials: Annotated[
        str | None, typer.Option(metavar="INTEGER", help="Trainings in each world that audit each point; 0 for none.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Try only the candidates with these keys.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any field, such as data.devices=7.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report and finished trainings.")] = Path("vflpriv-frontier"),
    device: DeviceOption = None,
    format_: FormatsOption = None,
    fresh: FreshOption = False,
    workers: WorkersOption = None,
    quiet: QuietOption = False,
) -> None:
    """Find the best accuracy at each accounted ε, audit it, and say what to use."""
    from rich.console import Console

    from vflpriv import api
    from vflpriv.cli.ci import print_saved
    from vflpriv.report.formats import DEFAULT_FORMATS

    fields = {
        "data.name": data,
        "data.folder": folder,
        "unit": unit,
        "view": view,
        "delta": parsed_value(delta),
        "epsilons": [parsed_value(text) for text in epsilon] if epsilon else None,
        "seeds": parsed_value(seeds),
        "seed": parsed_value(seed),
        "trials": parsed_value(trials),
        "device": device,
    }
    formats = tuple(format_ or DEFAULT_FORMATS)
    report = api.frontier(
        config,
        out=out,
        overrides=given(fields) | assignments(set_),
        only=tuple(only or ()),
        formats=formats,
        fresh=fresh,
        quiet=quiet,
        workers=parsed_value(workers),
    )
    print_saved(report, out, formats, Console())
