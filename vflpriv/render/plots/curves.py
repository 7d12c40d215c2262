"""The curves of a budget as files: CSV and JSON for other programs, and one SVG with four panels."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from vflpriv.common import formatting as f
from vflpriv.common.files import write_atomically
from vflpriv.core.budgets import curve
from vflpriv.render.plots.chart import Axis, Chart, alone, decades, nice_ticks, shares, sheet
from vflpriv.report.account import Curves

__all__ = ["curves_picture", "write_curves"]

_MOST_BARS = 60
_NOT_ITS_OWN = (
    "no ε of a record’s own:",
    "batches are secret,",
    "noise is not only Gaussian,",
    "or the unit is not a record",
)


def write_curves(curves: Curves, folder: Path) -> list[Path]:
    """One CSV per curve, one JSON, one SVG; their names start with system, view, unit and reading."""
    tables = {
        "delta": (("delta", "epsilon_lower", "epsilon_upper"), _delta_rows(curves)),
        "tradeoff": (("alpha", "beta"), zip(curves.alphas, curves.betas, strict=True)),
        "rounds": (("rounds", "epsilon_lower", "epsilon_upper"), _round_rows(curves)),
    }
    if curves.record_epsilons is not None:
        tables["records"] = (("record", "epsilon"), enumerate(curves.record_epsilons))
    written = []
    for name, (header, rows) in tables.items():
        path = folder / f"{curves.name}-{name}.csv"
        write_atomically(path, _csv(header, rows))
        written.append(path)
    whole = folder / f"{curves.name}.json"
    text = json.dumps(json.loads(curves.model_dump_json()), indent=2, ensure_ascii=False)
    write_atomically(whole, f"{text}\n")
    picture = folder / f"{curves.name}.svg"
    write_atomically(picture, curves_picture(curves))
    return [*written, whole, picture]


def _delta_rows(curves: Curves) -> Iterable[tuple[float, ...]]:
    return zip(curves.deltas, curves.epsilon_lower, curves.epsilon_upper, strict=True)


def _round_rows(curves: Curves) -> Iterable[tuple[float, ...]]:
    return zip(curves.rounds, curves.rounds_epsilon_lower, curves.rounds_epsilon_upper, strict=True)


def _csv(header: Sequence[str], rows: Iterable[Sequence[float]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def curves_picture(curves: Curves) -> str:
    """Four panels: the trade-off function, delta against epsilon, epsilon against rounds, epsilon over records."""
    bound = "exact" if curves.exact else "certified bounds"
    heading = (
        f"{f.clean(curves.system)}: {curves.unit} unit seen by {curves.adversary}",
        f"batches {curves.batches}, {curves.reading} reading, {curves.accountant} ({bound})",
    )
    return alone(sheet([_tradeoff(curves), _deltas(curves), _rounds(curves), _records(curves)], heading, columns=2))


def _panel(across: Axis, up: Axis) -> Chart:
    return Chart(across, up, width=330, height=230)


def _noted(across: str, up: str, lines: Sequence[str]) -> Chart:
    """A panel that says why there is no curve in it."""
    chart = _panel(*(Axis(low=0, high=1, name=name, ticks=()) for name in (across, up)))
    chart.note(lines)
    return chart


def _tradeoff(curves: Curves) -> Chart:
    chart = _panel(shares(0, 1, "false-positive rate α"), shares(0, 1, "false-negative rate f(α)"))
    chart.line([(0, 1), (1, 0)], "frame", width=1, dashes="2 3", label="blind guessing")
    if curves.claimed_mu is not None:
        promised = zip(curves.alphas, curve(curves.claimed_mu, curves.alphas).tolist(), strict=True)
        chart.line(promised, "claimed", label=f"claimed μ={f.mu(curves.claimed_mu)}")
    label = "accounted" if curves.exact else "accounted, at least"
    chart.line(zip(curves.alphas, curves.betas, strict=True), "rigorous", width=2, label=label)
    return chart


def _deltas(curves: Curves) -> Chart:
    finite = [e for e in curves.epsilon_upper if math.isfinite(e)]
    if not finite:
        return _noted("ε", "δ(ε)", ["ε = ∞ at every δ"])
    claimed = curves.claimed_epsilon
    chart = _panel(_from_zero([*finite, claimed], "ε"), decades(min(curves.deltas), max(curves.deltas), "δ(ε)"))
    label = "exact" if curves.exact else "upper bound"
    chart.line(_finite(curves.epsilon_upper, curves.deltas), "rigorous", width=2, label=label)
    if not curves.exact and any(e > 0 for e in curves.epsilon_lower):
        lower = _finite(curves.epsilon_lower, curves.deltas)
        chart.line(lower, "paper", width=1.4, dashes="4 2", label="lower bound")
    if claimed is not None and math.isfinite(claimed):
        label = f"claimed ({f.epsilon(claimed)}, {f.delta(curves.delta)})"
        chart.mark(claimed, curves.delta, "circle", "claimed", label=label)
    return chart


def _rounds(curves: Curves) -> Chart:
    name, finite = f"ε at δ = {f.delta(curves.delta)}", [e for e in curves.rounds_epsilon_upper if math.isfinite(e)]
    if not finite:
        return _noted("rounds", name, ["ε = ∞ from the first round on"])
    last, claimed = curves.rounds[-1], curves.claimed_epsilon
    across = Axis(low=0, high=last, name="rounds", ticks=nice_ticks(0, last, 6, whole=True))
    chart = _panel(across, _from_zero([*finite, claimed], name))
    chart.line(_finite(curves.rounds, curves.rounds_epsilon_upper), "rigorous", width=2, label="ε ≤")
    if not curves.exact and any(curves.rounds_epsilon_lower):
        lower = _finite(curves.rounds, curves.rounds_epsilon_lower)
        chart.line(lower, "paper", width=1.4, dashes="4 2", label="ε ≥")
    if claimed is not None and math.isfinite(claimed):
        chart.line([(0, claimed), (last, claimed)], "claimed", width=1.4, dashes="6 2", label="claimed")
    return chart


def _records(curves: Curves) -> Chart:
    name = f"a record’s own ε at δ = {f.delta(curves.delta)}"
    values = np.array([e for e in curves.record_epsilons or () if math.isfinite(e)])
    if values.size == 0:
        return _noted(name, "records", _NOT_ITS_OWN)
    high = float(values.max())
    different, numbers = np.unique(values.round(12), return_counts=True)
    if len(different) <= _MOST_BARS:
        half = 0.4 * float(np.diff(different).min(initial=0.1 * high))
        bars = [(x - half, x + half, n) for x, n in zip(different.tolist(), numbers.tolist(), strict=True)]
    else:
        heights, edges = np.histogram(values, bins=_MOST_BARS)
        bars = list(zip(edges[:-1].tolist(), edges[1:].tolist(), heights.tolist(), strict=True))
    left, right, top = bars[0][0], bars[-1][1], 1.1 * max(n for _, _, n in bars)
    margin = 0.05 * (right - left) or 0.1
    across = Axis(low=left - margin, high=right + margin, name=name, ticks=nice_ticks(left, right, 5))
    chart = _panel(across, Axis(low=0, high=top, name="records", ticks=nice_ticks(0, top, 5, whole=True)))
    chart.bars(bars, "claimed")
    label = f"worst record: {f.epsilon(high)}"
    chart.line([(high, 0), (high, top)], "worst-case", width=1.4, dashes="4 2", label=label)
    return chart


def _from_zero(values: Sequence[float | None], name: str) -> Axis:
    """An axis from 0 that holds all of these that are finite."""
    most = 1.05 * max(value for value in values if value is not None and math.isfinite(value)) or 1.0
    return Axis(low=0, high=most, name=name, ticks=nice_ticks(0, most, 6))


def _finite(across: Sequence[float], up: Sequence[float]) -> list[tuple[float, float]]:
    """The points of a line, with gaps for infinities."""
    points = zip(across, up, strict=True)
    return [point if all(map(math.isfinite, point)) else (math.nan, math.nan) for point in points]
