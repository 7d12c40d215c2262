"""The frontier of one system: leakage of the best attack against test accuracy, for every defence and strength."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from vflpriv.common.formatting import NOTHING, epsilon, interval, percent
from vflpriv.render.document import Plot
from vflpriv.render.plots.chart import Axis, Chart, nice_ticks, shares
from vflpriv.render.shared import leak_points
from vflpriv.report.defences import DefenceFrontier, DefencePoint

__all__ = ["PointMark", "defence_plot", "point_mark"]

_NEAR = 10.0
"""Numbers of points that are nearer than this are written beside each other."""


def defence_plot(frontier: DefenceFrontier) -> Plot:
    """The picture, with the advice as its caption, and the figures of all defences."""
    return Plot(
        svg=_drawn(frontier),
        caption=frontier.advice,
        header=("Defence", "Test accuracy", "Interval", "Leakage", "Interval", "Best attack", "Label ε ≤", "Dominated"),
        rows=[_row(p) for p in frontier.points],
    )


def _row(p: DefencePoint) -> tuple[str, ...]:
    accuracy = (percent(p.accuracy), interval(p.accuracy_low, p.accuracy_high))
    leakage = (leak_points(p.leakage), f"{leak_points(p.low)} to {leak_points(p.high)}")
    promised = NOTHING if p.epsilon is None else epsilon(p.epsilon)
    return (p.defence, *accuracy, *leakage, f"{p.attack}, {p.adversary}", promised, "yes" if p.dominated else "no")


def _drawn(frontier: DefenceFrontier) -> str:
    named = frontier.named
    chart = _framed(frontier.points)
    for p in frontier.points:
        if p not in named:
            chart.mark(p.leakage, p.accuracy, "circle", "natural", size=0.6)
    _staircase(chart, [p for p in named if not p.dominated])
    for p in named:
        mark = point_mark(frontier, p)
        chart.line([(p.low, p.accuracy), (p.high, p.accuracy)], mark.colour, width=0.9, opacity=0.4)
        chart.line([(p.leakage, p.accuracy_low), (p.leakage, p.accuracy_high)], mark.colour, width=0.9, opacity=0.4)
        chart.mark(p.leakage, p.accuracy, mark.shape, mark.colour)
    _numbers(chart, named)
    return chart.svg(f"Privacy and utility of {frontier.system}", _description(frontier))


class PointMark(NamedTuple):
    """How a point is drawn, and its symbol in the list below the plot."""

    colour: str
    shape: str
    symbol: str


def point_mark(frontier: DefenceFrontier, p: DefencePoint) -> PointMark:
    """The mark of a numbered point: what to take, the system without a defence, any other defence."""
    if p == frontier.advised:
        return PointMark("crafted", "diamond", "◆")
    return PointMark("worst-case", "square", "■") if p == frontier.undefended else PointMark("claimed", "circle", "●")


def _staircase(chart: Chart, points: Sequence[DefencePoint]) -> None:
    """The frontier: at each leakage, the best accuracy of any defence that leaks at most as much."""
    rising = sorted(points, key=lambda p: (p.leakage, p.accuracy))
    steps = [(p.leakage, height) for before, p in pairwise(rising) for height in (before.accuracy, p.accuracy)]
    if steps:
        chart.line([(rising[0].leakage, rising[0].accuracy), *steps], "claimed", width=1, dashes="4 2", opacity=0.6)


def _numbers(chart: Chart, points: Sequence[DefencePoint]) -> None:
    """The number of each point above it, where no other point lies; those of neighbours side by side."""
    written: list[tuple[DefencePoint, list[str]]] = []
    for number, p in enumerate(points, start=1):
        near = next((texts for q, texts in written if chart.apart(_place(p), _place(q)) < _NEAR), None)
        if near is None:
            written.append((p, [str(number)]))
        else:
            near.append(str(number))
    for p, texts in written:
        chart.at(" ".join(texts), *_place(p), anchor="end", above=6)


def _place(p: DefencePoint) -> tuple[float, float]:
    return p.leakage, p.accuracy


def _framed(points: Sequence[DefencePoint]) -> Chart:
    """Axes that hold every point: leakage in percentage points, accuracy in percent."""
    low, high = min(p.accuracy for p in points), max(p.accuracy for p in points)
    margin = max(0.02, 0.12 * (high - low))
    most = max(0.1, *(p.leakage for p in points))
    least = min(0.0, *(p.leakage for p in points))
    left, right = least - 0.1 * (most - least), most + 0.06 * (most - least)
    across = Axis(
        low=left,
        high=right,
        name="leakage of the best attack, points",
        ticks=nice_ticks(left, right, 6),
        text=lambda points: f"{100 * points:.4g}",
    )
    return Chart(across, shares(low - margin, high + margin, "test accuracy"), width=281, height=205)


def _description(frontier: DefenceFrontier) -> str:
    """What the plot shows, for screen readers."""
    shown = "; ".join(
        f"{p.defence} leaks {leak_points(p.leakage)} points at an accuracy of {percent(p.accuracy)}"
        for p in frontier.named
    )
    hidden = sum(p.dominated for p in frontier.points)
    return f"{shown}. {hidden} of {len(frontier.points)} defences are dominated by others. {frontier.advice}"
