"""Attempts of attacks as cells of an attack report: which attack, through whose view, how well, at which budget."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.score import Column
from vflpriv.core.systems import Source
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.report.attacks import Cell, ColumnRow, FeatureCell, IntegrityCell
from vflpriv.run.summary.budgets import accounted

__all__ = ["budget_fields", "feature_cell", "integrity_cell", "label_cell", "sheet"]


def budget_fields(accountant: str, system: Source, adversary: Adversary, unit: Unit) -> dict[str, Any]:
    """The accounted budget of a unit against an adversary, as fields of a cell."""
    budget = accounted(accountant, system, adversary, unit)
    return {"unit": unit, "epsilon": budget.upper, "delta": budget.delta}


def label_cell(fields: Mapping[str, Any], attempt: Attempt) -> Cell:
    """One attack on labels through one view; `fields` are those of the cell that the attempt does not say."""
    return Cell(**fields, **_common(attempt))


def integrity_cell(fields: Mapping[str, Any], attempt: Attempt) -> IntegrityCell:
    """One attack on the model's predictions; `fields` as for labels."""
    numbers = {} if attempt.mean is None else attempt.mean.numbers
    return IntegrityCell(**fields, **_common(attempt), **numbers)


def feature_cell(fields: Mapping[str, Any], attempt: Attempt) -> FeatureCell:
    """One attack on features or membership through one view; `fields` as for labels."""
    score, pictures = attempt.mean, attempt.pictures
    told = {"victim": attempt.victim, "knows": tuple(sorted(attempt.knows))}
    if score is None:
        measure = _MEASURES.get(attempt.target, {})
        return FeatureCell(**fields, **_common(attempt), **told, **measure)
    figures: dict[str, float] = {}
    for name, figure in score.figures.items():
        figures |= {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}
    columns = tuple(map(_column_row, score.columns))
    return FeatureCell(
        **fields,
        **_common(attempt),
        **told,
        measure=score.measure.name,
        **score.numbers,
        **figures,
        columns=columns,
        picture=None if pictures is None else sheet(pictures.numpy()),
        map=None if pictures is None else _map(columns, pictures.shape[2:]),
    )


_MEASURES = {"membership": {"measure": "AUC"}, "property": {"measure": "AUC"}, "tokens": {"measure": "tokens"}}
"""What an attack that was not tried would have been measured by, where that is not R²."""


def _common(attempt: Attempt) -> dict[str, Any]:
    """The fields that every cell has: which attack, through whose view, and how well it did or why it was not tried."""
    fields = {"attack": attempt.attack, "adversary": str(attempt.adversary), "adaptive": attempt.adaptive}
    score = attempt.mean
    if score is None:
        return {**fields, "not_applicable": attempt.refusal}
    success = {f"success{end}": getattr(score, name) for end, name in _ENDS.items()}
    leakage = {"leakage": score.leakage.value, "low": score.leakage.low, "high": score.leakage.high}
    baselines = {name: getattr(score, name) for name in ("chance", "blind", "guesses", "population")}
    return {**fields, **success, **leakage, "leakage_error": score.leakage.error, **baselines}


_ENDS = {"": "value", "_low": "low", "_high": "high", "_error": "error"}


def _column_row(column: Column) -> ColumnRow:
    r2 = column.r2
    ends = {} if r2 is None else {"value": r2.value, "low": r2.low, "high": r2.high}
    return ColumnRow(error=column.error, mean_error=column.mean_error, **ends)


def _map(columns: Sequence[ColumnRow], shape: Sequence[int]) -> str:
    """The R² of every pixel as a picture: black is no better than the mean, white is exact; channels side by side."""
    values = np.array([c.value or 0.0 for c in columns]).reshape(1, shape[0], 1, *shape[1:])
    return sheet(values)


_GAP, _GREY = 1, 128
"""Pixels between two pictures, and their brightness."""


def sheet(pictures: NDArray[np.floating]) -> str:
    """(rows, n, channels, height, width) values in [0, 1], laid out in rows, as the data URL of a PNG."""
    rows, count, channels, height, width = pictures.shape
    shown = pictures if channels == 3 else pictures[:, :, :1]
    values = np.rint(255 * np.clip(np.nan_to_num(shown), 0, 1)).astype(np.uint8)
    apart = np.pad(values, ((0, 0), (0, 0), (0, 0), (0, _GAP), (0, _GAP)), constant_values=_GREY)
    lines = apart.transpose(0, 3, 1, 4, 2).reshape(rows * (height + _GAP), count * (width + _GAP), -1)
    pixels, file = lines[:-_GAP, :-_GAP], BytesIO()
    Image.fromarray(pixels if channels == 3 else pixels[..., 0]).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
