"""The program: its commands, and what happens to errors and signals. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Annotated, NoReturn, TextIO

import typer

from vflpriv import __version__
from vflpriv.cli.attack import attack
from vflpriv.cli.audit import audit, papers
from vflpriv.cli.frontier import frontier
from vflpriv.cli.lists import LISTED, data_app, lister
from vflpriv.cli.options import Command
from vflpriv.cli.recordings import ledger, merge
from vflpriv.cli.reports import compare, replay, report, schema
from vflpriv.cli.reproduce import reproduce
from vflpriv.cli.start import demo, init
from vflpriv.cli.systems import account, calibrate, train, validate
from vflpriv.cli.trace import trace
from vflpriv.cli.verify import verify
from vflpriv.errors import StoreWarning, VflprivError

__all__ = ["app", "main", "run"]

app = typer.Typer(
    name="vflpriv",
    help="Does a vertical-federated-learning system protect what it says it protects, from whom, and by how much?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_INTERRUPTED, _UNREAD = 130, 141
"""Exit codes after Ctrl-C, and when nobody reads the output any more."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that stop the program in an orderly way: the exit code is 128 and their number."""
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Errors of a standard output that takes no more."""
_LEAST_WIDTH = 20
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


_PANELS: dict[str, tuple[Callable[..., object], ...]] = {
    "Start here": (demo, init, trace),
    "Audit": (audit, papers, attack, verify, replay, compare, report),
    "Account": (account, calibrate),
    "Experiments": (train, reproduce, frontier),
    "Files": (validate, schema, ledger, merge),
}
_REGISTERED = "What is registered"
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(cls=Command, rich_help_panel=_panel)(_command)


def run(arguments: Sequence[str]) -> int:
    """Run one command and give its exit code; errors are raised."""
    return _program()(list(arguments), prog_name="vflpriv", standalone_mode=False) or 0


@cache
def _program() -> Callable[..., int | None]:
    """All commands with their options, which take a while to put together."""
    return typer.main.get_command(app)


for _kind in LISTED:
    app.command(name=f"{_kind}s", help=f"List the registered {_kind}s.", rich_help_panel=_REGISTERED)(lister(_kind))
app.add_typer(data_app, name="data", rich_help_panel=_REGISTERED)


class _SignalledError(BaseException):
    """SIGTERM or SIGHUP as an exception, so that temporary files are cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def _terminate(number: int, frame: object) -> NoReturn:
    raise _SignalledError(number)


@contextmanager
def _signals_raised() -> Iterator[None]:
    """Raise an exception on SIGTERM and SIGHUP, unless the parent process had them ignored, as `nohup` does."""
    # Only the main thread may handle signals.
    heard = _SIGNALS if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.getsignal(number) for number in heard}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, _terminate)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Show warnings as one line each, without the place in the program; those about stored results always."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        _say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", StoreWarning)
        warnings.showwarning = show
        yield


def _usable_terminal() -> None:
    """Forget a size of the terminal that is no number, or a width in which every line would be lost."""
    for name, least in (("COLUMNS", _LEAST_WIDTH), ("LINES", 1)):
        try:
            usable = int(os.environ.get(name, least)) >= least
        except ValueError:  # also of digits of which numbers are not made, such as "²"
            usable = False
        if not usable:
            del os.environ[name]


def main() -> None:
    """Run the command line: bad input is one line and exit code 2; only a bug shows its traceback, with exit code 4."""
    _usable_terminal()
    with _signals_raised(), _short_warnings():
        try:
            code = run(sys.argv[1:])
            if sys.stdout is not None:
                sys.stdout.flush()
        except VflprivError as error:
            _stop(str(error), error.exit_code)
        except (KeyboardInterrupt, typer.Abort):
            _stop(_STOPPED, _INTERRUPTED)
        except _SignalledError as signalled:
            _stop(_STOPPED, signalled.exit_code)
        except BrokenPipeError:
            _discard_output()
            sys.exit(_UNREAD)
        except SystemExit as stopped:
            # rich turns a broken pipe into exit code 1, which would mean a violated claim.
            raise SystemExit(_UNREAD if isinstance(stopped.__context__, BrokenPipeError) else stopped.code) from None
        except Exception as error:  # noqa: BLE001 (the last place where a bug can be shown)
            _failed(error)
        _stop(_STOPPED if code == _INTERRUPTED else "", code)


def _failed(error: Exception) -> NoReturn:
    """Errors of the argument parser, of standard output and of memory are one line; any other shows its traceback."""
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        _stop(" ".join(format_message().split()), 2)  # empty after a help page
    if isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE:
        _discard_output()
        _stop(f"standard output could not be written: {error.strerror}", 2)
    if isinstance(error, FileNotFoundError) and error.filename is None and not _has_folder():
        _stop("the folder that this was started in is gone: start it in another one", 2)
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error):
        _stop("not enough memory for this: smaller models, batches or data are needed", 2)
    import traceback

    traceback.print_exception(error)
    raise SystemExit(4) from error


def _has_folder() -> bool:
    try:
        return bool(os.getcwd())
    except FileNotFoundError:
        return False


def _discard_output(stream: TextIO | None = None) -> None:
    """Send what Python has still buffered for standard output, or for another stream, nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def _say(message: str) -> None:
    """One line on standard error, where there is one that can be written to."""
    try:
        typer.echo(f"vflpriv: {message}", err=True)
    except OSError:
        _discard_output(sys.stderr)


def _stop(message: str, code: int) -> NoReturn:
    if message:
        _say(message)
    sys.exit(code)
