"""The choice of systems and inputs of a run, and the command that repeats it."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vflpriv.common.toml import toml_value
from vflpriv.config.models import Config
from vflpriv.errors import InputError

__all__ = [
    "GIVEN",
    "as_options",
    "audit_command",
    "checked_date",
    "chosen_keys",
    "named_source",
    "places",
    "recorded_paths",
    "repeated",
    "selected",
    "share_of",
    "training_ledger",
    "whole_number",
]

GIVEN = "config.toml"
"""The file to which a configuration given in Python is saved, and its name in commands."""


def places(config: Config, only: Sequence[str]) -> list[int]:
    """The places of the systems with these keys; of all systems if no key is given."""
    keys = [section.key for section in config.system]
    chosen = chosen_keys(keys, only)
    return [place for place, key in enumerate(keys) if key in chosen]


def chosen_keys(keys: Sequence[str], only: Sequence[str]) -> list[str]:
    """The keys that `--only` names, in the order of all keys; all if it names none."""
    for key in only:
        if key not in keys:
            raise InputError("--only", key, f"one of {', '.join(keys)}")
    return [key for key in keys if not only or key in only]


def selected(config: Config, only: Sequence[str], trials: object) -> Config:
    """The configuration with these systems only, and so many trials for each system that is trained."""
    systems = tuple(config.system[place] for place in places(config, only))
    count = whole_number(trials, "--trials", least=0)
    if count is not None:
        # A system that the configuration does not train stays untrained.
        systems = tuple(
            s.model_copy(update={"audit": s.audit.model_copy(update={"trials": count})}) if s.audit.trials != 0 else s
            for s in systems
        )
    return config.model_copy(update={"system": systems})


def checked_date(text: str) -> str:
    """A date as YYYY-MM-DD; empty if none was given."""
    try:
        day = dt.date.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        day = ""
    if day != text:
        raise InputError("--date", text, "a day as YYYY-MM-DD")
    return day


def whole_number(value: object, field: str, *, least: int) -> int | None:
    """An option that is a whole number, or was not given."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(field, value, f"a whole number >= {least}")
    return value


def share_of(value: object, field: str) -> float | None:
    """An option that is a share above 0 and at most 1, or was not given."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InputError(field, value, "a number above 0 and at most 1")
    return float(value)


def audit_command(source: object, out: Path | None, overrides: Mapping[str, Any], trials: object) -> str:
    """The command that repeats an audit."""
    if not isinstance(source, str | Path | None):
        # The file holds the overrides, too.
        return shlex.join(["vflpriv", "audit", GIVEN if out is None else str(out / GIVEN)])
    command = repeated("audit", source, overrides)
    return command if trials is None else f"{command} --trials {trials}"


def repeated(name: str, source: str | Path | None, overrides: Mapping[str, Any], only: Sequence[str] = ()) -> str:
    """The command that repeats a run with these fields and selected keys."""
    parts = ["vflpriv", name, *([] if source is None else [str(source)])]
    for key, value in overrides.items():
        parts += ["--set", f"{key}={value if isinstance(value, str) else toml_value(value)}"]
    return shlex.join(parts + [word for key in only for word in ("--only", key)])


_OPTIONS = {name: f"--{name}" for name in ("seed", "confidence", "device", "accountant")} | {"data.name": "--data"}


def as_options(overrides: Mapping[str, Any]) -> dict[str, object]:
    """Fields of a configuration that were given in place of its own, as options of the command line.

    >>> as_options({"seed": 3, "data.train": 40})
    {'--seed': 3, '--set': 'data.train=40'}
    """
    return {
        _OPTIONS.get(name, "--set"): value if name in _OPTIONS else f"{name}={value}"
        for name, value in overrides.items()
    }


def named_source(
    source: object, transcript: object, train: object, ledger: str | Path | None
) -> tuple[Any, Any, Any, str | Path | None]:
    """(configuration, transcript, training function, ledger): what one argument names, told by its form.

    A folder with a transcript, FILE.py:FUNCTION and FILE.py are described by the `ledger.toml` beside them if none is
    given.
    """
    if not isinstance(source, str | Path) or transcript is not None or train is not None:
        return source, transcript, train, ledger
    path, (file, colon, _) = Path(source), str(source).rpartition(":")
    if (path / "transcript.json").is_file():
        return None, path, None, ledger or _beside(path, path.parent)
    if colon and file.endswith(".py"):
        return None, None, str(source), ledger or _beside(Path(file).parent)
    if path.suffix == ".py":
        return None, None, str(source), ledger or _beside(path.parent)
    return source, transcript, train, ledger


def _beside(*folders: Path) -> Path | None:
    return next((folder / "ledger.toml" for folder in folders if (folder / "ledger.toml").is_file()), None)


def recorded_paths(
    transcript: str | Path | None, ledger: str | Path | None, given: Mapping[str, object]
) -> tuple[Path, Path] | None:
    """A recorded training's folder and ledger file, or None. Options `given` beside them belong in the ledger file."""
    if transcript is None and ledger is None:
        return None
    if transcript is None or ledger is None:
        missing = "--transcript" if transcript is None else "--ledger"
        raise InputError(missing, "nothing", "a path: --transcript and --ledger go together")
    _refuse(given, "--transcript")
    return Path(transcript), Path(ledger)


def training_ledger(
    train: object, transcript: str | Path | None, ledger: str | Path | None, given: Mapping[str, object]
) -> Path | None:
    """The ledger file of a user's training function, or None if none is given. Options `given` belong in that file."""
    if train is None:
        return None
    if transcript is not None:
        raise InputError("--transcript", str(transcript), "nothing beside --train, which records a training by itself")
    if ledger is None:
        expected = "a path: --train and --ledger go together; `vflpriv trace train.py --ledger ledger.toml` writes one"
        raise InputError("--ledger", "nothing", expected)
    _refuse(given, "--train")
    return Path(ledger)


def _refuse(given: Mapping[str, object], option: str) -> None:
    """Raise an InputError if anything is given that the ledger file says."""
    for name, value in given.items():
        if value is not None and value != ():
            shown = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)
            raise InputError(name, shown, f"nothing beside {option}: the ledger file says it")
