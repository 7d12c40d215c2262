"""What `vflpriv attack` does: attack, write the matrix, print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from vflpriv import api as library
from vflpriv.cli.ci import CiOptions, Gate, attacks_at
from vflpriv.render.console import say
from vflpriv.report.attacks import AttackReport

__all__ = ["run_attacks", "show_attacks"]


def run_attacks(
    path: Path | None,
    *,
    out: Path,
    overrides: Mapping[str, Any],
    only: Sequence[str],
    fail_on: Sequence[str],
    formats: Sequence[str],
    fresh: bool,
    quiet: bool,
    ci: CiOptions,
    correction: str = "holm",
) -> int:
    """Attack, write the report, print it; exit code 1 if a limit of `fail_on` is broken or a baseline was better."""
    gate = Gate(ci, attacks_at)
    report = library.attack(
        path,
        out=out,
        overrides=overrides,
        only=only,
        fail_on=fail_on,
        correction=correction,
        formats=formats,
        fresh=fresh,
        quiet=quiet,
    )
    show_attacks(report, [out / f"attacks.{name}" for name in formats])
    return gate.publish(report, path if path is not None and path.is_file() else None, Console())


def show_attacks(report: AttackReport, written: Sequence[Path]) -> None:
    """Print the matrix, and where it was written."""
    from vflpriv.render.attacks import print_attacks

    console = Console()
    print_attacks(report, console)
    for path in written:
        say(console, f"wrote {path}")
