"""Attacks on features and membership, for every format: how well they do, beside the ε accounted for the unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.text import Text

from vflpriv.common import formatting as f
from vflpriv.core.units import Unit
from vflpriv.render.console import LEAK_STYLES
from vflpriv.render.markdown import escape, table
from vflpriv.render.shared import cell_level, names_of_rows
from vflpriv.report.attacks import Cell, FeatureCell, applicable, reasons_of, worst_of

__all__ = ["FeatureSection", "between", "by_feature", "features_blocks", "features_table", "number"]

_NONE = "none"


class FeatureRow(NamedTuple):
    """One system under one defence: ε of each unit, and each attack through the view that gains most."""

    system: str
    defence: str
    epsilons: tuple[float | None, ...]
    cells: tuple[FeatureCell | None, ...]


class FeatureSection:
    """What a report shows of attacks on features, the same for `vflpriv attack` and `vflpriv audit`."""

    def __init__(self, cells: Sequence[FeatureCell]) -> None:
        self.cells = tuple(cells)
        self.attacks = applicable(cells)
        self.units = tuple(dict.fromkeys(c.unit for c in cells))
        self.reasons = reasons_of(cells)
        tried = [c for c in cells if c.success is not None]
        self.about_features = [c for c in tried if c.unit == Unit.FEATURES]
        self.about_membership = [c for c in tried if c.unit != Unit.FEATURES]
        self.with_pictures = [c for c in self.about_features if c.picture]
        self.victims = tuple(dict.fromkeys(c.victim for c in cells if c.victim is not None))

    def attack(self, cell: FeatureCell) -> str:
        """The attack of a cell, with the device whose features it is on if there are several."""
        return cell.attack if len(self.victims) < 2 or cell.victim is None else f"{cell.attack}, device {cell.victim}"

    @property
    def membership_unit(self) -> str:
        """The unit that a coin decided about: one record replaced by another, or present or absent."""
        return next((str(c.unit) for c in self.about_membership), str(Unit.RECORD))

    @property
    def membership_note(self) -> str:
        """What the figures of membership are."""
        coins, neighbours = (
            "Of each pair of candidates, a fair coin decided which one was trained on.",
            "replaced record",
        )
        if self.membership_unit == Unit.ADD_REMOVE:
            coins, neighbours = "Of each candidate, a fair coin decided whether it was trained on.", "record left out"
        return (
            f"{coins} ε is that of one {neighbours} under the view of the trained model, from which predictions are "
            "computed. Advantage is the share of members called members, minus the share of non-members called members."
            " A share found at 1 % errors takes 99 candidates that were left out, one at 0.1 % takes 999."
        )

    @property
    def rows(self) -> list[FeatureRow]:
        """A row for each system and defence; ε is the largest over the views."""
        epsilons: dict[tuple[str, str], dict[Unit, float]] = {}
        for c in self.cells:
            mine = epsilons.setdefault((c.system, c.defence), {})
            mine[c.unit] = max(mine.get(c.unit, 0.0), c.epsilon or 0.0)
        return [
            FeatureRow(*key, tuple(map(e.get, self.units)), tuple(worst_of(self.cells, *key, a) for a in self.attacks))
            for key, e in epsilons.items()
        ]

    def why(self, cell: FeatureCell) -> int:
        """The number, from 1, of the reason why an attack does not apply."""
        return 1 + list(self.reasons).index((cell.attack, cell.not_applicable or ""))

    @property
    def headline(self) -> str:
        """The worst leak in one line."""
        measured = (c for c in self.cells if c.leakage is not None)
        worst = max(measured, key=lambda c: c.leakage or 0.0, default=None)
        if worst is None:
            return "no attack on features applies"
        where = f"{self.attack(worst)} on {worst.system}" + ("" if worst.defence == _NONE else f" with {worst.defence}")
        reached = f"{worst.measure} {number(worst.success)}, {number(worst.leakage)} beyond the adversary by itself"
        accounted = f"accounted ε {f.epsilon(worst.epsilon)} ({worst.unit})"
        return f"worst leak of features: {where} ({worst.adversary}), {reached}; {accounted}"

    @property
    def caption(self) -> str:
        """What the numbers of the matrix are."""
        devices = f"device{'s' if len(self.victims) > 1 else ''} {', '.join(map(str, self.victims))}"
        target = f"the features of {devices}" if self.victims else "the features"
        return (
            f"R² of {target} (AUC of an attribute, and of membership) through the view that gains most; predicting the "
            "mean has R² = 0 (a coin has AUC ½). ε is accounted for the unit, the largest over the views."
        )


def number(value: float | None) -> str:
    """
    >>> number(0.8941), number(-0.02), number(1e-9), number(None)
    ('0.894', '-0.020', '1e-09', '–')
    """
    if value is None:
        return f.NOTHING
    return f"{value:.0e}" if 0 < abs(value) < 5e-4 else f"{value:.3f}"


def features_table(section: FeatureSection) -> tuple[str, list[str], list[tuple[str | Text, ...]]]:
    """Title, columns and rows of the matrix in a terminal."""
    units = (f">ε,/{unit}" for unit in section.units)
    defended = any(c.defence != _NONE for c in section.cells)
    columns = ["system/  defence" if defended else "system", *units, *(f">{_short(a)}" for a in section.attacks)]
    title = "Features: R² (AUC for an attribute and membership) through the view that gains most; chance is 0 (½)"
    body: list[tuple[str | Text, ...]] = []
    names = names_of_rows((row.system, row.defence) for row in section.rows)
    for name, row in zip(names, section.rows, strict=True):
        cells = [Text(number(c.success if c else None), style=LEAK_STYLES[cell_level(c)]) for c in row.cells]
        body.append((name, *map(f.epsilon, row.epsilons), *cells))
    return title, columns, body


def _short(attack: str) -> str:
    """A name for the head of a narrow column, in which / begins a new line."""
    return attack.removeprefix("feature_").replace("_", "/")


def features_blocks(section: FeatureSection) -> Iterator[str]:
    """The matrix and every number behind it, as Markdown."""
    yield "## Features"
    yield f"**{escape(section.headline)}**"
    yield f"{escape(section.caption)} Bold: the interval of the leakage lies above zero."
    lines = []
    for row in section.rows:
        cells = ["n/a" if c is None or c.success is None else _marked(c) for c in row.cells]
        lines.append((escape(row.system), escape(row.defence), *map(f.epsilon, row.epsilons), *cells))
    numbers = [*(f"ε, {escape(unit)}" for unit in section.units), *map(escape, section.attacks)]
    yield table(("System", "Defence", *numbers), "::" + "-" * len(numbers), lines)
    if section.about_features:
        names = ("System", "Defence", "Attack", "Seen by", "ε, features", "Measure", "Success", "Interval", "Chance")
        more = ("No signal", "Leakage", "Interval", "MSE", "MSE of the mean", "PSNR", "SSIM")
        last = ("Features better than their mean", "Best feature")
        yield table(
            (*names, *more, *last), "::::-:------------", (_numbers(section, c) for c in section.about_features)
        )
    if section.about_membership:
        yield "### Membership"
        yield escape(section.membership_note)
        header = [
            "System",
            "Defence",
            "Attack",
            "Seen by",
            f"ε, {section.membership_unit}",
            "AUC",
            "Interval",
            "Chance",
            "Advantage",
        ]
        header += ["Interval", "Found at 1 % errors", "Interval", "Found at 0.1 % errors", "Interval", "Candidates"]
        yield table(header, "::::-----------", (_membership(section, c) for c in section.about_membership))
    if any(c.picture for c in section.cells):
        yield "Originals beside reconstructions are on the HTML page."
    if section.reasons:
        reasons = section.reasons.items()
        yield "\n".join(f"- {escape(a)} does not apply to {escape(', '.join(w))}: {escape(y)}" for (a, y), w in reasons)


def _marked(cell: Cell) -> str:
    text = number(cell.success)
    return f"**{text}**" if cell_level(cell) else text


def between(low: float | None, high: float | None) -> str:
    """An interval over seeds, or that there are too few of them.

    >>> between(0.42, 0.627), between(-0.238, 1.0), between(None, None)
    ('0.420 to 0.627', 'too few seeds', '–')
    """
    if low is None or high is None:
        return f.NOTHING
    return f.TOO_FEW if f.too_wide(low, high) else f"{number(low)} to {number(high)}"


def _names(section: FeatureSection, c: FeatureCell) -> tuple[str, ...]:
    attack = escape(section.attack(c))
    return escape(c.system), escape(c.defence), attack, escape(c.adversary), f.epsilon(c.epsilon)


def _numbers(section: FeatureSection, c: FeatureCell) -> tuple[str, ...]:
    success = (
        escape(c.measure),
        number(c.success),
        between(c.success_low, c.success_high),
        number(c.chance),
        number(c.blind),
    )
    leak = (number(c.leakage), between(c.low, c.high), number(c.error), number(c.mean_error))
    return (*_names(section, c), *success, *leak, number(c.psnr), number(c.ssim), *by_feature(c))


def by_feature(c: FeatureCell) -> tuple[str, str]:
    """How many features are reconstructed better than by their mean, and the R² of the best one."""
    k = c.best_feature
    if k is None:
        return f.NOTHING, f.NOTHING
    best = c.columns[k]
    return f"{c.features_above} of {len(c.columns)}", f"{k}: {number(best.value)} ({between(best.low, best.high)})"


def _membership(section: FeatureSection, c: FeatureCell) -> tuple[str, ...]:
    success = (number(c.success), between(c.success_low, c.success_high), number(c.chance))
    advantage = (number(c.advantage), between(c.advantage_low, c.advantage_high))
    members_found = (number(c.found), between(c.found_low, c.found_high))
    rarely_found = (number(c.rarely_found), between(c.rarely_found_low, c.rarely_found_high))
    return (*_names(section, c), *success, *advantage, *members_found, *rarely_found, f.count(c.guesses))
