"""Attacks on features in every format: how much of them comes back, beside the ε accounted for their unit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rich.text import Text

from vflpriv import formatting as f
from vflpriv.render_markdown import escape, table
from vflpriv.render_shared import leak_level
from vflpriv.report_attacks import AttackReport, Cell, FeatureCell

__all__ = [
    "features_blocks",
    "features_headline",
    "features_matrix",
    "features_table",
    "number",
    "shown",
    "with_features",
]

_STYLES = ("dim", "green", "yellow", "red", "bold red")


class FeatureRow(NamedTuple):
    """One system under one defence: ε of the views, and each attack through the view that gains most."""

    system: str
    defence: str
    epsilon: float
    cells: tuple[Cell | None, ...]


def with_features(report: AttackReport) -> AttackReport:
    """The report whose reasons are those of all attacks."""
    return report.model_copy(update={"cells": (*report.cells, *report.features)})


def features_matrix(report: AttackReport) -> tuple[tuple[str, ...], list[FeatureRow]]:
    """The attacks that apply somewhere, and a row for each system and defence."""
    only = report.model_copy(update={"cells": report.features})
    rows: dict[tuple[str, str], float] = {}
    for c in report.features:
        rows[c.system, c.defence] = max(rows.get((c.system, c.defence), 0.0), c.epsilon or 0.0)
    found = [FeatureRow(*key, e, tuple(only.worst(*key, a) for a in only.attacks)) for key, e in rows.items()]
    return only.attacks, found


def features_headline(report: AttackReport) -> str:
    """The worst leak of features in one line."""
    worst = max((c for c in report.features if c.leakage is not None), key=lambda c: c.leakage or 0.0, default=None)
    if worst is None:
        return "no attack on features applies"
    where = f"{worst.attack} on {worst.system}" + ("" if worst.defence == "none" else f" with {worst.defence}")
    reached = f"{worst.measure} {number(worst.success)}, {number(worst.leakage)} beyond the adversary by itself"
    return f"worst leak of features: {where} ({worst.adversary}), {reached}; accounted ε {f.epsilon(worst.epsilon)}"


def number(value: float | None) -> str:
    """
    >>> number(0.8941), number(-0.02), number(1e-9), number(None)
    ('0.894', '-0.020', '1e-09', '–')
    """
    if value is None:
        return f.NOTHING
    return f"{value:.0e}" if 0 < abs(value) < 5e-4 else f"{value:.3f}"


def shown(cell: Cell | None) -> int:
    """How a cell is coloured."""
    return 0 if cell is None else leak_level(cell.leakage, cell.low)


def features_table(report: AttackReport) -> tuple[str, str, list[tuple[str | Text, ...]]]:
    """Title, columns and rows for a terminal."""
    attacks, rows = features_matrix(report)
    columns = ";".join(["system", "defence", ">ε, features", *(f">{_short(a)}" for a in attacks)])
    title = "Features: R² (AUC for an attribute) through the view that gains most; the mean has 0 (½)"
    body: list[tuple[str | Text, ...]] = []
    for row in rows:
        cells = [Text(number(c.success if c else None), style=_STYLES[shown(c)]) for c in row.cells]
        body.append((f.shorten(row.system, 20), f.shorten(row.defence, 20), f.epsilon(row.epsilon), *cells))
    return title, columns, body


def _short(attack: str) -> str:
    return attack.removeprefix("feature_").replace("_", "/")


def features_blocks(report: AttackReport) -> Iterator[str]:
    """The matrix and every number behind it, as Markdown."""
    attacks, rows = features_matrix(report)
    yield "## Features"
    yield f"**{escape(features_headline(report))}**"
    yield (
        f"R² of device {report.features[0].victim}'s features (AUC of an attribute) through the view that gains most; "
        f"predicting the mean has 0 (½). Mean of {report.seeds} seeds. Bold: the interval of the leakage lies above "
        "zero. ε is accounted for the unit of one record's features, for the view that sees most."
    )
    lines = []
    for row in rows:
        cells = ["n/a" if c is None or c.success is None else _marked(c) for c in row.cells]
        lines.append((escape(row.system), escape(row.defence), f.epsilon(row.epsilon), *cells))
    yield table(("System", "Defence", "ε", *map(escape, attacks)), "::-" + "-" * len(attacks), lines)
    names = ("System", "Defence", "Attack", "Seen by", "ε", "Measure", "Success", "Interval", "No signal", "Leakage")
    more = ("Interval", "MSE", "MSE of the mean", "PSNR", "SSIM")
    yield table((*names, *more), "::::-:---------", [_numbers(c) for c in report.features if c.success is not None])
    if any(c.picture for c in report.features):
        yield "Originals beside reconstructions are on the HTML page."


def _marked(cell: Cell) -> str:
    text = number(cell.success)
    return f"**{text}**" if shown(cell) else text


def _numbers(c: FeatureCell) -> tuple[str, ...]:
    names = (escape(c.system), escape(c.defence), escape(c.attack), escape(c.adversary), f.epsilon(c.epsilon))
    success = (
        escape(c.measure),
        number(c.success),
        f"{number(c.success_low)} to {number(c.success_high)}",
        number(c.blind),
    )
    leak = (number(c.leakage), f"{number(c.low)} to {number(c.high)}", number(c.error), number(c.mean_error))
    return (*names, *success, *leak, number(c.psnr), number(c.ssim))
