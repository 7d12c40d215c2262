"""The curves of a budget as files: CSV and JSON for other programs, and one PNG with four panels."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vflpriv.common import formatting as f
from vflpriv.common.files import write_atomically
from vflpriv.core.budgets import curve
from vflpriv.render.plots.svg import COLOURS, STYLE
from vflpriv.report.account import Curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["curves_png", "write_curves"]

_MOST_BARS = 60
_NOT_ITS_OWN = "no ε of a record’s own:\nbatches are secret,\nnoise is not only Gaussian,\nor the unit is not a record"


def write_curves(curves: Curves, folder: Path) -> list[Path]:
    """One CSV per curve, one JSON, one PNG; their names start with system, view, unit and reading."""
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
    picture = folder / f"{curves.name}.png"
    write_atomically(picture, curves_png(curves))
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


def curves_png(curves: Curves) -> bytes:
    """Four panels: the trade-off function, delta against epsilon, epsilon against rounds, epsilon over records."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 7.0), layout="constrained")
        panels = figure.subplots(2, 2)
        bound = "exact" if curves.exact else "certified bounds"
        batches = f"batches {curves.batches}, {curves.reading} reading, {curves.accountant} ({bound})"
        figure.suptitle(f"{f.clean(curves.system)}: {curves.unit} unit seen by {curves.adversary}\n{batches}")
        _tradeoff(panels[0, 0], curves)
        _delta(panels[0, 1], curves)
        _rounds(panels[1, 0], curves)
        _records(panels[1, 1], curves)
        for axes in panels.flat:
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(color=COLOURS["frame"], alpha=0.22, lw=0.6)
            axes.set_axisbelow(True)
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=150, metadata={"Software": None})
    return out.getvalue()


def _tradeoff(axes: Axes, curves: Curves) -> None:
    axes.plot([0, 1], [1, 0], color=COLOURS["frame"], lw=1, ls=(0, (2, 3)), label="blind guessing")
    if curves.claimed_mu is not None:
        promised = curve(curves.claimed_mu, curves.alphas)
        axes.plot(
            curves.alphas, promised, color=COLOURS["claimed"], lw=1.8, label=f"claimed μ={f.mu(curves.claimed_mu)}"
        )
    label = "accounted" if curves.exact else "accounted, at least"
    axes.plot(curves.alphas, curves.betas, color=COLOURS["rigorous"], lw=2, label=label, clip_on=False)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="false-positive rate α", ylabel="false-negative rate f(α)")
    axes.legend(frameon=False)


def _delta(axes: Axes, curves: Curves) -> None:
    lower, upper = np.array(curves.epsilon_lower), np.array(curves.epsilon_upper)
    axes.set(yscale="log", xlabel="ε", ylabel="δ(ε)")
    axes.yaxis.set_major_formatter(lambda value, _: f.delta(value))
    axes.yaxis.set_minor_formatter(lambda *_: "")
    if not np.isfinite(upper).any():
        _text_only(axes, "ε = ∞ at every δ")
        return
    axes.plot(upper, curves.deltas, color=COLOURS["rigorous"], lw=2, label="exact" if curves.exact else "upper bound")
    if not curves.exact and (lower > 0).any():
        axes.plot(lower, curves.deltas, color=COLOURS["paper"], lw=1.4, ls=(0, (4, 2)), label="lower bound")
    if curves.claimed_epsilon is not None:
        point = f"claimed ({f.epsilon(curves.claimed_epsilon)}, {f.delta(curves.delta)})"
        axes.plot(curves.claimed_epsilon, curves.delta, "o", color=COLOURS["claimed"], ms=6, ls="none", label=point)
    axes.set_xlim(left=0)
    axes.legend(frameon=False)


def _rounds(axes: Axes, curves: Curves) -> None:
    from matplotlib.ticker import MaxNLocator

    upper = np.array(curves.rounds_epsilon_upper)
    axes.set(xlabel="rounds", ylabel=f"ε at δ = {f.delta(curves.delta)}")
    if not np.isfinite(upper).any():
        _text_only(axes, "ε = ∞ from the first round on")
        return
    axes.plot(curves.rounds, np.where(np.isfinite(upper), upper, np.nan), color=COLOURS["rigorous"], lw=2, label="ε ≤")
    if not curves.exact and any(curves.rounds_epsilon_lower):
        axes.plot(
            curves.rounds, curves.rounds_epsilon_lower, color=COLOURS["paper"], lw=1.4, ls=(0, (4, 2)), label="ε ≥"
        )
    if curves.claimed_epsilon is not None:
        axes.axhline(curves.claimed_epsilon, color=COLOURS["claimed"], lw=1.4, ls=(0, (6, 2)), label="claimed")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(frameon=False)


def _records(axes: Axes, curves: Curves) -> None:
    axes.set(xlabel=f"a record’s own ε at δ = {f.delta(curves.delta)}", ylabel="records")
    values = np.array(curves.record_epsilons or ())
    values = values[np.isfinite(values)]
    if values.size == 0:
        _text_only(
            axes,
            _NOT_ITS_OWN,
        )
        return
    high = float(values.max())
    different, numbers = np.unique(values.round(12), return_counts=True)
    if len(different) <= _MOST_BARS:
        gaps = np.diff(different)
        axes.bar(different, numbers, width=0.8 * float(gaps.min(initial=0.1 * high)), color=COLOURS["claimed"])
    else:
        axes.hist(values, bins=_MOST_BARS, color=COLOURS["claimed"])
    axes.axvline(high, color=COLOURS["worst-case"], lw=1.4, ls=(0, (4, 2)), label=f"worst record: {f.epsilon(high)}")
    axes.set_ylim(top=1.22 * axes.get_ylim()[1])
    axes.legend(frameon=False, loc="upper left")


def _text_only(axes: Axes, text: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
