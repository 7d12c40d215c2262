"""The matrix of attacks in a terminal: leakage by system, defence and attack, and why some do not apply."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from vflpriv.common import formatting as f
from vflpriv.render.console import LEAK_STYLES, Writer
from vflpriv.render.shared import cell_level, leak_points, names_of_rows
from vflpriv.render.terminal import print_features
from vflpriv.report.attacks import AttackReport, TrainedRow
from vflpriv.report.frontier import frontiers

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
    reasons = [(attack, f"not applicable to {', '.join(who)}: {why}") for (attack, why), who in report.reasons.items()]
    left_out = [
        ("defences", f"{', '.join(names)}: not applicable to {', '.join(who)}: {why}")
        for (names, why), who in report.left_out.items()
    ]
    writer.list([*reasons, *left_out])
    print_features(report.features, writer)
    writer.list([(each.system, each.advice) for each in frontiers(report)])
    writer.list(
        [(Text(rule, style="bold red"), where) for rule, _, where in (b.partition(": ") for b in report.broken)]
    )
    if report.sample_note is not None:
        writer.line(report.sample_note)
    if report.limit_note is not None:
        writer.line(report.limit_note)
    writer.line(Text(report.headline, style="bold"))


def _row(report: AttackReport, row: TrainedRow) -> tuple[str | Text, ...]:
    cells = [report.worst(row.system, row.defence, attack) for attack in report.attacks]
    shown = [Text(leak_points(c.leakage if c else None), style=LEAK_STYLES[cell_level(c)]) for c in cells]
    return f.percent(row.accuracy), *shown


def _short(attack: str) -> str:
    return attack.removeprefix("label_").replace("_", "/")
