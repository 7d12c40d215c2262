"""What `vflpriv audit`, `report` and `validate` do."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from vflpriv.command_ci import CiOptions, Gate, report_at, writable
from vflpriv.config import Config, load_config
from vflpriv.errors import InputError
from vflpriv.files import write_atomically
from vflpriv.report import Report

__all__ = ["Task", "check", "progress_bar", "rerender", "run_audit", "show", "write_report"]

_TRIALS = "trials"


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
    config = _selected(load_config(path, overrides), only, trials)
    gate = Gate(ci)
    writable(out)
    if fresh:
        shutil.rmtree(out / _TRIALS, ignore_errors=True)
    report = _audit(config, out / _TRIALS, _command(path, overrides, trials), quiet)
    written = write_report(report, out, formats)
    show(report, written)
    return gate.publish(report, path if path is not None and path.is_file() else None, Console())


def rerender(path: Path, *, formats: Sequence[str], config: Path | None, ci: CiOptions) -> int:
    """Render an existing report again."""
    gate, report = Gate(ci), report_at(path)
    folder = path if path.is_dir() else path.parent
    if config is not None and not config.is_file():
        raise InputError("--config", str(config), "a readable TOML file")
    show(report, write_report(report, folder, [f for f in formats if f != "json"]))
    return gate.publish(report, config, Console())


def check(path: Path | None) -> None:
    """Build every system of a configuration without training."""
    from vflpriv.run import build_system, load_data

    config = load_config(path)
    data = load_data(config)
    for place, section in enumerate(config.system):
        build_system(config, place, data)
        Console().print(f"{section.key}: ok", highlight=False)


def write_report(report: Report, out: Path, formats: Sequence[str]) -> list[Path]:
    """Write the report in these formats; each file is whole or absent."""
    from vflpriv.render_html import render_html
    from vflpriv.render_markdown import render_markdown

    render = {"json": lambda r: r.to_json(), "html": render_html, "md": render_markdown}
    written = []
    for name in formats:
        target = out / f"report.{name}"
        write_atomically(target, render[name](report))
        written.append(target)
    return written


def _selected(config: Config, only: Sequence[str], trials: object) -> Config:
    keys = [s.key for s in config.system]
    for key in only:
        if key not in keys:
            raise InputError("--only", key, f"one of {', '.join(keys)}")
    if trials is not None and (not isinstance(trials, int) or trials < 0):
        raise InputError("--trials", trials, "a whole number >= 0")
    systems = tuple(s for s in config.system if not only or s.key in only)
    if trials is not None:
        # A system that the configuration does not train stays untrained.
        systems = tuple(
            s.model_copy(update={"audit": s.audit.model_copy(update={"trials": trials})}) if s.audit.trials != 0 else s
            for s in systems
        )
    return config.model_copy(update={"system": systems})


def _command(path: Path | None, overrides: Mapping[str, Any], trials: object) -> str:
    parts = ["vflpriv", "audit", *([] if path is None else [str(path)])]
    for key, value in overrides.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        parts += ["--set", f"{key}={text}"]
    return shlex.join(parts + ([] if trials is None else ["--trials", str(trials)]))


def _audit(config: Config, store: Path, command: str, quiet: bool) -> Report:
    from vflpriv.report_rows import build_report
    from vflpriv.run import audit_system, build_system, load_data, workload

    data = load_data(config)
    systems = [build_system(config, place, data) for place in range(len(config.system))]
    total = sum(workload(s, c) for s, c in zip(systems, config.system, strict=True))
    with progress_bar(quiet) as bar:
        task = Task(bar, total)
        audited = [
            audit_system(system, section, config, store=store, progress=task)
            for system, section in zip(systems, config.system, strict=True)
        ]
        task.stage("accounting")
        return build_report(audited, config, reproduce=command)


def progress_bar(quiet: bool) -> Bar:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Bar(*columns, console=Console(stderr=True), transient=True, disable=quiet)


class Task:
    """The one progress bar of an audit."""

    def __init__(self, bar: Bar, total: int) -> None:
        self._bar, self._task = bar, bar.add_task("auditing", total=total)

    def stage(self, text: str) -> None:
        self._bar.update(self._task, description=text)
        if not self._bar.console.is_terminal and not self._bar.disable:
            self._bar.console.print(text)

    def advance(self, work: int) -> None:
        self._bar.advance(self._task, work)


def show(report: Report, written: Sequence[Path]) -> None:
    from vflpriv.render_terminal import print_report

    console = Console()
    print_report(report, console)
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True, highlight=False)
