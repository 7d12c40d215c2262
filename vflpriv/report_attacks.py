"""The report of `vflpriv attack`: engines × defences × attacks, what each cell leaks, and whether that is too much."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflpriv.errors import InputError
from vflpriv.report_shown import Shown
from vflpriv.report_tests import Row

__all__ = ["AttackReport", "Cell", "FeatureCell", "Limit", "TrainedRow"]

_RULE = re.compile(r"^\s*(leakage|success)\s*>\s*(\d*\.?\d+)\s*$")


class Cell(Row):
    """One attack through one view of one system under one defence: means over seeds, or why it does not apply.

    `leakage` is success beyond the better of `chance` (the commonest label) and `blind` (the same adversary without the
    protocol); low and high are the ends of its interval over seeds. `epsilon` is what is accounted for what is attacked
    (labels, or features) under the adversary's eyes, `allowed` the most that this lets any attack on labels gain.
    """

    system: str
    defence: str
    attack: str
    adversary: str
    success: float | None = None
    success_low: float | None = None
    success_high: float | None = None
    chance: float | None = None
    blind: float | None = None
    leakage: float | None = None
    low: float | None = None
    high: float | None = None
    guesses: int = 0
    not_applicable: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    allowed: float | None = None


class FeatureCell(Cell):
    """One attack on features or on a sensitive column of them: success is R² or the AUC, as `measure` says.

    `error` is the mean squared error, `mean_error` that of predicting every feature's mean. `picture` holds originals
    above reconstructions.
    """

    victim: int
    knows: tuple[str, ...]
    measure: str = "R²"
    error: float | None = None
    mean_error: float | None = None
    psnr: float | None = None
    ssim: float | None = None
    ssim_low: float | None = None
    ssim_high: float | None = None
    picture: str | None = None


class TrainedRow(Row):
    """One system under one defence."""

    system: str
    title: str
    engine: str
    defence: str
    settings: dict[str, Any]
    accuracy: float | None = None
    not_applicable: str | None = None


class AttackReport(Shown, Row):
    """Everything one run of attacks found. The same configuration and seed give the same bytes."""

    schema_version: str = "attacks/1"
    tool_version: str
    seed: int
    confidence: float
    seeds: int
    labels_per_class: int
    data: dict[str, Any]
    trained: tuple[TrainedRow, ...]
    cells: tuple[Cell, ...]
    features: tuple[FeatureCell, ...] = ()
    limits: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return 1 if self.broken else 0

    @property
    def headline(self) -> str:
        """The worst leak in one line."""
        worst = max((c for c in self.cells if c.leakage is not None), key=lambda c: c.leakage or 0.0, default=None)
        if worst is None or worst.leakage is None or worst.success is None:
            return "no attack applies"
        where = f"{worst.attack} on {worst.system}" + ("" if worst.defence == "none" else f" with {worst.defence}")
        return f"worst leak: {where}, {100 * worst.success:.1f} % of guesses right, {100 * worst.leakage:+.1f} points"

    def worst(self, system: str, defence: str, attack: str) -> Cell | None:
        """The view through which this attack gains most, or one that says why none applies."""
        mine = [c for c in self.cells if (c.system, c.defence, c.attack) == (system, defence, attack)]
        open_ = [c for c in mine if c.leakage is not None]
        return max(open_, key=lambda c: c.leakage or 0.0) if open_ else next(iter(mine), None)

    @property
    def attacks(self) -> tuple[str, ...]:
        """Those that apply somewhere, in order."""
        return tuple(dict.fromkeys(c.attack for c in self.cells if c.leakage is not None))

    @property
    def reasons(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """For each attack and reason why it does not apply, the systems and views."""
        found: dict[tuple[str, str], dict[str, None]] = {}
        for c in self.cells:
            if c.not_applicable is not None:
                found.setdefault((c.attack, c.not_applicable), {})[c.system] = None
        return {key: tuple(systems) for key, systems in found.items()}

    def to_json(self) -> str:
        """Canonical JSON: stable key order, two spaces, a final newline."""
        return json.dumps(json.loads(self.model_dump_json()), indent=2, ensure_ascii=False) + "\n"

    def save(self, folder: str | Path, formats: Sequence[str] = ("json", "html", "md")) -> list[Path]:
        """Write the matrix in these formats, and say where."""
        from vflpriv.report_files import write_attacks

        return write_attacks(self, Path(folder), formats)


@dataclass(frozen=True)
class Limit:
    """A rule such as `leakage>0.05`: broken by a cell whose interval lies above it, not by a lucky mean.

    Each interval stands for itself: there is no correction for the number of cells.

    >>> str(Limit.parse("leakage > 0.05"))
    'leakage>0.05'
    """

    what: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        match = _RULE.match(text)
        if match is None:
            raise InputError("--fail-on", text, "leakage>NUMBER or success>NUMBER")
        return cls(match[1], float(match[2]))

    def __str__(self) -> str:
        return f"{self.what}>{self.bound:g}"

    def broken_by(self, cells: Sequence[Cell]) -> list[str]:
        """One line for each attack, system and defence above the limit."""
        found: dict[tuple[str, str, str], list[tuple[float, str]]] = {}
        for c in cells:
            low = c.low if self.what == "leakage" else c.success_low
            if low is not None and low > self.bound:
                found.setdefault((c.attack, c.system, c.defence), []).append((low, c.adversary))
        return [
            f"{self}: {attack} on {system}, defence {defence}: {100 * max(views)[0]:.1f} % or more, seen by "
            + ", ".join(who for _, who in views)
            for (attack, system, defence), views in found.items()
        ]
