"""What audits and attacks leave for a CI job beside their report: JUnit, SARIF, a step summary, a baseline's gate."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vflpriv.common.files import writable, write_atomically
from vflpriv.errors import InputError
from vflpriv.render.console import say
from vflpriv.report.attacks import AttackReport, read_attacks
from vflpriv.report.audit import Report, read_report
from vflpriv.report.compare import AnyReport, Comparison, Tolerance, compare_any

__all__ = ["CiOptions", "Gate", "any_report_at", "append_summary", "attacks_at", "report_at"]

_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


@dataclass(frozen=True, kw_only=True)
class CiOptions:
    """Files to write beside the report, and what to hold it against."""

    junit: Path | None = None
    sarif: Path | None = None
    summary: Path | None = None
    baseline: Path | None = None
    tolerance: tuple[str, ...] = ()


class Gate:
    """CI options that were checked before the work: the baseline is read and every file can be written.

    The baseline is of the kind that `read` reads.
    """

    def __init__(self, options: CiOptions, read: Callable[[Path], AnyReport]) -> None:
        self._options = options
        if options.tolerance and options.baseline is None:
            raise InputError("--tolerance", options.tolerance[0], "--baseline beside it")
        self._tolerance = Tolerance.parse(options.tolerance)
        self._baseline = None if options.baseline is None else read(options.baseline)
        for name in ("junit", "sarif", "summary"):
            path: Path | None = getattr(options, name)
            if path is not None and path.is_dir():
                raise InputError(f"--{name}", str(path), "a file, not a folder")
            if path is not None:
                writable(path.parent, f"--{name}")

    def compared(self, report: AnyReport) -> Comparison | None:
        """The report against the baseline, if there is one."""
        return None if self._baseline is None else compare_any(self._baseline, report, self._tolerance)

    def publish(self, report: AnyReport, config: Path | None, console: Console) -> int:
        """Write the files, print a line for each regression; 1 if there is one, else the report's exit code."""
        from vflpriv.render.junit import render_junit
        from vflpriv.render.sarif import render_sarif
        from vflpriv.render.summary import render_summary

        found, options = self.compared(report), self._options
        files: list[tuple[Path | None, Callable[[], str]]] = [
            (options.junit, lambda: render_junit(report, found)),
            (options.sarif, lambda: render_sarif(report, found, config)),
            (options.summary, lambda: render_summary(report, found)),
        ]
        for path, render in files:
            if path is not None:
                write_atomically(path, render())
                say(console, f"wrote {path}")
        append_summary(lambda room: render_summary(report, found, limit=room))
        for change in found.lines if found is not None else []:
            say(console, f"worse than the baseline: {change.sentence}")
        return 1 if found is not None and found.regressions else report.exit_code


def report_at(path: Path) -> Report:
    """A report.json, or the one in a folder."""
    return read_report(path / "report.json" if path.is_dir() else path)


def attacks_at(path: Path) -> AttackReport:
    """An attacks.json, or the one in a folder."""
    return read_attacks(path / "attacks.json" if path.is_dir() else path)


def any_report_at(path: Path) -> AnyReport:
    """What a file holds, by its name; of a folder, the audit's report if it has one."""
    alone = path.is_dir() and not (path / "report.json").exists() and (path / "attacks.json").exists()
    return attacks_at(path) if alone or path.name.startswith("attacks") else report_at(path)


def append_summary(render: Callable[[int], str]) -> None:
    """Add to the step summary of the GitHub job that this runs in, if it does; `render` is told how many bytes fit."""
    from vflpriv.render.markdown import LIMIT

    target = os.environ.get(_STEP_SUMMARY)
    if not target:
        return
    path = Path(target)
    try:
        used = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as file:
            file.write(render(max(0, LIMIT - used)) + "\n")
    except OSError as error:
        raise InputError(_STEP_SUMMARY, target, f"a file that can be written to ({error.strerror})") from error
