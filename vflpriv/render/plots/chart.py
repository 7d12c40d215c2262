"""Small charts as hand-written SVG: two axes, lines, areas, bars and marks, and a legend below.

A page holds several for each claim. Drawn by matplotlib, those of 72 claims took 9 s and 6 MB; these take a tenth.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vflpriv.common.formatting import clean

__all__ = ["Axis", "Chart", "nice_ticks"]

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
        where = f'x="{_number(x)}" y="{_number(y)}"'
        named = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._parts.append(f"<text {where}{named}>{html.escape(clean(text))}</text>")

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

    def bars(self, bars: Iterable[tuple[float, float, float]], colour: str) -> None:
        """Bars from the lower end of the axis: where each begins and ends, and its height."""
        base = _number(self._height - _BOTTOM)
        path = "".join(
            f"M{_number(self._x(start))},{base}V{_number(self._y(top))}H{_number(self._x(end))}V{base}z"
            for start, end, top in bars
        )
        self._path(path, f'class="{colour}"')

    def mark(self, x: float, y: float, kind: str, colour: str, *, label: str = "") -> None:
        """A mark at one point."""
        shape = f'class="{colour}" d="{_MARKS[kind]}"'
        self._parts.append(f'<path transform="translate({_number(self._x(x))},{_number(self._y(y))})" {shape}/>')
        self._label(label, lambda y: f'<path transform="translate(16,{_number(y)})" {shape}/>')

    def at(self, text: str, x: float, y: float, *, anchor: str) -> None:
        """Words beside a point of the chart."""
        self.text(text, self._x(x) + (-4 if anchor == "end" else 4), self._y(y) + 3, anchor=anchor)

    def svg(self, title: str, description: str) -> str:
        """The picture as one `<svg>` element with a title for those who cannot see it."""
        height = self._height + _LINE * len(self._legend)
        for place, (label, sample) in enumerate(self._legend):
            y = self._height + _LINE * (place + 0.5)
            self._parts.append(sample(y))
            self.text(label, 34, y + 3.3)
        label = html.escape(clean(f"{title}. {description}"), quote=True)
        names = f"<title>{html.escape(clean(title))}</title>"
        size = f"0 0 {_number(self._width)} {_number(height)}"
        start = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="{size}" role="img"'
        return f'{start} aria-label="{label}">{names}{"".join(self._parts)}</svg>\n'


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


def _number(value: float) -> str:
    """A coordinate to a tenth of a point, which nobody sees."""
    return f"{value:.1f}".removesuffix(".0")
