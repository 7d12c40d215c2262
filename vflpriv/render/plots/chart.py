"""Charts as hand-written SVG: two axes, lines, areas, bars and marks, and a legend below.

A page holds several for each claim. Drawn by matplotlib, those of 72 claims took 9 s and 6 MB; these take a tenth. The
style sheet of a page has their colours, in both colour schemes; `alone` makes a file of one.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vflpriv.common.formatting import clean, power

__all__ = ["COLOURS", "Axis", "Chart", "alone", "decades", "nice_ticks", "shares", "sheet"]

COLOURS = {
    "frame": "#7f7f81",
    "claimed": "#0072b2",
    "paper": "#b37400",
    "rigorous": "#a85a8a",
    "worst-case": "#d04a00",
    "crafted": "#00855f",
    "natural": "#5f6b76",
}
"""Okabe and Ito's hues, darkened until each has a contrast of 3:1 on white."""

_RIGHT, _TOP, _BOTTOM = 12.0, 10.0, 36.0
"""Room around the drawing, in points, as everything here: for numbers and names of the axes."""
_UNSEEN = 0.15
"""A distance that nobody sees."""
_LINE = 14.4
"""Height of a line of the legend."""
_MARKS = {"circle": "M-3,0a3,3 0 1 0 6,0a3,3 0 1 0 -6,0z", "square": "M-3-3h6v6h-6z", "diamond": "M0-4L4,0L0,4L-4,0z"}
_MARKS |= {"triangle": "M0-3.5L3.5,3H-3.5z", "cross": "M-3-2L-2-3L0-1L2-3L3-2L1,0L3,2L2,3L0,1L-2,3L-3,2L-1,0z"}


def nice_ticks(low: float, high: float, most: int, *, whole: bool = False) -> list[float]:
    """At most so many round numbers between two ends, both of which may be among them.

    >>> nice_ticks(0, 1122, 5), nice_ticks(2.61, 2.93, 4), nice_ticks(0, 3, 5, whole=True)
    ([0.0, 500.0, 1000.0], [2.7, 2.8, 2.9], [0.0, 1.0, 2.0, 3.0])
    """
    span = high - low
    if not span > 0:
        return [low]
    step = 10.0 ** math.floor(math.log10(span))
    sizes = [step * factor for factor in (0.1, 0.2, 0.5, 1, 2, 5, 10)]
    for size in (max(1.0, round(size)) if whole else size for size in sizes):
        first, last = math.ceil(low / size - 1e-9), math.floor(high / size + 1e-9)
        if last - first < most:
            return [float(f"{n * size:.12g}") for n in range(first, last + 1)]
    return [low, high]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: its ends, its name, and the places and texts of its ticks."""

    low: float
    high: float
    name: str
    ticks: Sequence[float]
    text: Callable[[float], str] = lambda value: f"{value:,.6g}"
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """How far along the axis a value lies; 0 and 1 are its ends."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def shares(low: float, high: float, name: str) -> Axis:
    """An axis of shares whose numbers are exactly where they stand: no 87.5 % that reads 88 %."""
    ticks = nice_ticks(low, high, 6)
    return Axis(low=low, high=high, name=name, ticks=ticks, text=lambda share: f"{100 * share:.4g} %")


def decades(low: float, high: float, name: str) -> Axis:
    """A logarithmic axis of whole powers of ten that holds both numbers."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    ticks = [10.0**k for k in range(first, last + 1, max(1, (last - first + 4) // 5))]
    text = {tick: power(math.log10(tick)) for tick in ticks}
    return Axis(low=10.0**first, high=10.0**last, name=name, ticks=ticks, text=text.__getitem__, logarithmic=True)


class Chart:
    """A drawing between two axes, to which lines, areas, bars and marks are added."""

    def __init__(self, across: Axis, up: Axis, *, width: float, height: float, left: float = 48.0) -> None:
        """`left` is the room for the numbers and the name of the axis that goes up."""
        self._across, self._up = across, up
        self._width, self._height, self._left = width, height, left
        self._parts: list[str] = []
        self._legend: list[tuple[str, Callable[[float], str]]] = []
        self._frame()

    def _x(self, value: float) -> float:
        return self._left + self._across.share(value) * (self._width - self._left - _RIGHT)

    def _y(self, value: float) -> float:
        return self._height - _BOTTOM - self._up.share(value) * (self._height - _TOP - _BOTTOM)

    def _frame(self) -> None:
        """Both axes with their ticks, thin lines across, and their names."""
        left, right, bottom, top = self._left, self._width - _RIGHT, self._height - _BOTTOM, _TOP
        ends = [_number(end) for end in (left, right, bottom, top)]
        grid = [f"M{_number(self._x(tick))},{ends[3]}V{ends[2]}" for tick in self._across.ticks]
        grid += [f"M{ends[0]},{_number(self._y(tick))}H{ends[1]}" for tick in self._up.ticks]
        self._parts.append('<g class="axes">')
        self._path("".join(grid), _line("frame", 0.6, opacity=0.22))
        self._path(f"M{ends[0]},{ends[3]}V{ends[2]}H{ends[1]}", _line("frame", 0.8))
        self._parts.append('<g text-anchor="middle">')
        for tick in self._across.ticks:
            self.text(self._across.text(tick), self._x(tick), bottom + 12)
        self.text(self._across.name, (left + right) / 2, bottom + 27)
        turned = f'<text transform="translate(11,{_number((top + bottom) / 2)})rotate(-90)">'
        self._parts.append(f'{turned}{html.escape(clean(self._up.name))}</text></g><g text-anchor="end">')
        for tick in self._up.ticks:
            self.text(self._up.text(tick), left - 5, self._y(tick) + 3.3)
        self._parts.append("</g></g>")

    def text(self, text: str, x: float, y: float, *, anchor: str = "start") -> None:
        """Words at a place of the picture."""
        self._parts.append(_text(text, x, y, anchor))

    def _path(self, path: str, look: str) -> None:
        self._parts.append(f'<path {look} d="{path}"/>')

    def _trace(self, points: Iterable[tuple[float, float]]) -> str:
        """A path through points, each given by its distance from the one before it, which takes fewer characters."""
        path, run = "", list[tuple[float, float]]()
        for x, y in (*points, (math.nan, math.nan)):
            if not (math.isnan(x) or math.isnan(y)):
                run.append((round(self._x(x), 1), round(self._y(y), 1)))
            elif run:
                kept = _without_straight_ones(run)
                path += "M" + ",".join(map(_number, kept[0]))
                path += "".join(f"l{_number(u - s)},{_number(v - t)}" for (s, t), (u, v) in pairwise(kept))
                run = []
        return path

    def _label(self, label: str, sample: Callable[[float], str]) -> None:
        """A line of the legend; its sample is drawn at the height that it is given."""
        if label:
            self._legend.append((label, sample))

    def line(
        self, points: Iterable[tuple[float, float]], colour: str, *, width: float = 1.8, dashes: str = "",
        opacity: float = 1.0, label: str = "",
    ) -> None:  # fmt: skip
        """A line through these points, with a gap where one is no number."""
        look = _line(colour, width, dashes=dashes, opacity=opacity)
        self._path(self._trace(points), look)
        self._label(label, lambda y: f'<path {look} d="M4,{_number(y)}h24"/>')

    def area(self, points: Sequence[tuple[float, float]], colour: str, *, opacity: float, label: str = "") -> None:
        """What lies inside the line through these points."""
        look = f'class="{colour}" opacity="{opacity}"'
        self._path(f"{self._trace(points)}z", look)
        self._label(label, lambda y: f'<path {look} d="M4,{_number(y - 4)}h24v8h-24z"/>')

    def bars(self, bars: Iterable[tuple[float, float, float]], colour: str, *, label: str = "") -> None:
        """Bars from the lower end of the axis: where each begins and ends, and its height."""
        base = _number(self._height - _BOTTOM)
        path = "".join(
            f"M{_number(self._x(start))},{base}V{_number(self._y(top))}H{_number(self._x(end))}V{base}z"
            for start, end, top in bars
        )
        self._path(path, f'class="{colour}"')
        self._label(label, lambda y: f'<path class="{colour}" d="M4,{_number(y - 4)}h24v8h-24z"/>')

    def mark(
        self, x: float, y: float, kind: str, colour: str, *, size: float = 1.0, hollow: bool = False, label: str = ""
    ) -> None:
        """A mark at one point, so many times as large as usual."""
        look = _line(colour, 1.6) if hollow else f'class="{colour}"'
        scale, shape = "" if size == 1 else f"scale({size})", f'{look} d="{_MARKS[kind]}"'
        where = f"translate({_number(self._x(x))},{_number(self._y(y))}){scale}"
        self._parts.append(f'<path transform="{where}" {shape}/>')
        self._label(label, lambda y: f'<path transform="translate(16,{_number(y)})" {shape}/>')

    def at(self, text: str, x: float, y: float, *, anchor: str, above: float = 0.0) -> None:
        """Words beside a point of the chart, or so far above it."""
        beside = {"start": 4, "end": -4}.get(anchor, 0)
        self.text(text, self._x(x) + beside, self._y(y) + 3 - above, anchor=anchor)

    def apart(self, first: tuple[float, float], second: tuple[float, float]) -> float:
        """How far two points of the chart lie from each other."""
        return math.dist(*((self._x(x), self._y(y)) for x, y in (first, second)))

    def note(self, lines: Sequence[str]) -> None:
        """Words in the middle, in place of a curve."""
        middle, height = (self._left + self._width - _RIGHT) / 2, (self._height - _BOTTOM + _TOP) / 2
        for place, line in enumerate(lines):
            self.text(line, middle, height + _LINE * (place - len(lines) / 2), anchor="middle")

    def drawn(self) -> tuple[str, float, float]:
        """What is drawn, and the width and height that it takes."""
        parts = self._parts.copy()
        for place, (label, sample) in enumerate(self._legend):
            y = self._height + _LINE * (place + 0.5)
            parts += [sample(y), _text(label, 34, y + 3.3)]
        return "".join(parts), self._width, self._height + _LINE * len(self._legend)

    def svg(self, title: str, description: str) -> str:
        """The picture as one `<svg>` element with a title for those who cannot see it."""
        return _element(*self.drawn(), title, description)


def sheet(charts: Sequence[Chart], heading: Sequence[str], *, columns: int) -> str:
    """Several charts as one picture, in rows, under lines of text."""
    heights = [_LINE * (place + 0.8) for place in range(len(heading))]
    parts = [_text(line, 4, height) for line, height in zip(heading, heights, strict=True)]
    top, right = _LINE * (len(heading) + 0.5), 0.0
    for start in range(0, len(charts), columns):
        left, row = 0.0, [chart.drawn() for chart in charts[start : start + columns]]
        for drawn, width, _ in row:
            parts.append(f'<g transform="translate({_number(left)},{_number(top)})">{drawn}</g>')
            left += width
        top, right = top + max(height for _, _, height in row) + _LINE, max(right, left)
    return _element("".join(parts), right, top, heading[0], " ".join(heading[1:]))


def _element(drawn: str, width: float, height: float, title: str, description: str) -> str:
    label = html.escape(clean(f"{title}. {description}"), quote=True)
    names, size = f"<title>{html.escape(clean(title))}</title>", f"0 0 {_number(width)} {_number(height)}"
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="{size}" role="img"'
    return f'{start} aria-label="{label}">{names}{drawn}</svg>\n'


def alone(svg: str) -> str:
    """A picture as a file, which no page's style sheet reaches: with colours of its own, on white."""
    rules = "".join(f".{name}{{fill:{ink}}}.line.{name}{{fill:none;stroke:{ink}}}" for name, ink in COLOURS.items())
    start, drawn = svg.split(">", 1)
    style = f"<style>.chart{{font:9.5px system-ui,sans-serif;background:#fff}}{rules}</style>"
    return f"{start}>{style}{drawn}"


def _without_straight_ones(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a line without those that are nearer than a line's rounding to the line through the others."""
    (s, t), (u, v) = points[0], points[-1]
    length = math.hypot(u - s, v - t)
    # Distances from the line through both ends; from the first end, where that is the last one, too.
    apart = [
        abs((x - s) * (v - t) - (y - t) * (u - s)) / length if length else math.hypot(x - s, y - t) for x, y in points
    ]
    farthest = max(range(len(points)), key=apart.__getitem__)
    if apart[farthest] <= _UNSEEN:
        return [points[0], points[-1]] if length or len(points) == 1 else [points[0]]
    return [*_without_straight_ones(points[: farthest + 1])[:-1], *_without_straight_ones(points[farthest:])]


def _line(colour: str, width: float, *, dashes: str = "", opacity: float = 1.0) -> str:
    """The look of a line; the page's style sheet has the colours, in both colour schemes."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    faint = f' opacity="{opacity}"' if opacity < 1 else ""
    return f'class="line {colour}" stroke-width="{width}"{dashed}{faint}'


def _text(text: str, x: float, y: float, anchor: str = "start") -> str:
    named = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{_number(x)}" y="{_number(y)}"{named}>{html.escape(clean(text))}</text>'


def _number(value: float) -> str:
    """A coordinate to a tenth of a point, which nobody sees."""
    return f"{value:.1f}".removesuffix(".0")
