"""Accuracy against ε: what was reached on test records, and all candidates on validation records."""

from __future__ import annotations

from collections.abc import Sequence

from vflpriv.common.formatting import interval, percent, shorten
from vflpriv.experiments.frontier.result import Entry, FrontierReport
from vflpriv.render.document import Plot
from vflpriv.render.plots.chart import Axis, Chart, shares

__all__ = ["frontier_plot"]

_INKS = ("claimed", "worst-case", "rigorous", "paper", "natural")
_DASHES = ("5 2.5", "1.5 2", "6 2 1.5 2")


def frontier_plot(report: FrontierReport) -> Plot | None:
    """The picture with the advice as its caption; None where no candidate keeps a budget."""
    if not report.points:
        return None
    rows = [(f"{p.epsilon:g}", p.title, percent(p.mean), interval(p.low, p.high)) for p in report.points]
    described = "; ".join(f"at ε = {epsilon} {title} reaches {accuracy}" for epsilon, title, accuracy, _ in rows)
    return Plot(
        svg=_drawn(report, f"{described}. {report.advice}"),
        caption=report.advice,
        header=("ε", "Use", "Test accuracy", "Interval"),
        rows=rows,
    )


def _drawn(report: FrontierReport, description: str) -> str:
    chart = _framed(report)
    for number, (title, entries) in enumerate(_candidates(report.entries).items()):
        ink, dashes = _INKS[number % len(_INKS)], _DASHES[number // len(_INKS) % len(_DASHES)]
        places = [(e.epsilon, e.validated or 0.0) for e in entries]
        chart.line(places, ink, width=1.1, dashes=dashes, opacity=0.75, label=shorten(title, 60))
        for x, y in places:
            chart.mark(x, y, "circle", ink, size=0.7)
    _draw_points(chart, report)
    return chart.svg(f"Accuracy against ε on {report.data.get('name', 'data')}", description)


def _framed(report: FrontierReport) -> Chart:
    """Axes that hold all that was tried and what is to be used."""
    tried = sorted({e.epsilon for e in report.entries} | {p.epsilon for p in report.points})
    heights = [e.validated or 0.0 for e in report.entries if e.tried]
    heights += [end for p in report.points for end in (p.low, p.mean, p.high)]
    margin = 0.12 * (max(heights) - min(heights)) or 0.05
    across = Axis(
        low=tried[0] / 1.2,
        high=tried[-1] * 1.2,
        name=f"accounted ε, {report.unit} unit, seen by {report.view}",
        ticks=tried,
        text=lambda epsilon: f"{epsilon:g}",
        logarithmic=True,
    )
    up = shares(min(heights) - margin, max(heights) + margin, "accuracy")
    return Chart(across, up, width=518, height=270)


def _draw_points(chart: Chart, report: FrontierReport) -> None:
    """What to use at each ε, with its accuracy in figures; the point that the advice speaks of stands out."""
    label = "to use, on test records"
    chart.line([(p.epsilon, p.mean) for p in report.points], "crafted", width=2, label=label)
    for p in report.points:
        if len(p.curves) > 1:
            chart.line([(p.epsilon, p.low), (p.epsilon, p.high)], "crafted", width=1)
        chart.mark(p.epsilon, p.mean, "diamond", "crafted", size=1.5 if p is report.asked else 1)
        chart.at(percent(p.mean), p.epsilon, p.high, anchor="middle", above=10)


def _candidates(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The entries that were tried, by candidate."""
    tried: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.tried:
            tried.setdefault(entry.title, []).append(entry)
    return tried
