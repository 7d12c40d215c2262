"""The matrix of attacks in a terminal: leakage by system, defence and attack, and why some do not apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from vflpriv.common import formatting as f
from vflpriv.render.console import LEAK_STYLES, Writer
from vflpriv.render.shared import cell_level, contest_cells, leak_points, names_of_rows
from vflpriv.render.terminal import print_features, print_refused
from vflpriv.report.attacks import ONLY_STATIC, AttackReport, Contest, TrainedRow, contests_of
from vflpriv.report.defences import defence_frontiers

__all__ = ["print_attacks"]


def print_attacks(report: AttackReport, console: Console) -> None:
    """Leakage in points for each system, defence and attack, through the view that gains most."""
    writer = Writer(console)
    columns = ["system/  defence", ">test/accuracy", *(f">{_short(a)}" for a in report.attacks)]
    trained = [row for row in report.trained if row.not_applicable is None]
    names = names_of_rows((row.system, row.defence) for row in trained)
    rows = [(name, *_row(report, row)) for name, row in zip(names, trained, strict=True)]
    title = f"Leakage in points: success beyond chance and beyond the adversary by itself, mean of {report.seeds} seeds"
    writer.table(title, columns, rows)
    refused = [attack for attack, _ in report.reasons if attack not in report.attacks]
    left_out = [f"defence {name} of {', '.join(who)}" for (names, _), who in report.left_out.items() for name in names]
    print_refused([*refused, *left_out], writer)
    _print_contests(report.contests, "Labels", writer)
    print_features(report.features, writer)
    _print_contests(contests_of(report.features), "Features", writer)
    writer.list([(each.system, each.advice) for each in defence_frontiers(report)])
    writer.list(
        [(Text(rule, style="bold red"), where) for rule, _, where in (b.partition(": ") for b in report.broken)]
    )
    if report.sample_note is not None:
        writer.line(report.sample_note)
    if report.limit_note is not None:
        writer.line(report.limit_note)
    writer.line(Text(report.headline, style="bold"))


def _print_contests(contests: Sequence[Contest[Any]], target: str, writer: Writer) -> None:
    """Static and adaptive attacks side by side, where an adaptive one was tried."""
    if not contests:
        return
    names = names_of_rows((c.system, c.defence) for c in contests)
    rows = [(name, *contest_cells(c)) for name, c in zip(names, contests, strict=True)]
    title = f"{target}: largest leakage by attacks that do not know the defence, and by those that do"
    writer.table(title, ["system/  defence", "static", "adaptive", "†"], rows)
    if any(c.only_static for c in contests):
        writer.line(ONLY_STATIC)


def _row(report: AttackReport, row: TrainedRow) -> tuple[str | Text, ...]:
    cells = [report.worst(row.system, row.defence, attack) for attack in report.attacks]
    shown = [Text(leak_points(c.leakage if c else None), style=LEAK_STYLES[cell_level(c)]) for c in cells]
    return f.percent(row.accuracy), *shown


def _short(attack: str) -> str:
    return attack.removeprefix("label_").replace("_", "/")
