"""What is said of a published table that was trained again: printed figures beside ours, curves, and settings."""

from __future__ import annotations

import math
from collections.abc import Iterator

from vflpriv.common import formatting as f
from vflpriv.experiments.facts import page_facts, settings_pairs
from vflpriv.experiments.reproduce.plots import reproduction_plots
from vflpriv.experiments.reproduce.result import MEASURES, SHARES, Figure, Reproduction, TrainedLine
from vflpriv.render import document as d

__all__ = ["figures_table", "reproduction_document"]

_COLUMNS = "row;measure;>paper;>ours;?>interval;?>difference"
_GUARANTEE = ";?unit;?seen by;>claimed ε;>accounted ε ≤|accounted/ε ≤"
_UNEXPLAINED = "not explained"
_NEVER = "not reached"


def figures_table(report: Reproduction) -> d.Table:
    """One row for each printed figure; rows without one show the accuracy that they reach."""
    protected = any(line.guarantee for line in report.lines)
    columns = f"{_COLUMNS}{_GUARANTEE if protected else ''};why it differs"
    rows = []
    for line in report.lines:
        budget = _guarantee(line) if protected else ()
        rows += [(f.clean(line.title), *_cells(figure), *budget, _why(report, line, figure)) for figure in line.figures]
        if not line.figures:
            ends = (*budget, _why(report, line))
            reached = f"{100 * line.accuracy:.2f}"
            rows.append((f.clean(line.title), MEASURES["accuracy"], f.NOTHING, reached, f.NOTHING, f.NOTHING, *ends))
    return d.table_of(
        columns,
        rows,
        title=f"{report.headline} ({_seeds(report)})",
        caption=f"{report.title}: {_seeds(report)}. The interval is of the mean over seeds.",
        place="figures-caption",
        filled=True,
    )


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


@d.described_by.register
def reproduction_document(report: Reproduction) -> d.Document:
    """The table, where its settings come from, accuracy against ε, curves, the devices' importance, and settings."""
    source = f"{report.source}. {report.setting}" if report.setting else f"{report.source}."
    return d.Document(
        headline=report.headline,
        line=f.clean(report.headline),
        outcome="",
        title=report.title,
        heading=report.title,
        level=2,
        eyebrow="A published table, trained again",
        said=(d.Paragraph(source, only=d.MARKDOWN | d.PAGE),),
        facts=page_facts(report),
        blocks=list(_blocks(report)),
        source=f"reproduction.json ({report.schema_version})",
    )


def _blocks(report: Reproduction) -> Iterator[d.Block]:
    chosen = f"Settings: {report.chosen}. {report.stopping}".strip()
    figures = [
        *_quick_note(report),
        figures_table(report),
        d.Paragraph(f"{_seeds(report)}. {chosen} {report.shortened}".strip(), only=d.MARKDOWN),
        d.Paragraph(chosen, "muted", only=d.PAGE),
        d.Paragraph(f"Source: {report.source}. {chosen}", only=d.TERMINAL),
        d.Command(report.command, only=d.MARKDOWN | d.PAGE),
        d.Paragraph(report.command, only=d.NOTEBOOK),
    ]
    yield d.Section("Printed and reached", figures, "figures", contents="Figures", headed=d.PAGE)
    curves = d.Group("small-plots", (d.Figure(lambda: reproduction_plots(report)),))
    yield d.Section("Curves", (curves,), "curves", contents="Curves", only=d.PAGE)
    settings = [
        d.Fold(f"{line.title} ({line.engine})", (d.Paragraph(settings_pairs(line.settings)),)) for line in report.lines
    ]
    yield d.Section("Settings", settings, "settings", contents="Settings", only=d.PAGE)


def _quick_note(report: Reproduction) -> Iterator[d.Paragraph]:
    """That figures of a shortened training are not comparable to the last digit."""
    if report.share < 1:
        shape = " Figures show the shape and not the last digits."
        yield d.Paragraph((d.strong(report.shortened), shape), only=d.PAGE)
    elif report.quick:
        fewer = ": fewer rounds or records than published, so that figures show the shape and not the last digits."
        yield d.Paragraph((d.strong("A quick look"), fewer), only=d.PAGE)
