"""The commands about systems that audit nothing: check, train, account for and calibrate them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from vflpriv.cli.options import (
    ACCOUNTANT_HELP,
    AccountantOption,
    DeviceOption,
    FormatOption,
    LedgerOption,
    QuietOption,
    SeedOption,
    TranscriptOption,
    assignments,
    given,
    is_json,
    parsed_value,
)
from vflpriv.errors import InputError

__all__ = ["account", "calibrate", "train", "validate"]


def validate(
    config: Annotated[
        list[Path] | None,
        typer.Argument(help="Configurations or ledgers, TOML or YAML; the embedded audit if not given."),
    ] = None,
) -> None:
    """Check configurations without training anything."""
    from rich.console import Console

    from vflpriv.render.console import print_line

    paths: list[Path | None] = [*config] if config else [None]
    for path in paths:
        try:
            for key in _checked_keys(path):
                print_line(Console(), f"{key}: ok")
        except InputError as error:
            if len(paths) == 1:
                raise
            raise InputError(f"{path}: {error.field}", error.value, error.expected) from error


def _checked_keys(path: Path | None) -> Iterator[str]:
    """The key of each system of a configuration once it was declared; that of a ledger file once it was checked."""
    from vflpriv.common.registry import find
    from vflpriv.config.loading import load_config
    from vflpriv.recording.ledger_file import is_ledger, load_ledger
    from vflpriv.run.systems import check_defences, declare_system, read_data

    if path is not None and is_ledger(path):
        ledger = load_ledger(path)
        find("accountant", ledger.accountant)
        for name in ledger.attack_names:
            find("attack", name)
        yield ledger.key
        return
    config = load_config(path)
    check_defences(config)
    data = read_data(config)
    for place, section in enumerate(config.system):
        declare_system(config, place, data)
        yield section.key


def train(
    config: Annotated[Path | None, typer.Argument(help="TOML or YAML file; the embedded audit if not given.")] = None,
    save: Annotated[Path | None, typer.Option(help="Folder for the models (safetensors) and train.json.")] = None,
    seed: SeedOption = None,
    device: DeviceOption = None,
    only: Annotated[list[str] | None, typer.Option(help="Train only the systems with these keys.")] = None,
    reproducible: Annotated[
        bool,
        typer.Option(
            "--reproducible",
            help="Draw noise, noised labels and secret batches from the seed: anyone with the seed can subtract the "
            "noise. Otherwise they come from the operating system's entropy.",
        ),
    ] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any field of the configuration.")] = None,
    format_: FormatOption = "text",
    quiet: QuietOption = False,
) -> None:
    """Train every system of a configuration once; print accuracy, traffic and staleness."""
    from rich.console import Console

    from vflpriv import api
    from vflpriv.render.console import print_line
    from vflpriv.render.terminal import print_result

    as_json = is_json(format_)
    overrides = given({"seed": parsed_value(seed), "device": device}) | assignments(set_)
    report = api.train(
        config, overrides=overrides, only=tuple(only or ()), save=save, quiet=quiet, reproducible=reproducible
    )
    if as_json:
        print(report.to_json(), end="")  # noqa: T201
        return
    console = Console()
    print_result(report, console)
    if save is not None:
        console.print()
        for name in (*(row.models for row in report.systems if row.models), "train.json"):
            print_line(console, f"wrote {save / name}")


def account(
    config: Annotated[Path | None, typer.Argument(help="TOML or YAML file; the embedded audit if not given.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of the table; each system's own if not given.")] = None,
    accountant: AccountantOption = None,
    only: Annotated[list[str] | None, typer.Option(help="Only the systems with these keys.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any field of the configuration.")] = None,
    cross_check: Annotated[
        bool,
        typer.Option(
            "--cross-check", help="Also ask opacus, prv-accountant and dp-accounting about the budgets of the claims."
        ),
    ] = False,
    curves: Annotated[Path | None, typer.Option(help="Folder for curves: CSV, JSON and SVG.")] = None,
    view: Annotated[str | None, typer.Option(help="Curves of this view, not of the claims.")] = None,
    unit: Annotated[str | None, typer.Option(help="Curves of this unit, not of the claims.")] = None,
    transcript: TranscriptOption = None,
    ledger: LedgerOption = None,
    format_: FormatOption = "text",
) -> None:
    """Print the budgets of a configuration without training: all views, all units, claimed beside accounted."""
    from rich.console import Console

    from vflpriv import api
    from vflpriv.core.views import Adversary
    from vflpriv.render.console import print_line
    from vflpriv.render.terminal import print_result
    from vflpriv.run.calibrate import parse_unit

    as_json = is_json(format_)
    chosen = None
    if view is not None or unit is not None:
        chosen = Adversary.parse(view or "device"), parse_unit(unit or "record")
        if curves is None:
            raise InputError(
                "--curves", "nothing", "a folder: --view and --unit choose the budget whose curves are written"
            )
    accounting = api.accounting(
        config,
        transcript=transcript,
        ledger=ledger,
        accountant=accountant,
        overrides=assignments(set_),
        only=tuple(only or ()),
    )
    accounts = accounting.accounts(delta, cross_check=cross_check)
    if as_json:
        print(accounts.to_json())  # noqa: T201
    else:
        print_result(accounts, Console())
    if curves is not None:
        for path in accounting.write_curves(curves, chosen, delta):
            print_line(Console(stderr=True), f"wrote {path}")


def calibrate(
    epsilon: Annotated[float, typer.Option(help="The ε to keep.")],
    delta: Annotated[float, typer.Option(help="δ at which ε is read.")],
    engine: Annotated[str, typer.Option(help="An engine that `vflpriv engines` lists.")],
    records: Annotated[int, typer.Option(help="Training records, D.")],
    devices: Annotated[int, typer.Option(help="Devices, M.")],
    rounds: Annotated[int, typer.Option(help="Rounds, T.")],
    batch_size: Annotated[int, typer.Option(help="Records in a round, B.")],
    view: Annotated[str, typer.Option(help="The adversary: device, devices(all), server, outsider, …")] = "device",
    unit: Annotated[str, typer.Option(help="What is protected: label, record, features, …")] = "record",
    reading: Annotated[
        str, typer.Option(help="rigorous, or paper: state without noise is taken not to depend on the data.")
    ] = "rigorous",
    accountant: Annotated[str, typer.Option(help=ACCOUNTANT_HELP)] = "auto",
    field: Annotated[str, typer.Option(help="The setting to find: noise_std, label_epsilon, …")] = "noise_std",
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any setting of the engine.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the schedule.")] = 0,
    format_: FormatOption = "text",
) -> None:
    """Print the least noise that keeps (ε, δ) of a unit under a view, to 0.1 % of ε and on the safe side."""
    from rich.console import Console

    from vflpriv.render.terminal import print_result
    from vflpriv.run import calibrate as calibration

    as_json = is_json(format_)
    settings = {"rounds": rounds, "batch_size": batch_size, **assignments(set_)}
    result = calibration.calibrate(
        calibration.Target(epsilon=epsilon, delta=delta, view=view, unit=unit, reading=reading),
        calibration.Setup(engine=engine, settings=settings, records=records, devices=devices, seed=seed),
        field=field,
        accountant=accountant,
    )
    if as_json:
        print(result.to_json())  # noqa: T201
    else:
        print_result(result, Console())
