"""The commands about systems that are not audited: check, train, account for and calibrate them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vflpriv.cli.options import (
    DeviceOption,
    FormatOption,
    LedgerOption,
    QuietOption,
    SeedOption,
    TranscriptOption,
    assignments,
    given,
    plain,
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
    from vflpriv.cli.commands.audit import check

    paths: list[Path | None] = [*config] if config else [None]
    for path in paths:
        try:
            check(path)
        except InputError as error:
            if len(paths) == 1:
                raise
            raise InputError(f"{path}: {error.field}", error.value, error.expected) from error


def train(
    config: Annotated[Path | None, typer.Argument(help="TOML or YAML file; the embedded audit if not given.")] = None,
    save: Annotated[Path | None, typer.Option(help="Folder for the models (safetensors) and train.json.")] = None,
    seed: SeedOption = None,
    device: DeviceOption = None,
    only: Annotated[list[str] | None, typer.Option(help="Train only the systems with these keys.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any field of the configuration.")] = None,
    format_: FormatOption = "text",
    quiet: QuietOption = False,
) -> None:
    """Train every system of a configuration once: accuracy, traffic, staleness, and the models if asked for."""
    from vflpriv.cli.commands.train import run_train

    overrides = given({"seed": plain(seed), "device": device}) | assignments(set_)
    run_train(config, overrides=overrides, only=tuple(only or ()), save=save, format_=format_, quiet=quiet)


def account(
    config: Annotated[Path | None, typer.Argument(help="TOML or YAML file; the embedded audit if not given.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of the table; each system's own if not given.")] = None,
    accountant: Annotated[str | None, typer.Option(help="auto, gdp, rdp or prv.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only the systems with these keys.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any field of the configuration.")] = None,
    curves: Annotated[Path | None, typer.Option(help="Folder for curves: CSV, JSON and PNG.")] = None,
    view: Annotated[str | None, typer.Option(help="Curves of this view, not of the claims.")] = None,
    unit: Annotated[str | None, typer.Option(help="Curves of this unit, not of the claims.")] = None,
    transcript: TranscriptOption = None,
    ledger: LedgerOption = None,
    format_: FormatOption = "text",
) -> None:
    """Print the budgets of a configuration without training: all views, all units, claimed beside accounted."""
    from vflpriv.cli.commands.account import run_account
    from vflpriv.run.selection import recorded_paths

    recorded = recorded_paths(transcript, ledger, {"CONFIG": config, "--only": only, "--set": set_})
    overrides = {} if accountant is None else {"accountant": accountant}
    run_account(
        config,
        overrides=overrides | assignments(set_),
        only=tuple(only or ()),
        delta=delta,
        format_=format_,
        curves=curves,
        view=view,
        unit=unit,
        recorded=recorded,
    )


def calibrate(
    epsilon: Annotated[float, typer.Option(help="The ε to keep.")],
    delta: Annotated[float, typer.Option(help="δ at which ε is read.")],
    engine: Annotated[str, typer.Option(help="An engine that `vflpriv engines` lists.")],
    records: Annotated[int, typer.Option(help="Training records, D.")],
    devices: Annotated[int, typer.Option(help="Devices, M.")],
    rounds: Annotated[int, typer.Option(help="Rounds, T.")],
    batch_size: Annotated[int, typer.Option(help="Records in a round, B.")],
    view: Annotated[str, typer.Option(help="Who looks: device, devices(all), server, outsider, …")] = "device",
    unit: Annotated[str, typer.Option(help="What is protected: label, record, features, …")] = "record",
    reading: Annotated[str, typer.Option(help="rigorous, or paper: unnoised state taken as harmless.")] = "rigorous",
    accountant: Annotated[str, typer.Option(help="auto, gdp, rdp or prv.")] = "auto",
    field: Annotated[str, typer.Option(help="The setting to find: noise_std, label_noise, …")] = "noise_std",
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any setting of the engine.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the schedule.")] = 0,
    format_: FormatOption = "text",
) -> None:
    """Print the least noise that keeps (ε, δ) of a unit under a view, to 0.1 % of ε and on the safe side."""
    from vflpriv.cli.commands.calibrate import Target, run_calibrate

    settings = {"rounds": rounds, "batch_size": batch_size, **assignments(set_)}
    run_calibrate(
        Target(epsilon=epsilon, delta=delta, view=view, unit=unit, reading=reading),
        engine=engine,
        settings=settings,
        records=records,
        devices=devices,
        seed=seed,
        field=field,
        accountant=accountant,
        format_=format_,
    )
