"""What `vflpriv train` does: train every system of a configuration once, and keep the models if asked to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from vflpriv import api as library
from vflpriv.cli.commands.account import is_json
from vflpriv.common import formatting as f
from vflpriv.render.console import Writer, say
from vflpriv.report.train import TrainReport

__all__ = ["run_train"]


def run_train(
    path: Path | None,
    *,
    overrides: Mapping[str, Any],
    only: Sequence[str],
    save: Path | None,
    format_: str,
    quiet: bool,
) -> None:
    """Train, print accuracy, traffic and staleness; `save` is a folder for the models and the record."""
    as_json = is_json(format_)
    report = library.train(path, overrides=overrides, only=only, save=save, quiet=quiet)
    if as_json:
        print(report.to_json(), end="")  # noqa: T201
    else:
        _show(report, save)


def _show(report: TrainReport, save: Path | None) -> None:
    console = Console()
    writer, rows = Writer(console), []
    for row in report.systems:
        names = (f.shorten(row.key, 30), f.clean(row.engine), f.count(row.rounds))
        u, t, s = row.utility, row.traffic, row.staleness
        useful = (f.percent(u.accuracy), f.interval(u.accuracy_low, u.accuracy_high)) if u else (f.NOTHING, f.NOTHING)
        loss = f"{f.exact(u.loss_before)} → {f.exact(u.loss_after)}" if u else f.NOTHING
        sent = (f.size(t.up), f.size(t.down)) if t else (f.NOTHING, f.NOTHING)
        stale = f"{f.count(s.median)}, {f.count(s.largest)}" if s else "none"
        rows.append((*names, *useful, loss, *sent, stale))
    columns = "system;engine;>rounds;>test/accuracy;?>interval;>loss;>up;>down;>stale rounds/median, most"
    writer.table("One training of each system", columns, rows)
    if save is not None:
        console.print()
        for name in (*(row.models for row in report.systems if row.models), "train.json"):
            say(console, f"wrote {save / name}")
