"""The matrix of attacks in a terminal, as Markdown and as a page: cells by leakage, reasons where there is none."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from vflpriv.common import formatting as f
from vflpriv.render.console import Writer
from vflpriv.render.features import FeatureSection, features_blocks
from vflpriv.render.html.report import environment
from vflpriv.render.markdown import LIMIT, escape, table, within
from vflpriv.render.shared import leak_level, names_of_rows
from vflpriv.render.terminal import print_features
from vflpriv.report.attacks import AttackReport, Cell, TrainedRow

__all__ = ["attacks_blocks", "attacks_html", "attacks_markdown", "level", "print_attacks"]


# The matrix of attacks in a terminal, as Markdown and as a page: cells by leakage, reasons where there is none.

_STYLES = ("dim", "green", "yellow", "red", "bold red")


def level(cell: Cell | None) -> int:
    """0 if nothing applies or the interval reaches down to no leak; then 1 to 4 as the mean grows."""
    return 0 if cell is None else leak_level(cell.leakage, cell.low)


def points(number: float | None) -> str:
    """
    >>> points(0.894), points(-0.02), points(None)
    ('+89.4', '-2.0', '–')
    """
    return f.NOTHING if number is None else f"{100 * number:+.1f}"


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
    defences = [(row.defence, f"not applicable to {row.system}: {row.not_applicable}") for row in _left_out(report)]
    writer.list([*reasons, *defences])
    print_features(report.features, writer)
    writer.list(
        [(Text(rule, style="bold red"), where) for rule, _, where in (b.partition(": ") for b in report.broken)]
    )
    if report.limit_note is not None:
        writer.line(report.limit_note)
    writer.line(Text(report.headline, style="bold"))


def _left_out(report: AttackReport) -> list[TrainedRow]:
    return [row for row in report.trained if row.not_applicable is not None]


def _row(report: AttackReport, row: TrainedRow) -> tuple[str | Text, ...]:
    cells = [report.worst(row.system, row.defence, attack) for attack in report.attacks]
    shown = [Text(points(c.leakage if c else None), style=_STYLES[level(c)]) for c in cells]
    return f.percent(row.accuracy), *shown


def _short(attack: str) -> str:
    return attack.removeprefix("label_").replace("_", "/")


def attacks_markdown(report: AttackReport, *, limit: int = LIMIT) -> str:
    """For a pull request: the matrix, every number behind it, and the reasons."""
    return within(attacks_blocks(report), limit, whole="attacks.json")


def attacks_blocks(report: AttackReport) -> Iterator[str]:
    """The same, a paragraph or table at a time."""
    yield "# Attacks"
    yield f"**{escape(report.headline)}**"
    for line in report.broken:
        yield f"- **{escape(line)}**"
    if report.limit_note is not None:
        yield f"{escape(report.limit_note[:1].upper() + report.limit_note[1:])}."
    yield (
        "Points by which the best view's success exceeds chance and the same adversary without the protocol "
        f"(success in brackets); mean of {report.seeds} seeds. Bold: the {f.confidence(report.confidence)} interval "
        "lies above zero."
    )
    header = ("System", "Defence", "Test accuracy", *map(escape, report.attacks))
    rows = []
    for row in report.trained:
        if row.not_applicable is None:
            cells = [_marked(report.worst(row.system, row.defence, attack)) for attack in report.attacks]
            rows.append((escape(row.system), escape(row.defence), f.percent(row.accuracy), *cells))
    yield table(header, "::-" + "-" * len(report.attacks), rows)
    yield "## Every attempt"
    names = (
        "System",
        "Defence",
        "Attack",
        "Seen by",
        "Success",
        "Interval",
        "Chance",
        "No signal",
        "Leakage",
        "Interval",
        "Accounted ε ≤",
        "Allows",
    )
    yield table(names, "::::--------", [_numbers(c) for c in report.cells if c.leakage is not None])
    if report.features:
        yield from features_blocks(FeatureSection(report.features))
    yield "## Not applicable"
    reasons = [
        f"- {escape(attack)}: {escape(why)} ({escape(', '.join(who))})" for (attack, why), who in report.reasons.items()
    ]
    reasons += [
        f"- {escape(r.defence)} on {escape(r.system)}: {escape(r.not_applicable or '')}" for r in _left_out(report)
    ]
    yield "\n".join(reasons) or "Nothing."


def _marked(cell: Cell | None) -> str:
    if cell is None or cell.leakage is None:
        return "n/a"
    text = points(cell.leakage)
    return f"{f'**{text}**' if level(cell) else text} ({f.percent(cell.success)})"


def _numbers(c: Cell) -> tuple[str, ...]:
    names = (escape(c.system), escape(c.defence), escape(c.attack), escape(c.adversary))
    success = (f.percent(c.success), f.interval(c.success_low, c.success_high))
    beyond = (points(c.leakage), f.interval(c.low, c.high))
    return (*names, *success, f.percent(c.chance), f.percent(c.blind), *beyond, f.epsilon(c.epsilon), points(c.allowed))


def attacks_html(report: AttackReport) -> str:
    """One self-contained page. The same report gives the same bytes."""
    return (
        environment()
        .get_template("attacks.html.j2")
        .render(
            report=report,
            level=level,
            points=points,
            left_out=_left_out(report),
            features=FeatureSection(report.features) if report.features else None,
        )
    )
