"""What `vflpriv compare` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from vflpriv.cli.ci import any_report_at
from vflpriv.errors import InputError
from vflpriv.report.compare import Tolerance, compare_any

__all__ = ["run_compare"]

_FORMATS = ("text", "md", "json")


def run_compare(old: Path, new: Path, *, tolerance: Sequence[str], format_: str) -> int:
    """Print what differs; exit code 1 if something is worse beyond the tolerance."""
    if format_ not in _FORMATS:
        raise InputError("--format", format_, f"one of {', '.join(_FORMATS)}")
    found = compare_any(any_report_at(old), any_report_at(new), Tolerance.parse(tolerance))
    if format_ == "json":
        print(found.to_json(), end="")  # noqa: T201
    else:
        from vflpriv.render.compare import compare_markdown, print_comparison

        if format_ == "md":
            print(compare_markdown(found), end="")  # noqa: T201
        else:
            print_comparison(found, Console())
    return found.exit_code
