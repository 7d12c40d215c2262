"""Pictures of a reproduction: accuracy against ε, accuracy by round, traffic and time, and the devices' importance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vflpriv.common.formatting import NOTHING, epsilon, percent, shorten
from vflpriv.experiments.reproduce.result import Guarantee, Reproduction, TrainedLine
from vflpriv.render.plots.svg import COLOURS, Plot, drawing, in_percent, logarithmic, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["guarantee_plot", "importance_plots", "learning_plots", "reproduction_plots"]

_INKS = tuple(COLOURS[name] for name in ("claimed", "worst-case", "crafted", "rigorous", "paper", "natural"))
_SMALL = _WIDTH, _HEIGHT = 4.6, 3.2
_WIDE = (6.4, 3.6)


def reproduction_plots(report: Reproduction) -> list[Plot]:
    """Accuracy against claimed and accounted ε where rows have them, learning curves, importance."""
    guarantees = guarantee_plot(report)
    return [*([] if guarantees is None else [guarantees]), *learning_plots(report), *importance_plots(report)]


def _ink(number: int) -> str:
    return _INKS[number % len(_INKS)]


def _of_accuracy(axes: Axes, label: str) -> None:
    """Test accuracy, in percent, against what the label says."""
    axes.set_xlabel(label)
    axes.set_ylabel("test accuracy")
    in_percent(axes)
    axes.grid(color=COLOURS["frame"], alpha=0.22, lw=0.6)


# Accuracy against ε: at the ε that a paper claims, and at the one that is accounted ------------------------------

_GUARANTEE_CAPTION = (
    "Test accuracy, mean over seeds, against ε. Hollow: the claimed ε; filled: the accounted one of the same training, "
    "at the right edge where it is infinite."
)
_Protected = tuple[TrainedLine, Guarantee]


def guarantee_plot(report: Reproduction) -> Plot | None:
    """Two joined marks for each row with a guarantee; None where there is no such row."""
    lines = [(line, line.guarantee) for line in report.lines if line.guarantee is not None]
    if not lines:
        return None
    rows = [(line.title, percent(line.accuracy), epsilon(g.claimed), epsilon(g.accounted)) for line, g in lines]
    described = "; ".join(f"{title}: {reached} at claimed {ours}, accounted {a}" for title, reached, ours, a in rows)
    return Plot(
        svg=_drawn_guarantees(lines, f"{described}."),
        caption=_GUARANTEE_CAPTION,
        header=("Row", "Test accuracy", "Claimed ε", "Accounted ε ≤"),
        rows=rows,
    )


def _drawn_guarantees(lines: Sequence[_Protected], description: str) -> str:
    finite = [value for _, g in lines for value in (g.claimed, g.accounted) if math.isfinite(value)]
    edge = 10 * max(finite)
    with drawing(*_WIDE) as (figure, axes):
        engines = list(dict.fromkeys(line.engine for line, _ in lines))
        for line, guarantee in lines:
            _mark(axes, line.accuracy, guarantee, _ink(engines.index(line.engine)), edge)
        for number, engine in enumerate(engines):
            axes.plot([], [], "o", color=_ink(number), label=engine)
        axes.plot([], [], "o", mfc="none", color=COLOURS["frame"], label="claimed ε")
        axes.plot([], [], "o", color=COLOURS["frame"], label="accounted ε")
        logarithmic(axes)
        _of_accuracy(axes, "ε")
        axes.legend(frameon=False, fontsize=8, loc="best")
        return svg(figure, "Test accuracy against claimed and accounted ε", description, "guarantees")


def _mark(axes: Axes, height: float, guarantee: Guarantee, ink: str, edge: float) -> None:
    """The claimed and the accounted ε of one row; an infinite one lies at the edge."""
    infinite = math.isinf(guarantee.accounted)
    accounted = edge if infinite else guarantee.accounted
    axes.plot([guarantee.claimed, accounted], [height, height], color=ink, lw=0.9, alpha=0.6)
    axes.plot(guarantee.claimed, height, "o", mfc="none", color=ink, ms=7)
    axes.plot(accounted, height, ">" if infinite else "o", color=ink, ms=5)


# Accuracy by round, by traffic, and by simulated time -------------------------------------------------------------

_INSIDE = 7
"""So many rows have their legend inside the plot; more have it below, one line of this height for two rows."""
_LEGEND_LINE = 0.17
_TITLE = 34
_THIN, _STEP = 1.4, 0.35
"""Where there are few rows the first ones are drawn below the others and wider, so that equal curves show as a rim."""
_DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (9, 3)))
_AXES = {
    "rounds": "rounds",
    "megabytes": "MB on the wire, all devices",
    "seconds": "simulated seconds",
}


def learning_plots(report: Reproduction) -> list[Plot]:
    """One plot for each thing that trainings counted, of those that did."""
    counted = {axis: [line for line in report.lines if all(getattr(c, axis) for c in line.curves)] for axis in _AXES}
    return [_learning_plot(lines, axis, report.target) for axis, lines in counted.items() if lines]


def _learning_plot(lines: Sequence[TrainedLine], axis: str, target: float | None) -> Plot:
    rows = [(line.title, *_ends(line, axis)) for line in lines]
    described = "; ".join(f"{title} reaches {accuracy} after {cost}" for title, accuracy, cost in rows)
    return Plot(
        svg=_drawn_curves(lines, axis, target, f"Test accuracy by {_AXES[axis]}: {described}."),
        caption=f"Test accuracy, mean over seeds, against {_AXES[axis]}.",
        header=("Row", "Accuracy", _AXES[axis][0].upper() + _AXES[axis][1:]),
        rows=rows,
    )


def _ends(line: TrainedLine, axis: str) -> tuple[str, str]:
    costs = [getattr(curve, axis)[curve.place] for curve in line.curves]
    return percent(line.accuracy), f"{sum(costs) / len(costs):,.4g}"


def _drawn_curves(lines: Sequence[TrainedLine], axis: str, target: float | None, description: str) -> str:
    below = 0.0 if len(lines) <= _INSIDE else _LEGEND_LINE * math.ceil(len(lines) / 2) + 0.1
    height = _HEIGHT + below
    with drawing(_WIDTH, height) as (figure, axes):
        axes.set_position((0.75 / _WIDTH, (0.5 + below) / height, (_WIDTH - 0.9) / _WIDTH, (_HEIGHT - 0.65) / height))
        for number, (line, (ink, dashes)) in enumerate(zip(lines, _strokes(lines), strict=True)):
            places = _mean([getattr(curve, axis) for curve in line.curves])
            heights = _mean([curve.accuracy for curve in line.curves])
            width = _THIN + (0.0 if below else _STEP * (len(lines) - 1 - number))
            axes.plot(places, heights, lw=width, ls=dashes, color=ink, label=shorten(line.title, _TITLE))
        if target is not None:
            axes.axhline(target / 100, color=COLOURS["frame"], lw=0.8, ls=(0, (2, 3)))
        if axis != "rounds" and _spread(lines, axis) > 100:
            logarithmic(axes)
        else:
            axes.locator_params(axis="x", nbins=5)
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.6g}")
        _of_accuracy(axes, _AXES[axis])
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
    return [(_ink(ink), _DASHES[dash % len(_DASHES)]) for ink, dash in places]


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
    ends = [float(getattr(curve, axis)[-1]) for line in lines for curve in line.curves]
    return max(ends) / max(min(ends), 1e-12)


# The importance of every device, as the norm of its head ----------------------------------------------------------

_IMPORTANCE_CAPTION = "Norm of each device's head at the end, mean over seeds. Devices are numbered from 0."
_BARS = 0.8
"""Share of a device's place on the axis that its bars take."""


def importance_plots(report: Reproduction) -> list[Plot]:
    """One plot of all rows whose engine has a head for each device; none where no engine has."""
    headed = [line for line in report.lines if all(curve.importance for curve in line.curves)]
    rows = [(line.title, _mean([curve.importance for curve in line.curves])) for line in headed]
    if not rows:
        return []
    devices = max(len(norms) for _, norms in rows)
    largest = ((title, max(range(len(norms)), key=norms.__getitem__)) for title, norms in rows)
    described = "; ".join(f"{title} is largest at device {m}" for title, m in largest)
    return [
        Plot(
            svg=_drawn_importance(rows, devices, f"Norm of each device's head: {described}."),
            caption=" ".join([_IMPORTANCE_CAPTION, *_caveats(report)]),
            header=("Row", *(f"Device {m}" for m in range(devices))),
            rows=[(title, *_listed(norms, devices)) for title, norms in rows],
        )
    ]


def _listed(norms: Sequence[float], devices: int) -> list[str]:
    """The norm of each device, and nothing for devices that this row does not have."""
    return [f"{norm:.3f}" for norm in norms] + [NOTHING] * (devices - len(norms))


def _caveats(report: Reproduction) -> list[str]:
    """One for each row in whose trainings the norms show the random start."""
    first = {
        line.title: next((c.importance_caveat for c in line.curves if c.importance_caveat), "") for line in report.lines
    }
    return [f"{title}: {caveat}" for title, caveat in first.items() if caveat]


def _drawn_importance(rows: Sequence[tuple[str, Sequence[float]]], devices: int, description: str) -> str:
    width = _BARS / len(rows)
    with drawing(*_SMALL) as (figure, axes):
        for number, (title, norms) in enumerate(rows):
            places = [m - _BARS / 2 + (number + 0.5) * width for m in range(len(norms))]
            axes.bar(places, norms, width=width, color=_ink(number), label=shorten(title, 28))
        axes.set_xticks(range(devices))
        axes.set_xlabel("device")
        axes.set_ylabel("norm of its head")
        axes.legend(frameon=False, fontsize=8, loc="lower center")
        return svg(figure, "Importance of the devices", description, "importance")
