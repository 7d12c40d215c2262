"""What follows a result on the command line: it is printed, files for CI are written, a baseline is compared with."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from vflpriv.common.files import writable, write_atomically
from vflpriv.common.registry import find
from vflpriv.errors import InputError
from vflpriv.render.console import print_line
from vflpriv.render.markdown import LIMIT
from vflpriv.report.attacks import AttackReport, read_attacks
from vflpriv.report.audit import Report, read_report
from vflpriv.report.compare import AnyReport, Comparison, Tolerance, compare_any
from vflpriv.report.formats import Context, Format, Saved, file_names
from vflpriv.report.seals import changed_since_written

__all__ = ["Gate", "any_report_at", "append_summary", "attacks_at", "print_saved", "report_at", "report_file"]

_STEP_SUMMARY = "GITHUB_STEP_SUMMARY"


class Gate:
    """The options for CI, checked before the work: the baseline is read, and every file can be written.

    `files` are paths by format, each to be written beside the report; `read` reads a baseline of the right kind.
    """

    def __init__(
        self,
        read: Callable[[Path], AnyReport],
        *,
        baseline: Path | None,
        tolerance: Sequence[str] | None,
        **files: Path | None,
    ) -> None:
        if tolerance and baseline is None:
            raise InputError("--tolerance", tolerance[0], "--baseline beside it")
        self._tolerance = Tolerance.parse(tolerance or ())
        self._baseline = None if baseline is None else read(baseline)
        self._files = {name: path for name, path in files.items() if path is not None}
        for name, path in self._files.items():
            if path.is_dir():
                raise InputError(f"--{name}", str(path), "a file, not a folder")
            writable(path.parent, f"--{name}")

    def finish(self, report: AnyReport, out: Path, formats: Sequence[str], *, config: Path | None) -> int:
        """Print the result, the files it was written to and every regression; the exit code.

        That is 1 if something is worse than in the baseline, else the report's own. `out` has the report in these
        formats already; `config` is the audited file, if it is one.
        """
        console = Console()
        print_saved(report, out, formats, console)
        comparison = self._compared(report)
        context = Context(comparison=comparison, config=config if config is not None and config.is_file() else None)
        for name, path in self._files.items():
            item: Format = find("format", name)()
            write_atomically(path, item.render(report, context))
            print_line(console, f"wrote {path}")
        append_summary(report, comparison)
        for change in comparison.lines if comparison is not None else []:
            print_line(console, f"worse than the baseline: {change.sentence}")
        return 1 if comparison is not None and comparison.regressions else report.exit_code

    def _compared(self, report: AnyReport) -> Comparison | None:
        return None if self._baseline is None else compare_any(self._baseline, report, self._tolerance)


def print_saved(result: Saved, out: Path, formats: Sequence[str], console: Console) -> None:
    """Print a result, and the files of `out` that it was written to in these formats."""
    from vflpriv.render.terminal import print_result

    print_result(result, console)
    for name in file_names(result, formats):
        print_line(console, f"wrote {out / name}")


def report_file(path: Path) -> Path:
    """The report.json at a path, or in this folder."""
    return path / "report.json" if path.is_dir() else path


def report_at(path: Path) -> Report:
    """The report.json at a path, or in this folder, whose verdicts follow from its figures."""
    from vflpriv.run.verify import changed_verdicts

    file = report_file(path)
    report = read_report(file)
    for changed in (*changed_verdicts(report), *changed_since_written(file.read_bytes(), required=False)):
        raise InputError(f"report {file.name}", changed, "what vflpriv audit wrote; see vflpriv verify")
    return report


def attacks_at(path: Path) -> AttackReport:
    """The attacks.json at a path, or in this folder, as it was written."""
    file = path / "attacks.json" if path.is_dir() else path
    report = read_attacks(file)
    for changed in changed_since_written(file.read_bytes(), required=False):
        raise InputError(f"report {file.name}", changed, "what vflpriv attack wrote")
    return report


def any_report_at(path: Path) -> AnyReport:
    """The report at a path, of the kind that its file name tells; in a folder, that of the audit if it has one."""
    only_attacks = path.is_dir() and not (path / "report.json").exists() and (path / "attacks.json").exists()
    return attacks_at(path) if only_attacks or path.name.startswith("attacks") else report_at(path)


def append_summary(report: AnyReport, comparison: Comparison | None) -> None:
    """Append the summary to the step summary of the GitHub job, if this runs in one, within the size that is left."""
    target = os.environ.get(_STEP_SUMMARY)
    if not target:
        return
    path = Path(target)
    try:
        used = path.stat().st_size if path.exists() else 0
        item: Format = find("format", "summary")()
        text = item.render(report, Context(comparison=comparison, limit=max(0, LIMIT - used)))
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise InputError(_STEP_SUMMARY, target, f"a file that can be written to ({error.strerror})") from error
