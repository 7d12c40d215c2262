"""Pictures of a reproduction: accuracy against ε, accuracy by round, traffic and time, and the devices' importance."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vflpriv.common.formatting import NOTHING, epsilon, percent, shorten
from vflpriv.experiments.reproduce.result import Guarantee, Reproduction, TrainedLine
from vflpriv.render.document import Plot
from vflpriv.render.plots.chart import Axis, Chart, decades, nice_ticks, shares

__all__ = ["guarantee_plot", "importance_plots", "learning_plots", "reproduction_plots"]

_INKS = ("claimed", "worst-case", "crafted", "rigorous", "paper", "natural")
_MUCH = 100
"""Costs that differ by more than this factor are drawn on a logarithmic axis."""


def reproduction_plots(report: Reproduction) -> list[Plot]:
    """Accuracy against claimed and accounted ε where rows have them, learning curves, importance."""
    guarantees = guarantee_plot(report)
    return [*([] if guarantees is None else [guarantees]), *learning_plots(report), *importance_plots(report)]


def _ink(number: int) -> str:
    return _INKS[number % len(_INKS)]


def _of_accuracy(lowest: float, highest: float) -> Axis:
    """Test accuracy, in percent, with room around."""
    margin = 0.06 * (highest - lowest) or 0.05
    return shares(max(0.0, lowest - margin), min(1.0, highest + margin), "test accuracy")


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
    edge = max(finite) * (10 if len(finite) < 2 * len(lines) else 1)
    reached = [line.accuracy for line, _ in lines]
    chart = Chart(decades(min(finite), edge, "ε"), _of_accuracy(min(reached), max(reached)), width=461, height=230)
    engines = list(dict.fromkeys(line.engine for line, _ in lines))
    named = set[str]()
    for line, guarantee in lines:
        label = "" if line.engine in named else line.engine
        _mark(chart, line.accuracy, guarantee, _ink(engines.index(line.engine)), edge, label)
        named.add(line.engine)
    return chart.svg("Test accuracy against claimed and accounted ε", description)


def _mark(chart: Chart, height: float, guarantee: Guarantee, ink: str, edge: float, label: str) -> None:
    """The claimed and the accounted ε of one row; an infinite one lies at the edge."""
    infinite = math.isinf(guarantee.accounted)
    accounted = edge if infinite else guarantee.accounted
    chart.line([(guarantee.claimed, height), (accounted, height)], ink, width=0.9, opacity=0.6)
    chart.mark(guarantee.claimed, height, "circle", ink, size=1.4, hollow=True)
    chart.mark(accounted, height, "triangle" if infinite else "circle", ink, size=0.8, label=label)


# Accuracy by round, by traffic, and by simulated time -------------------------------------------------------------

_FEW = 7
"""So many rows have a colour each; more have one for each engine."""
_TITLE = 60
_THIN, _STEP = 1.4, 0.35
"""Where there are few rows the first ones are drawn below the others and wider, so that equal curves show as a rim."""
_DASHES = ("", "5 2.5", "1.5 2", "6 2 1.5 2", "8 1.5 1.5 1.5 1.5 1.5", "1 1", "11 4")
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
    curves = [
        (_mean([getattr(curve, axis) for curve in line.curves]), _mean([curve.accuracy for curve in line.curves]))
        for line in lines
    ]
    reached = [height for _, heights in curves for height in heights]
    reached += [] if target is None else [target / 100]
    across = _costs(lines, axis, [place for places, _ in curves for place in places])
    chart = Chart(across, _of_accuracy(min(reached), max(reached)), width=331, height=230)
    for number, (line, (ink, dashes)) in enumerate(zip(lines, _strokes(lines), strict=True)):
        width = _THIN + (0.0 if len(lines) > _FEW else _STEP * (len(lines) - 1 - number))
        points = list(zip(*curves[number], strict=True))
        chart.line(points, ink, width=round(width, 2), dashes=dashes, label=shorten(line.title, _TITLE))
    if target is not None:
        chart.line([(across.low, target / 100), (across.high, target / 100)], "frame", width=0.8, dashes="2 3")
    return chart.svg(f"Test accuracy by {_AXES[axis]}", description)


def _costs(lines: Sequence[TrainedLine], axis: str, places: Sequence[float]) -> Axis:
    """What trainings cost: logarithmic where they differ much."""
    if axis != "rounds" and _spread(lines, axis) > _MUCH and min(places) > 0:
        return decades(min(places), max(places), _AXES[axis])
    most = max(places)
    return Axis(low=0, high=most, name=_AXES[axis], ticks=nice_ticks(0, most, 5))


def _strokes(lines: Sequence[TrainedLine]) -> list[tuple[str, str]]:
    """Colour and dashes of each row: a colour of its own, or where there are too many one for each engine."""
    if len(lines) <= _FEW:
        places = [(number, number // len(_INKS)) for number in range(len(lines))]
    else:
        names = [line.engine for line in lines]
        engines = list(dict.fromkeys(names))
        places = [(engines.index(name), names[:number].count(name)) for number, name in enumerate(names)]
    return [(_ink(ink), _DASHES[dash % len(_DASHES)]) for ink, dash in places]


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
    width, top = _BARS / len(rows), 1.05 * max(norm for _, norms in rows for norm in norms) or 1.0
    across = Axis(low=-0.6, high=devices - 0.4, name="device", ticks=nice_ticks(0, devices - 1, 8, whole=True))
    up = Axis(low=0, high=top, name="norm of its head", ticks=nice_ticks(0, top, 5))
    chart = Chart(across, up, width=331, height=230)
    for number, (title, norms) in enumerate(rows):
        starts = [m - _BARS / 2 + number * width for m in range(len(norms))]
        bars = [(start, start + width, norm) for start, norm in zip(starts, norms, strict=True)]
        chart.bars(bars, _ink(number), label=shorten(title, _TITLE))
    return chart.svg("Importance of the devices", description)
