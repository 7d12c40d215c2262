"""Options that several commands share, how their values are read, and help texts that list what is registered."""

from __future__ import annotations

import errno
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from vflpriv.errors import InputError

__all__ = [
    "AccountantOption",
    "BaselineOption",
    "Command",
    "ConfidenceOption",
    "ConfigArgument",
    "DataOption",
    "DateOption",
    "DeviceOption",
    "FormatOption",
    "FormatsOption",
    "FreshOption",
    "JunitOption",
    "LedgerOption",
    "OnlyOption",
    "OutOption",
    "QuietOption",
    "SarifOption",
    "SeedOption",
    "SetOption",
    "SummaryOption",
    "ToleranceOption",
    "TrainOption",
    "TranscriptOption",
    "TrialsOption",
    "TrustLedgerOption",
    "WorkersOption",
    "assignments",
    "given",
    "is_json",
    "parsed_value",
]

_FORMATS, _STARTERS = "{formats}", "{starters}"
ACCOUNTANT_HELP = "An accountant that `vflpriv accountants` lists."

ConfigArgument = Annotated[
    Path | None, typer.Argument(help="TOML or YAML file, or papers; the embedded audit if not given.")
]
OutOption = Annotated[Path, typer.Option(help="Folder for the report.")]
SeedOption = Annotated[str | None, typer.Option(metavar="INTEGER", help="Seed of all random streams.")]
TrialsOption = Annotated[str | None, typer.Option(metavar="INTEGER", help="Trainings in each world, for every system.")]
ConfidenceOption = Annotated[
    str | None, typer.Option(metavar="NUMBER", help="Confidence of every interval and lower bound.")
]
DataOption = Annotated[str | None, typer.Option(help="Data set by name.")]
OnlyOption = Annotated[list[str] | None, typer.Option(help="Audit only the systems with these keys.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Any field, such as system.0.engine.rounds=92.")]
_TORCH_DEVICE, _OLD_DEVICE = "--torch-device", "--device"
DeviceOption = Annotated[
    str | None, typer.Option(_TORCH_DEVICE, help="Where tensors are computed: auto, cpu, cuda or mps.")
]
AccountantOption = Annotated[str | None, typer.Option(help=ACCOUNTANT_HELP)]
FormatsOption = Annotated[list[str] | None, typer.Option("--format", help=f"{_FORMATS}; repeat for more.")]
FormatOption = Annotated[str, typer.Option("--format", help="text or json.")]
FreshOption = Annotated[
    bool,
    typer.Option("--fresh/--resume", help="Discard the finished trials of an earlier run in this folder, or use them."),
]
WorkersOption = Annotated[
    str | None,
    typer.Option(
        metavar="N|ray|ray://HOST:PORT",
        help="Trainings at a time on this machine (one per core or GPU if not given), or a Ray cluster.",
    ),
]
DateOption = Annotated[
    str,
    typer.Option(metavar="DATE", help="The date that the report bears, as YYYY-MM-DD."),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
JunitOption = Annotated[Path | None, typer.Option("--junit", help="Also write JUnit XML to this file.")]
SarifOption = Annotated[Path | None, typer.Option("--sarif", help="Also write SARIF 2.1.0 to this file.")]
SummaryOption = Annotated[
    Path | None,
    typer.Option(
        "--summary", help="Also write a Markdown summary to this file; the step summary of a GitHub job always gets it."
    ),
]
BaselineOption = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        help="Earlier report.json, or attacks.json for attacks: exit code 1 if ε, success or accuracy is worse.",
    ),
]
ToleranceOption = Annotated[
    list[str] | None,
    typer.Option("--tolerance", help="NUMBER for all, or epsilon=, success= or accuracy=NUMBER; repeat for more."),
]
TranscriptOption = Annotated[
    Path | None,
    typer.Option("--transcript", help="A recorded training, with --ledger, in place of a configuration."),
]
TrainOption = Annotated[
    str | None,
    typer.Option(
        "--train",
        metavar="FILE.py:FUNCTION",
        help="Your train(wire, world, seed), or MODULE:FUNCTION, with --ledger, in place of a configuration.",
    ),
]
LedgerOption = Annotated[
    Path | None,
    typer.Option("--ledger", help="TOML or YAML file: the releases and claims of a recorded training."),
]
TrustLedgerOption = Annotated[
    bool,
    typer.Option("--trust-ledger", help="Exit code 0, not 3, for claims that the ledger alone speaks for."),
]


class Command(TyperCommand):
    """A command whose help lists the registered output formats, plug-ins included, and the kinds of starter files.

    They are looked up when the command's options are needed, not when the program starts.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, with these names in place. (typer brings its own click, hence no types.)"""
        for parameter in self.params:
            # The help as it was written: what is registered may differ the next time.
            text = getattr(parameter, "written_help", None) or getattr(parameter, "help", None) or ""
            for place in (_FORMATS, _STARTERS):
                if place in text:
                    parameter.written_help = text  # type: ignore[attr-defined]
                    parameter.help = text.replace(place, ", ".join(_listed(place)))  # type: ignore[attr-defined]
        return list(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; `--device` is what `--torch-device` was called once, and no help mentions it."""
        if any(_TORCH_DEVICE in parameter.opts for parameter in self.params):
            args = [_TORCH_DEVICE + a.removeprefix(_OLD_DEVICE) if _is_old_device(a) else a for a in args]
        unread = super().parse_args(ctx, args)
        for parameter in self.params:
            value = ctx.params.get(str(parameter.name))
            for path in value if isinstance(value, list | tuple) else (value,):
                if isinstance(path, Path):
                    _check_path(parameter.opts[0], path)
        return list(unread)


def _check_path(option: str, path: Path) -> None:
    """Refuse a path that no file can have, at which any question about it would end."""
    try:
        path.stat()
    except ValueError as error:
        raise InputError(option, str(path), f"a path ({error})") from error
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise InputError(option, str(path), f"a path that a file can have ({error.strerror})") from error


def _is_old_device(argument: str) -> bool:
    return argument == _OLD_DEVICE or argument.startswith(f"{_OLD_DEVICE}=")


def _listed(place: str) -> Iterable[str]:
    """The names that stand for a place in a help text."""
    if place == _FORMATS:
        from vflpriv.common.registry import names

        return names("format")
    from vflpriv.config.starters import STARTERS

    return STARTERS


def assignments(texts: Sequence[str] | None) -> dict[str, Any]:
    """The fields that `--set FIELD=VALUE` sets, with their values."""
    values = {}
    for text in texts or ():
        field, sign, value = text.partition("=")
        if not sign or not field.strip():
            raise InputError("--set", text, "FIELD=VALUE")
        values[field.strip()] = parsed_value(value)
    return values


def parsed_value(text: str | None) -> Any:
    """A value as TOML reads it, or the text itself; the configuration checks whether it fits."""
    if text is None:
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # no TOML, or a number of more digits than Python reads
        return text.strip()


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def is_json(name: str) -> bool:
    """Whether `--format` asks for JSON rather than text."""
    if name not in ("text", "json"):
        raise InputError("--format", name, "text or json")
    return name == "json"
