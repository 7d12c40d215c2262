"""The best accuracy at each ε, in a terminal, as Markdown and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console

from vflpriv.common import formatting as f
from vflpriv.common.registry import register
from vflpriv.experiments.frontier.plot import frontier_plot
from vflpriv.experiments.frontier.result import FrontierReport, Point
from vflpriv.render.console import Writer
from vflpriv.render.grid import Grid
from vflpriv.render.html.page import environment
from vflpriv.render.markdown import LIMIT, command_block, escape, within
from vflpriv.render.overview import Overview
from vflpriv.render.pages import Page

__all__ = ["FrontierPage", "print_frontier"]


def points_grid(report: FrontierReport) -> Grid:
    """One row for each ε: what to use, what it reaches, and what its audit says."""
    audits = [point.audit for point in report.points if point.audit is not None]
    scale = "ε" if any(audit.measured_epsilon is not None for audit in audits) else "μ"
    columns = f">ε;use;>test accuracy;>interval;>accounted ε ≤;audit;>measured {scale} / accounted {scale}"
    return Grid(columns, [_point(point) for point in report.points])


def _point(p: Point) -> tuple[str, ...]:
    reached = (f.percent(p.mean), f.seeds_interval(p.low, p.high) if len(p.curves) > 1 else "one seed")
    audit = f.NOTHING if p.audit is None else f"{p.audit.verdict.icon} {p.audit.verdict}"
    tight = None if p.audit is None else p.audit.tightness
    return (
        f"{p.epsilon:g}",
        f.clean(p.title),
        *reached,
        f.epsilon(p.accounted),
        audit,
        f.NOTHING if tight is None else f"{tight:.2f}",
    )


def tried_grid(report: FrontierReport) -> Grid:
    """One row for each candidate: its best accuracy on validation records at each ε, or why it has none."""
    budgets = sorted({entry.epsilon for entry in report.entries})
    rows = []
    for key in dict.fromkeys(entry.key for entry in report.entries):
        own = {entry.epsilon: entry for entry in report.entries if entry.key == key}
        first = next(iter(own.values()))
        reached = [own[epsilon].validated if epsilon in own else None for epsilon in budgets]
        reason = next((entry.why_not for entry in own.values() if entry.why_not), None)
        cells = [f.NOTHING if accuracy is None else f.percent(accuracy) for accuracy in reached]
        rows.append((f.clean(first.title), *cells, f.clean(reason or f.NOTHING)))
    return Grid(";".join(["candidate", *(f">ε = {epsilon:g}" for epsilon in budgets), "why not"]), rows)


def _notes(report: FrontierReport) -> Iterator[str]:
    """What has to be known to read the figures."""
    yield (
        f"Settings were chosen by the accuracy on {f.count(report.validation)} validation records; test records were "
        f"looked at once, for the best of each ε, with {'one seed' if report.seeds == 1 else f'{report.seeds} seeds'}."
    )
    finals = Counter(entry.epsilon for entry in report.entries for _ in entry.finalists)
    if finals:
        number, seeds = max(finals.values()), next(t.seeds for entry in report.entries for t in entry.finalists)
        yield (
            f"At each ε the {number} settings that were best by one training had {seeds}; the mean of their accuracies "
            "on validation records, which the table shows, decided."
        )
    counted = [p.tuning_runs for p in report.points if p.tuning_runs]
    if counted:
        yield f"The {counted[0]} trainings of the search at each ε are counted against the budget."
    else:
        yield "The trainings of the search are not counted against the budget (count_tuning = true counts them)."
    if report.fitted and report.unit != "label":
        yield (
            f"Taken as public: {' and '.join(report.fitted)}, which the training records decided; no budget counts "
            "them. data.ranges and data.values declare them without looking at records."
        )
    yield from _audit_notes(report)


def _audit_notes(report: FrontierReport) -> Iterator[str]:
    """How points were audited, and what was smaller in it."""
    drawn = [p.audit for p in report.points if p.audit is not None and p.audit.draws is not None]
    if drawn:
        numbers = _range(sorted({a.draws or 0 for a in drawn}))
        yield (
            f"Nobody learns more of a label than its noised label tells: {numbers} of these were drawn by the point's "
            f"own code in each of two worlds, of one label and of another; measured is a lower bound on ε at "
            f"{f.confidence(report.confidence)}. That all else depends on labels through these alone, and that they "
            "are drawn once, by their law and independently, are further tests of the verdict. Noise on labels is read "
            "to four decimals: what its last bits tell is not measured."
        )
    audited = [p.audit for p in report.points if p.audit is not None and p.audit.draws is None]
    if not audited:
        return
    trials, records = (sorted({getattr(a, name) for a in audited}) for name in ("trials", "records"))
    yield (
        f"Each point was audited with worst-case canaries, {_range(trials)} trainings in each world, on "
        f"{_range(records)} records with noise calibrated for them; measured is a lower bound at "
        f"{f.confidence(report.confidence)}."
    )
    if any(a.tightness is not None and a.tightness > 1 for a in audited):
        yield (
            f"A ratio above 1 is no finding by itself: one in {1 / (1 - report.confidence):.0f} such bounds is too "
            "high by chance, and verdicts ask for more."
        )
    smaller = {p.title: p.audit for p in report.points if p.audit is not None and p.audit.reduced}
    for title, audit in smaller.items():
        changes = ", ".join(f"{r.setting} = {r.audited} in place of {r.point}" for r in audit.reduced)
        yield f"Audits of {title} had {changes}, on which neither sensitivity nor noise depends."
    compared = [a.full_size for a in audited if a.full_size is not None]
    if compared:
        gap = max(abs(c.distance - c.reduced_distance) / c.distance for c in compared)
        yield (
            f"In {f.count(compared[0].trials)} more trainings of each world without these changes the distance between "
            f"the worlds on the wire was the same, up to {gap:.1g} of it."
            if all(c.same for c in compared)
            else "Where the worlds were not as far apart with these changes, all trainings were made without them."
        )


def _range(numbers: Sequence[int]) -> str:
    return " to ".join(dict.fromkeys((f.count(numbers[0]), f.count(numbers[-1]))))


def print_frontier(report: FrontierReport, console: Console) -> None:
    """The advice, the table, and all candidates."""
    writer = Writer(console)
    writer.line(writer.text(report.advice))
    points, tried = points_grid(report), tried_grid(report)
    if points.rows:
        columns = points.columns.replace(">interval", "?>interval").replace("accounted ε ≤", "accounted/ε ≤")
        columns = columns.replace("measured μ / accounted μ", "measured over/accounted μ")
        writer.table(f"Best accuracy at each ε: {report.question}", columns, [tuple(row) for row in points.rows])
    writer.table("Accuracy on validation records", tried.columns, [tuple(row) for row in tried.rows])
    for note in _notes(report):
        writer.line(writer.text(note))


def _blocks(report: FrontierReport) -> Iterator[str]:
    yield f"## What to use: {escape(report.question)}"
    yield escape(report.advice)
    if report.points:
        yield points_grid(report).markdown
    yield "Accuracy on validation records, by which candidates and settings were chosen:"
    yield tried_grid(report).markdown
    yield " ".join(escape(note) for note in _notes(report))
    yield command_block(report.command)


@register("page")
class FrontierPage(Page):
    """The advice, the picture, and the tables."""

    name = "frontier"
    summary = "the best accuracy at each ε"

    def overview(self, result: FrontierReport) -> Overview:
        """The advice and both tables."""
        grids = tuple(grid for grid in (points_grid(result), tried_grid(result)) if grid.rows)
        return Overview(result.advice, f.clean(result.headline), None, grids, (result.command,))

    def markdown(self, result: FrontierReport) -> str:
        """The advice, the tables and the command."""
        return within(_blocks(result), LIMIT, whole="frontier.json") + "\n"

    def html(self, result: FrontierReport) -> str:
        """The advice, the picture, and the tables."""
        page = environment().get_template("frontier.html.j2")
        return page.render(
            report=result,
            points=points_grid(result),
            tried=tried_grid(result),
            picture=frontier_plot(result),
            notes=list(_notes(result)),
        )
