"""Small charts as hand-written SVG: two axes, lines, areas, bars and marks, and a legend below.

A page holds several for each claim. Drawn by matplotlib, those of 72 claims took 9 s and 6 MB; these take a tenth.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vflpriv.common.formatting import clean

__all__ = ["Axis", "Chart", "nice_ticks"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 48.0, 12.0, 10.0, 36.0
"""Room around the drawing, in points, as everything here: for numbers and names of the axes."""
_LINE = 14.4
"""Height of a line of the legend."""
_MARKS = {"circle": "M-3,0a3,3 0 1 0 6,0a3,3 0 1 0 -6,0z", "square": "M-3-3h6v6h-6z", "diamond": "M0-4L4,0L0,4L-4,0z"}
_MARKS["triangle"] = "M0-3.5L3.5,3H-3.5z"


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

    def __init__(self, across: Axis, up: Axis, *, width: float, height: float) -> None:
        self._across, self._up = across, up
        self._width, self._height = width, height
        self._parts: list[str] = []
        self._legend: list[tuple[str, str]] = []
        self._frame()

    def _x(self, value: float) -> float:
        return _LEFT + self._across.share(value) * (self._width - _LEFT - _RIGHT)

    def _y(self, value: float) -> float:
        return self._height - _BOTTOM - self._up.share(value) * (self._height - _TOP - _BOTTOM)

    def _frame(self) -> None:
        """Both axes with their ticks, thin lines across, and their names."""
        left, right, bottom, top = _LEFT, self._width - _RIGHT, self._height - _BOTTOM, _TOP
        grid = [f"M{_number(self._x(tick))},{top}V{bottom}" for tick in self._across.ticks]
        grid += [f"M{left},{_number(self._y(tick))}H{right}" for tick in self._up.ticks]
        self._path("".join(grid), _stroke("frame", 0.6, opacity=0.22))
        self._path(f"M{left},{top}V{bottom}H{right}", _stroke("frame", 0.8))
        for tick in self._across.ticks:
            self.text(self._across.text(tick), self._x(tick), bottom + 12, anchor="middle")
        for tick in self._up.ticks:
            self.text(self._up.text(tick), left - 5, self._y(tick) + 3.3, anchor="end")
        self.text(self._across.name, (left + right) / 2, bottom + 27, anchor="middle")
        middle = _number((top + bottom) / 2)
        turned = f'<text transform="translate(11,{middle})rotate(-90)" text-anchor="middle">'
        self._parts.append(f"{turned}{html.escape(clean(self._up.name))}</text>")

    def text(self, words: str, x: float, y: float, *, anchor: str = "start") -> None:
        """Words at a place of the picture."""
        where = f'x="{_number(x)}" y="{_number(y)}"'
        named = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._parts.append(f"<text {where}{named}>{html.escape(clean(words))}</text>")

    def _path(self, path: str, style: str) -> None:
        self._parts.append(f'<path d="{path}" style="{style}"/>')

    def _trace(self, points: Iterable[tuple[float, float]]) -> str:
        """A path through points, each given by its distance from the one before it, which takes fewer characters."""
        path, before = "", (math.nan, math.nan)
        for point in points:
            if any(map(math.isnan, point)):
                before = (math.nan, math.nan)
                continue
            x, y = round(self._x(point[0]), 1), round(self._y(point[1]), 1)
            first = math.isnan(before[0])
            step = (x, y) if first else (x - before[0], y - before[1])
            path += ("M" if first else "l") + ",".join(map(_number, step))
            before = (x, y)
        return path

    def _label(self, label: str, sample: str) -> None:
        if label:
            self._legend.append((label, sample))

    def line(
        self, points: Iterable[tuple[float, float]], colour: str, *, width: float = 1.8, dashes: str = "",
        opacity: float = 1.0, label: str = "",
    ) -> None:  # fmt: skip
        """A line through these points, with a gap where one is no number."""
        style = _stroke(colour, width, dashes=dashes, opacity=opacity)
        self._path(self._trace(points), style)
        self._label(label, f'<path d="M0,0H24" style="{style}"/>')

    def area(self, points: Sequence[tuple[float, float]], colour: str, *, opacity: float, label: str = "") -> None:
        """What lies inside the line through these points."""
        style = f"fill:{_ink(colour)};opacity:{opacity}"
        self._path(f"{self._trace(points)}z", style)
        self._label(label, f'<path d="M0-4h24v8h-24z" style="{style}"/>')

    def bars(self, bars: Iterable[tuple[float, float, float]], colour: str) -> None:
        """Bars from the lower end of the axis: where each begins and ends, and its height."""
        base = self._height - _BOTTOM
        path = "".join(
            f"M{_number(self._x(start))},{base}V{_number(self._y(top))}H{_number(self._x(end))}V{base}z"
            for start, end, top in bars
        )
        self._path(path, f"fill:{_ink(colour)}")

    def mark(self, x: float, y: float, kind: str, colour: str, *, label: str = "") -> None:
        """A mark at one point."""
        style = f"fill:{_ink(colour)}"
        shape = f'd="{_MARKS[kind]}" style="{style}"'
        self._parts.append(f'<path transform="translate({_number(self._x(x))},{_number(self._y(y))})" {shape}/>')
        self._label(label, f'<path transform="translate(12,0)" {shape}/>')

    def at(self, words: str, x: float, y: float, *, anchor: str) -> None:
        """Words beside a point of the chart."""
        self.text(words, self._x(x) + (-4 if anchor == "end" else 4), self._y(y) + 3, anchor=anchor)

    def svg(self, title: str, description: str) -> str:
        """The picture as one `<svg>` element with a title for those who cannot see it."""
        height = self._height + _LINE * len(self._legend)
        for place, (label, sample) in enumerate(self._legend):
            y = self._height + _LINE * (place + 0.5)
            self._parts.append(f'<g transform="translate(4,{_number(y)})">{sample}</g>')
            self.text(label, 34, y + 3.3)
        label = html.escape(clean(f"{title}. {description}"), quote=True)
        names = f"<title>{html.escape(clean(title))}</title>"
        look = 'style="font:9.5px system-ui,sans-serif;fill:currentColor"'
        start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_number(self._width)} {_number(height)}"'
        return f'{start} role="img" aria-label="{label}">{names}<g {look}>{"".join(self._parts)}</g></svg>\n'


def _ink(colour: str) -> str:
    """One of `COLOURS`, which the page sets for both colour schemes."""
    return f"var(--plot-{colour})"


def _stroke(colour: str, width: float, *, dashes: str = "", opacity: float = 1.0) -> str:
    dashed = f";stroke-dasharray:{dashes}" if dashes else ""
    faint = f";opacity:{opacity}" if opacity < 1 else ""
    return f"fill:none;stroke:{_ink(colour)};stroke-width:{width}{dashed}{faint}"


def _number(value: float) -> str:
    """A coordinate to a tenth of a point, which nobody sees."""
    return f"{value:.1f}".removesuffix(".0")
