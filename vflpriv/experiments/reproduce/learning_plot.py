"""Test accuracy of every row of a reproduction, by round, by traffic, and by simulated time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vflpriv.common.formatting import percent, shorten
from vflpriv.experiments.curves import LearningCurve
from vflpriv.experiments.reproduce.result import Reproduction, TrainedLine
from vflpriv.render.plots.svg import COLOURS, Plot, drawing, in_percent, logarithmic, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["learning_plots"]

_WIDTH, _HEIGHT = 4.6, 3.2
_INSIDE = 7
"""So many rows have their legend inside the plot; more have it below, one line of this height for two rows."""
_LEGEND_LINE = 0.17
_TITLE = 34
_THIN, _STEP = 1.4, 0.35
"""Where there are few rows the first ones are drawn below the others and wider, so that equal curves show as a rim."""
_INKS = ("claimed", "worst-case", "crafted", "rigorous", "paper", "natural")
_DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (9, 3)))
_AXES = {
    "rounds": "rounds",
    "megabytes": "MB on the wire, all devices",
    "seconds": "simulated seconds",
}


def learning_plots(report: Reproduction) -> list[Plot]:
    """One plot for each thing that trainings counted, of those that did."""
    return [_plot(report, axis) for axis in _AXES if _counted(report, axis)]


def _counted(report: Reproduction, axis: str) -> list[TrainedLine]:
    return [line for line in report.lines if all(getattr(curve, axis) for curve in line.curves)]


def _plot(report: Reproduction, axis: str) -> Plot:
    rows = [(line.title, *_ends(line, axis)) for line in _counted(report, axis)]
    described = "; ".join(f"{title} reaches {accuracy} after {cost}" for title, accuracy, cost in rows)
    return Plot(
        svg=_drawn(report, axis, f"Test accuracy by {_AXES[axis]}: {described}."),
        caption=f"Test accuracy, mean over seeds, against {_AXES[axis]}.",
        header=("Row", "Accuracy", _AXES[axis][0].upper() + _AXES[axis][1:]),
        rows=rows,
    )


def _ends(line: TrainedLine, axis: str) -> tuple[str, str]:
    costs = [getattr(curve, axis)[curve.place] for curve in line.curves]
    return percent(line.accuracy), f"{sum(costs) / len(costs):,.4g}"


def _drawn(report: Reproduction, axis: str, description: str) -> str:
    lines = _counted(report, axis)
    below = 0.0 if len(lines) <= _INSIDE else _LEGEND_LINE * math.ceil(len(lines) / 2) + 0.1
    height = _HEIGHT + below
    with drawing(_WIDTH, height) as (figure, axes):
        axes.set_position((0.75 / _WIDTH, (0.5 + below) / height, (_WIDTH - 0.9) / _WIDTH, (_HEIGHT - 0.65) / height))
        for number, (line, (ink, dashes)) in enumerate(zip(lines, _strokes(lines), strict=True)):
            places = _mean([getattr(curve, axis) for curve in line.curves])
            heights = _mean([curve.accuracy for curve in line.curves])
            width = _THIN + (0.0 if below else _STEP * (len(lines) - 1 - number))
            axes.plot(places, heights, lw=width, ls=dashes, color=ink, label=shorten(line.title, _TITLE))
        if report.target is not None:
            axes.axhline(report.target / 100, color=COLOURS["frame"], lw=0.8, ls=(0, (2, 3)))
        if axis != "rounds" and _spread(lines, axis) > 100:
            logarithmic(axes)
        else:
            axes.locator_params(axis="x", nbins=5)
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.6g}")
        axes.set_xlabel(_AXES[axis])
        axes.set_ylabel("test accuracy")
        in_percent(axes)
        axes.grid(color=COLOURS["frame"], alpha=0.22, lw=0.6)
        _legend(figure, axes, below)
        return svg(figure, f"Test accuracy by {_AXES[axis]}", description, f"l-{axis}")


def _strokes(lines: Sequence[TrainedLine]) -> list[tuple[str, Any]]:
    """Colour and dashes of each row: a colour of its own, or where there are too many one for each engine."""
    if len(lines) <= _INSIDE:
        places = [(number, number // len(_INKS)) for number in range(len(lines))]
    else:
        names = [line.engine for line in lines]
        engines = list(dict.fromkeys(names))
        places = [(engines.index(name), names[:number].count(name)) for number, name in enumerate(names)]
    return [(COLOURS[_INKS[ink % len(_INKS)]], _DASHES[dash % len(_DASHES)]) for ink, dash in places]


def _legend(figure: Figure, axes: Axes, below: float) -> None:
    if below:
        figure.legend(
            *axes.get_legend_handles_labels(), frameon=False, fontsize=7, loc="lower left", ncols=2, columnspacing=1
        )
    else:
        axes.legend(frameon=False, fontsize=7.5, loc="best")


def _mean(columns: Sequence[Sequence[float]]) -> list[float]:
    """The mean over seeds, as far as all of them were trained."""
    return [sum(values) / len(values) for values in zip(*columns, strict=False)]


def _spread(lines: Sequence[TrainedLine], axis: str) -> float:
    """How many times the costliest training costs what the cheapest does."""

    def end(curve: LearningCurve) -> float:
        return float(getattr(curve, axis)[-1])

    ends = [end(curve) for line in lines for curve in line.curves]
    return max(ends) / max(min(ends), 1e-12)
