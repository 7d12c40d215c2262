"""A published table beside ours, in a terminal, as Markdown and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Console

from vflpriv.common import formatting as f
from vflpriv.common.registry import register
from vflpriv.experiments.reproduce.plots import reproduction_plots
from vflpriv.experiments.reproduce.result import MEASURES, SHARES, Figure, Reproduction, TrainedLine
from vflpriv.render.console import Writer
from vflpriv.render.grid import Grid
from vflpriv.render.html.page import environment
from vflpriv.render.markdown import LIMIT, command_block, escape, paragraph, within
from vflpriv.render.overview import Overview
from vflpriv.render.pages import Page

__all__ = ["ReproductionPage", "figures_grid", "print_reproduction"]

_COLUMNS = "row;measure;>paper;>ours;>interval;>difference"
_GUARANTEE = ";unit;seen by;>claimed ε;>accounted ε ≤"
_OPTIONAL = (">interval", ">difference", "unit", "seen by")
"""Columns that narrow terminals leave out."""
_UNEXPLAINED = "not explained"
_NEVER = "not reached"


def figures_grid(report: Reproduction) -> Grid:
    """One row for each printed figure; rows without one show the accuracy that they reach."""
    protected = any(line.guarantee for line in report.lines)
    columns = f"{_COLUMNS}{_GUARANTEE if protected else ''};why it differs"
    rows = []
    for line in report.lines:
        budget = _guarantee(line) if protected else ()
        rows += [(f.clean(line.title), *_cells(each), *budget, _why(report, line, each)) for each in line.figures]
        if not line.figures:
            ends = (*budget, _why(report, line))
            reached = f"{100 * line.accuracy:.2f}"
            rows.append((f.clean(line.title), MEASURES["accuracy"], f.NOTHING, reached, f.NOTHING, f.NOTHING, *ends))
    return Grid(columns, rows)


def _cells(figure: Figure) -> tuple[str, ...]:
    name, paper = MEASURES[figure.measure], _printed(figure.paper)
    if figure.mean is None or figure.low is None or figure.high is None:
        return name, paper, _NEVER, f.NOTHING, f.NOTHING
    several = len(figure.values) > 1
    interval = f"{figure.low:.2f} to {figure.high:.2f}" if several else "one seed"
    if several and figure.measure in SHARES and f.too_wide(figure.low / 100, figure.high / 100):
        interval = f.TOO_FEW
    difference = f.NOTHING if figure.difference is None else f"{figure.difference:+.2f}"
    return name, paper, f"{figure.mean:.2f}", interval, difference


def _printed(paper: float | None) -> str:
    if paper is None:
        return f.NOTHING
    return _NEVER if math.isinf(paper) else f"{paper:.2f}"


def _guarantee(line: TrainedLine) -> tuple[str, ...]:
    g = line.guarantee
    return (f.NOTHING,) * 4 if g is None else (g.unit, g.view, f.epsilon(g.claimed), f.epsilon(g.accounted))


def _why(report: Reproduction, line: TrainedLine, figure: Figure | None = None) -> str:
    """The row's explanation, beside figures that differ; the conditions of a theorem beside what it is about alone.

    That a training diverged stands beside all of its figures.
    """
    said = _explanation(report, line, figure)
    return "; ".join(filter(None, (line.diverged, said))) or f.NOTHING


def _explanation(report: Reproduction, line: TrainedLine, figure: Figure | None) -> str:
    differs = figure is None or figure.large or (figure.measure not in SHARES and figure.difference is not None)
    if (line.explained and differs) or (line.reason and figure is not None and figure.measure == "rises"):
        return f.clean(line.reason)
    return _UNEXPLAINED if line.open and differs and not report.shortened else ""


def _seeds(report: Reproduction) -> str:
    number = "one seed" if report.seeds == 1 else f"{report.seeds} seeds"
    return f"{number}; intervals of the mean at {f.confidence(report.confidence)}"


def print_reproduction(report: Reproduction, console: Console) -> None:
    """The table and what has to be known to read it."""
    writer, grid = Writer(console), figures_grid(report).filled
    named = grid.columns.replace("accounted ε ≤", "accounted/ε ≤").split(";")
    columns = ";".join(f"?{name}" if name in _OPTIONAL else name for name in named)
    writer.table(f"{report.headline} ({_seeds(report)})", columns, [tuple(row) for row in grid.rows])
    writer.line(writer.text(f"Source: {report.source}. Settings: {report.chosen}. {report.stopping}".strip()))


def _blocks(report: Reproduction) -> Iterator[str]:
    yield f"## {escape(report.title)}"
    yield f"{escape(report.source)}. {paragraph(report.setting)}" if report.setting else f"{escape(report.source)}."
    yield figures_grid(report).filled.markdown
    notes = (f"Settings: {paragraph(report.chosen)}.", report.stopping, report.shortened)
    yield " ".join([f"{escape(_seeds(report))}.", *filter(None, notes)])
    yield command_block(report.command)


@register("page")
class ReproductionPage(Page):
    """The table, accuracy against ε, curves by round, traffic and time, the devices' importance, settings."""

    name = "reproduction"
    summary = "a published table beside ours"

    def overview(self, result: Reproduction) -> Overview:
        """The headline and the table."""
        return Overview(result.headline, f.clean(result.headline), None, (figures_grid(result),), (result.command,))

    def markdown(self, result: Reproduction) -> str:
        """The table, where its settings come from, and the command."""
        return within(_blocks(result), LIMIT, whole="reproduction.json") + "\n"

    def html(self, result: Reproduction) -> str:
        """The table, the pictures, and the settings."""
        page, plots = environment().get_template("reproduction.html.j2"), reproduction_plots(result)
        return page.render(report=result, grid=figures_grid(result).filled, plots=plots, seeds=_seeds(result))
