"""The program: its commands, and what happens to errors and signals. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Annotated, NoReturn

import typer

from vflpriv import __version__
from vflpriv.cli.attack import attack
from vflpriv.cli.audit import audit
from vflpriv.cli.lists import LISTED, data_app, lister
from vflpriv.cli.options import Command
from vflpriv.cli.reports import compare, replay, report, schema
from vflpriv.cli.systems import account, calibrate, train, validate
from vflpriv.errors import VflprivError

__all__ = ["app", "main"]

app = typer.Typer(
    name="vflpriv",
    help="Does a vertical-federated-learning system protect what it says it protects, from whom, and by how much?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data")

_INTERRUPTED, _TERMINATED, _UNREAD = 130, 143, 141
"""Exit codes after Ctrl-C, after SIGTERM, and when nobody reads the output any more."""
_STOPPED = "stopped; finished trials are kept, run the same command to continue"


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


for _command in (audit, attack, report, compare, schema, train, replay, validate, account, calibrate):
    app.command(cls=Command)(_command)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def papers(context: typer.Context) -> None:
    """Audit published systems: the same as `audit papers`, with the options of audit."""
    code = app(["audit", "papers", *context.args], prog_name="vflpriv", standalone_mode=False)
    raise typer.Exit(code or 0)


for _kind in LISTED:
    app.command(name=f"{_kind}s", help=f"List the registered {_kind}s.")(lister(_kind))


class _Terminated(BaseException):
    """SIGTERM as an exception, so that temporary files are cleaned up."""


def _terminate(number: int, frame: object) -> NoReturn:
    raise _Terminated


def main() -> None:
    """Run the command line: bad input is one line and exit code 2; only a bug shows its traceback, with exit code 4."""
    # Only the main thread may handle signals.
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
        # The reader of the output is gone; discard what Python has still buffered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_UNREAD)
    except SystemExit as stopped:
        # rich turns a broken pipe into exit code 1, which would mean a violated claim.
        raise SystemExit(_UNREAD if isinstance(stopped.__context__, BrokenPipeError) else stopped.code) from None
    except Exception as error:
        # Errors of the argument parser have a message for users; anything else is a bug and shows its traceback.
        format_message = getattr(error, "format_message", None)
        if format_message is not None:
            _stop(" ".join(format_message().split()), 2)  # empty after a help page
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
