"""What `vflpriv train` prints in a terminal: accuracy, traffic and staleness of one training of each system."""

from __future__ import annotations

from rich.console import Console

from vflpriv.common import formatting as f
from vflpriv.render.console import Writer
from vflpriv.report.train import TrainReport, TrainRow

__all__ = ["print_training"]

_COLUMNS = "system;engine;>rounds;>test/accuracy;?>interval;>loss;>up;>down;>stale rounds/median, most"
_VALIDATION = ";>validation/accuracy;?>interval"


def print_training(report: TrainReport, console: Console) -> None:
    """One line for each system."""
    validated = any(row.validation is not None for row in report.systems)
    columns = _COLUMNS.replace(";>loss", f"{_VALIDATION};>loss") if validated else _COLUMNS
    rows = [_row(row, validated) for row in report.systems]
    Writer(console).table("One training of each system", columns, rows)


def _row(row: TrainRow, validated: bool) -> tuple[str, ...]:
    names = (f.shorten(row.key, 30), f.clean(row.engine), _rounds(row))
    u, t, s = row.utility, row.traffic, row.staleness
    accuracy = (f.percent(u.accuracy), f.interval(u.accuracy_low, u.accuracy_high)) if u else (f.NOTHING, f.NOTHING)
    v = row.validation
    chosen_by = (f.percent(v.accuracy), f.interval(v.accuracy_low, v.accuracy_high)) if v else (f.NOTHING, f.NOTHING)
    loss = f"{f.exact(u.loss_before)} → {f.exact(u.loss_after)}" if u else f.NOTHING
    traffic = (f.size(t.up), f.size(t.down)) if t else (f.NOTHING, f.NOTHING)
    stale = f"{f.count(s.median)}, {f.count(s.largest)}" if s else "none"
    return (*names, *accuracy, *(chosen_by if validated else ()), loss, *traffic, stale)


def _rounds(row: TrainRow) -> str:
    """The rounds of the schedule, with those that were trained where it stopped earlier."""
    if row.stopping is None or row.stopping.trained_rounds == row.rounds:
        return f.count(row.rounds)
    return f"{f.count(row.stopping.trained_rounds)} of {f.count(row.rounds)}"
