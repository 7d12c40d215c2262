"""The frontier of one system: leakage of the best attack against test accuracy, for every defence and strength."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from vflpriv.common.formatting import NOTHING, epsilon, interval, percent
from vflpriv.render.plots.svg import COLOURS, Plot, drawing, in_percent, svg
from vflpriv.render.shared import leak_points
from vflpriv.report.defences import DefenceFrontier, DefencePoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PointMark", "defence_plot", "point_mark"]

_SIZE = (3.7, 2.7)
"""Inches of the figure: text is about as large as the page's small print."""
_NEAR = 0.045
"""Numbers of points that are nearer than this, as shares of both axes, are written beside each other."""


def defence_plot(frontier: DefenceFrontier, *, prefix: str = "") -> Plot:
    """The picture, with the advice as its caption, and the figures of all defences."""
    return Plot(
        svg=_drawn(frontier, prefix),
        caption=frontier.advice,
        header=("Defence", "Test accuracy", "Interval", "Leakage", "Interval", "Best attack", "Label ε ≤", "Dominated"),
        rows=[_row(p) for p in frontier.points],
    )


def _row(p: DefencePoint) -> tuple[str, ...]:
    accuracy = (percent(p.accuracy), interval(p.accuracy_low, p.accuracy_high))
    leakage = (leak_points(p.leakage), f"{leak_points(p.low)} to {leak_points(p.high)}")
    promised = NOTHING if p.epsilon is None else epsilon(p.epsilon)
    return (p.defence, *accuracy, *leakage, f"{p.attack}, {p.adversary}", promised, "yes" if p.dominated else "no")


def _drawn(frontier: DefenceFrontier, prefix: str) -> str:
    named = frontier.named
    with drawing(*_SIZE) as (figure, axes):
        _frame(axes, frontier.points)
        grey = [(p.leakage, p.accuracy) for p in frontier.points if p not in named]
        look: dict[str, Any] = {"ls": "none", "marker": "o", "mew": 0, "ms": 4, "alpha": 0.55}
        axes.plot([x for x, _ in grey], [y for _, y in grey], color=COLOURS["natural"], **look)
        _staircase(axes, [p for p in named if not p.dominated])
        for p in named:
            mark = point_mark(frontier, p)
            ink = COLOURS[mark.colour]
            axes.plot([p.low, p.high], [p.accuracy] * 2, color=ink, lw=0.9, alpha=0.4)
            axes.plot([p.leakage] * 2, [p.accuracy_low, p.accuracy_high], color=ink, lw=0.9, alpha=0.4)
            axes.plot(p.leakage, p.accuracy, mark.marker, ms=7, mew=0, ls="none", color=ink)
        _numbers(axes, named)
        return svg(figure, f"Privacy and utility of {frontier.system}", _description(frontier), prefix)


class PointMark(NamedTuple):
    """How a point is drawn, and its symbol in the list below the plot."""

    colour: str
    marker: str
    symbol: str


def point_mark(frontier: DefenceFrontier, p: DefencePoint) -> PointMark:
    """The mark of a numbered point: what to take, the system without a defence, any other defence."""
    if p == frontier.advised:
        return PointMark("crafted", "D", "◆")
    return PointMark("worst-case", "s", "■") if p == frontier.undefended else PointMark("claimed", "o", "●")


def _staircase(axes: Axes, points: Sequence[DefencePoint]) -> None:
    """The frontier: at each leakage, the best accuracy of any defence that leaks at most as much."""
    rising = sorted(points, key=lambda p: (p.leakage, p.accuracy))
    if len(rising) > 1:
        places = [p.leakage for p in rising], [p.accuracy for p in rising]
        axes.step(*places, where="post", color=COLOURS["claimed"], lw=1, alpha=0.6, ls=(0, (4, 2)))


def _numbers(axes: Axes, points: Sequence[DefencePoint]) -> None:
    """The number of each point above it, where no other point lies; those of neighbours side by side."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    written: list[tuple[float, float, list[str]]] = []
    for number, p in enumerate(points, start=1):
        x, y = (p.leakage - left) / (right - left), (p.accuracy - bottom) / (top - bottom)
        near = next((texts for u, v, texts in written if math.dist((x, y), (u, v)) < _NEAR), None)
        if near is None:
            written.append((x, y, [str(number)]))
        else:
            near.append(str(number))
    for x, y, texts in written:
        place = (left + x * (right - left), bottom + y * (top - bottom))
        axes.annotate(" ".join(texts), place, xytext=(-5, 5), textcoords="offset points", ha="right", weight="bold")


def _frame(axes: Axes, points: Sequence[DefencePoint]) -> None:
    """Axes that hold every point: leakage in percentage points, accuracy in percent."""
    low, high = min(p.accuracy for p in points), max(p.accuracy for p in points)
    margin = max(0.02, 0.12 * (high - low))
    most = max(0.1, *(p.leakage for p in points))
    least = min(0.0, *(p.leakage for p in points))
    axes.set_xlim(least - 0.1 * (most - least), most + 0.06 * (most - least))
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlabel("leakage of the best attack, points")
    axes.set_ylabel("test accuracy")
    axes.xaxis.set_major_formatter(lambda x, _: f"{100 * x:.0f}")
    in_percent(axes)
    axes.grid(color=COLOURS["frame"], alpha=0.22, lw=0.6)


def _description(frontier: DefenceFrontier) -> str:
    """What the plot shows, for screen readers."""
    shown = "; ".join(
        f"{p.defence} leaks {leak_points(p.leakage)} points at an accuracy of {percent(p.accuracy)}"
        for p in frontier.named
    )
    hidden = sum(p.dominated for p in frontier.points)
    return f"{shown}. {hidden} of {len(frontier.points)} defences are dominated by others. {frontier.advice}"
