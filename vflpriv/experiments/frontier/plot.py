"""Accuracy against ε: what was reached on test records, and all candidates on validation records."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from vflpriv.common.formatting import interval, percent, shorten
from vflpriv.experiments.frontier.result import Entry, FrontierReport
from vflpriv.render.plots.svg import COLOURS, Plot, drawing, in_percent, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["frontier_plot"]

_SIZE = (7.2, 4.2)
_INKS = ("claimed", "worst-case", "rigorous", "paper", "natural")
_DASHES = ("--", ":", "-.")


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
    width, height = _SIZE
    with drawing(width, height) as (figure, axes):
        axes.set_position((0.8 / width, 0.5 / height, (width - 0.95) / width, (height - 0.95) / height))
        for number, (title, entries) in enumerate(_candidates(report.entries).items()):
            ink, dashes = COLOURS[_INKS[number % len(_INKS)]], _DASHES[number // len(_INKS) % len(_DASHES)]
            places = [e.epsilon for e in entries], [e.validated or 0.0 for e in entries]
            axes.plot(*places, lw=1.1, ls=dashes, marker=".", color=ink, alpha=0.75, label=shorten(title, 52))
        _draw_points(axes, report)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted({e.epsilon for e in report.entries} | {p.epsilon for p in report.points}))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.set_xlabel(f"accounted ε, {report.unit} unit, seen by {report.view}")
        axes.set_ylabel("accuracy")
        in_percent(axes)
        axes.grid(color=COLOURS["frame"], alpha=0.22, lw=0.6)
        axes.legend(frameon=False, fontsize=7.5, loc="best")
        axes.margins(y=0.12)
        axes.set_title(fill(shorten(report.choice, 160), 84), loc="left", fontsize=9.5, fontweight="bold")
        return svg(figure, f"Accuracy against ε on {report.data.get('name', 'data')}", description, "best")


def _draw_points(axes: Axes, report: FrontierReport) -> None:
    """What to use at each ε, with its accuracy in figures; the point that the title speaks of stands out."""
    best, ink = report.points, COLOURS["crafted"]
    label = "to use, on test records"
    axes.plot([p.epsilon for p in best], [p.mean for p in best], lw=2, color=ink, marker="D", ms=5, label=label)
    for p in best:
        asked = p is report.asked
        if len(p.curves) > 1:
            axes.plot([p.epsilon] * 2, [p.low, p.high], color=ink, lw=1)
        if asked:
            axes.plot([p.epsilon], [p.mean], color=ink, marker="D", ms=9)
        axes.annotate(
            percent(p.mean),
            (p.epsilon, p.high),
            color=ink,
            fontsize=10 if asked else 7.5,
            fontweight="bold" if asked else "normal",
            textcoords="offset points",
            xytext=(0, 8),
            ha="center",
        )


def _candidates(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The entries that were tried, by candidate."""
    tried: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.tried:
            tried.setdefault(entry.title, []).append(entry)
    return tried
