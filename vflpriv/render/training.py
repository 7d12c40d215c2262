"""What `vflpriv train` prints in a terminal: accuracy, traffic and staleness of one training of each system."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Console

from vflpriv.common import formatting as f
from vflpriv.render.console import Writer
from vflpriv.report.train import TrainReport, TrainRow

__all__ = ["print_training"]

_COLUMNS = "system;engine;>rounds;>test/accuracy;?>interval{auc}{validation};>loss;>up;>down;>stale rounds/median, most"
_FURTHER = {"auc": ";>AUC", "validation": ";>validation/accuracy;?>interval", "seconds": ";>simulated/time"}
_NOTHING = (f.NOTHING, f.NOTHING)


def print_training(report: TrainReport, console: Console) -> None:
    """One line for each system, with columns for what any of them has: AUC, validation accuracy, simulated time."""
    known = {name for name in _FURTHER if any(getattr(row, name) is not None for row in report.systems)}
    further = {name: column if name in known else "" for name, column in _FURTHER.items()}
    columns = _COLUMNS.format(**further) + further["seconds"]
    Writer(console).table("One training of each system", columns, [_row(row, known) for row in report.systems])


def _row(row: TrainRow, known: Collection[str]) -> tuple[str, ...]:
    names = (f.shorten(row.key, 30), f.clean(row.engine), _rounds(row))
    u, t, s, v = row.utility, row.traffic, row.staleness, row.validation
    accuracy = (f.percent(u.accuracy), f.interval(u.accuracy_low, u.accuracy_high)) if u else _NOTHING
    chosen_by = (f.percent(v.accuracy), f.interval(v.accuracy_low, v.accuracy_high)) if v else _NOTHING
    loss = f"{f.exact(u.loss_before)} → {f.exact(u.loss_after)}" if u else f.NOTHING
    traffic = (f.size(t.up), f.size(t.down)) if t else _NOTHING
    stale = f"{f.count(s.median)}, {f.count(s.largest)}" if s else "none"
    time = f.NOTHING if row.seconds is None else f"{row.seconds:.6g} s"
    further = {"auc": (f.percent(row.auc),), "validation": chosen_by, "seconds": (time,)}
    auc, validation, seconds = (further[name] if name in known else () for name in further)
    return (*names, *accuracy, *auc, *validation, loss, *traffic, stale, *seconds)


def _rounds(row: TrainRow) -> str:
    """The rounds of the schedule, with those that were trained where it stopped earlier."""
    if row.stopping is None or row.stopping.trained_rounds == row.rounds:
        return f.count(row.rounds)
    return f"{f.count(row.stopping.trained_rounds)} of {f.count(row.rounds)}"
