"""What `vflpriv audit`, `report` and `validate` do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from vflpriv import api as library
from vflpriv.cli.ci import CiOptions, Gate, any_report_at, attacks_at, report_at
from vflpriv.common.registry import find
from vflpriv.config.models import load_config
from vflpriv.errors import InputError
from vflpriv.render.console import say
from vflpriv.report.audit import Report

__all__ = ["check", "rerender", "run_audit", "run_recorded", "show"]


def run_audit(
    path: Path | None,
    *,
    out: Path,
    overrides: Mapping[str, Any],
    trials: object,
    only: Sequence[str],
    formats: Sequence[str],
    fresh: bool,
    quiet: bool,
    ci: CiOptions,
) -> int:
    """Audit, write the report, print it; the exit code is the report's, or 1 if it is worse than a baseline."""
    gate = Gate(ci, report_at)
    report = library.audit(
        path,
        out=out,
        overrides=overrides,
        trials=trials,
        only=only,
        formats=formats,
        fresh=fresh,
        quiet=quiet,
    )
    show(report, [out / f"report.{name}" for name in formats])
    return gate.publish(report, path if path is not None and path.is_file() else None, Console())


def run_recorded(
    transcript: Path | None, ledger: Path | None, *, out: Path, formats: Sequence[str], ci: CiOptions
) -> int:
    """The same for a recorded training."""
    gate = Gate(ci, report_at)
    report = library.audit(transcript=transcript, ledger=ledger, out=out, formats=formats)
    show(report, [out / f"report.{name}" for name in formats])
    return gate.publish(report, ledger, Console())


def rerender(path: Path, *, formats: Sequence[str], config: Path | None, ci: CiOptions) -> int:
    """Render an existing report of an audit or of attacks again."""
    report = any_report_at(path)
    gate = Gate(ci, report_at if isinstance(report, Report) else attacks_at)
    if config is not None and not config.is_file():
        raise InputError("--config", str(config), "a readable file")
    written = report.save(path if path.is_dir() else path.parent, formats=[f for f in formats if f != "json"])
    if isinstance(report, Report):
        show(report, written)
    else:
        from vflpriv.cli.commands.attack import show_attacks

        show_attacks(report, written)
    return gate.publish(report, config, Console())


def check(path: Path | None) -> None:
    """Build every system of a configuration without training; of a ledger file, check every field."""
    from vflpriv.recording.ledger_file import is_ledger, load_ledger
    from vflpriv.run.systems import build_system, load_data

    if path is not None and is_ledger(path):
        ledger = load_ledger(path)
        find("accountant", ledger.accountant)
        for name in ledger.attack_names:
            find("attack", name)
        say(Console(), f"{ledger.key}: ok")
        return
    config = load_config(path)
    data = load_data(config)
    for place, section in enumerate(config.system):
        build_system(config, place, data)
        say(Console(), f"{section.key}: ok")


def show(report: Report, written: Sequence[Path]) -> None:
    from vflpriv.render.terminal import print_report

    console = Console()
    print_report(report, console)
    for path in written:
        say(console, f"wrote {path}")
