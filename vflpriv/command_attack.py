"""What `vflpriv attack` does: attack, write the matrix, print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from vflpriv import library
from vflpriv.command_ci import append_summary
from vflpriv.report_attacks import AttackReport

__all__ = ["run_attacks"]


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
) -> int:
    """Attack, write the report, print it; exit code 1 when a limit of `fail_on` is broken."""
    report = library.attack(
        path, out=out, overrides=overrides, only=only, fail_on=fail_on, formats=formats, fresh=fresh, quiet=quiet
    )
    _show(report, [out / f"attacks.{name}" for name in formats])
    from vflpriv.render_attacks import attacks_markdown

    append_summary(lambda room: attacks_markdown(report, limit=room))
    return report.exit_code


def _show(report: AttackReport, written: Sequence[Path]) -> None:
    from vflpriv.render_attacks import print_attacks

    console = Console()
    print_attacks(report, console)
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True, highlight=False)
