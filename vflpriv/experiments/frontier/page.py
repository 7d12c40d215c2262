"""What is said of the best accuracy at each ε: what to use, what was tried, and how it was audited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from vflpriv.common import formatting as f
from vflpriv.experiments.facts import page_facts, settings_pairs
from vflpriv.experiments.frontier.plot import frontier_plot
from vflpriv.experiments.frontier.result import FrontierReport, Point
from vflpriv.render import document as d

__all__ = ["frontier_document"]


def _points_table(report: FrontierReport) -> d.Table:
    """One row for each ε: what to use, what it reaches, and what its audit says."""
    audits = [point.audit for point in report.points if point.audit is not None]
    scale = "ε" if any(audit.measured_epsilon is not None for audit in audits) else "μ"
    tight = f">measured {scale} / accounted {scale}|measured over/accounted {scale}"
    return d.table_of(
        f">ε;use;>test accuracy;?>interval;>accounted ε ≤|accounted/ε ≤;audit;{tight}",
        [_point(point) for point in report.points],
        title=f"Best accuracy at each ε: {report.question}",
        caption="At each ε the candidate that was best on validation records, on test records",
        place="best-caption",
    )


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


def _tried_table(report: FrontierReport) -> d.Table:
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
    return d.table_of(
        ";".join(["candidate", *(f">ε = {epsilon:g}" for epsilon in budgets), "why not"]),
        rows,
        title="Accuracy on validation records",
        caption="Best accuracy of each candidate on validation records, or why it keeps no budget",
        place="tried-caption",
    )


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


@d.described_by.register
def frontier_document(report: FrontierReport) -> d.Document:
    """The advice, the picture, what to use at each ε, and all candidates."""
    return d.Document(
        headline=report.advice,
        line=f.clean(report.headline),
        outcome="",
        title=f"What to use: {report.question}",
        heading=f"What to use: {report.question}",
        level=2,
        eyebrow="The best accuracy at an honest ε",
        said=(d.Paragraph(report.question, only=d.PAGE), d.Paragraph(report.advice, only=d.MARKDOWN)),
        facts=page_facts(report),
        blocks=list(_blocks(report)),
        source=f"frontier.json ({report.schema_version})",
    )


def _blocks(report: FrontierReport) -> Iterator[d.Block]:
    notes = list(_notes(report))
    best = [
        d.Paragraph(report.advice, only=d.TERMINAL),
        d.Figure(lambda: frontier_plot(report), "accuracy against ε"),
        *([_points_table(report)] if report.points else []),
        *(d.Paragraph(note, "muted", only=d.PAGE) for note in notes),
        d.Command(report.command, only=d.PAGE),
    ]
    yield d.Section("What to use", best, "best", contents="What to use", headed=d.PAGE)
    every = [
        (f"{entry.title}, ε = {entry.epsilon:g}: {f.percent(tried.accuracy)} with ", settings_pairs(tried.settings))
        for entry in report.entries
        for tried in entry.tried
    ]
    tried = [
        d.Paragraph("Accuracy on validation records, by which candidates and settings were chosen:", only=d.MARKDOWN),
        _tried_table(report),
        d.Fold("Every setting that was tried", (d.Bullets(every),), only=d.PAGE),
    ]
    yield d.Section("What was tried", tried, "tried", contents="What was tried", headed=d.PAGE)
    yield d.Paragraph(" ".join(notes), only=d.MARKDOWN)
    for note in notes:
        yield d.Paragraph(note, only=d.TERMINAL)
    settings = [
        d.Fold(f"ε = {p.epsilon:g}: {p.title} ({p.engine})", (d.Paragraph(settings_pairs(p.settings)),))
        for p in report.points
    ]
    yield d.Section("Settings", settings, "settings", contents="Settings", only=d.PAGE)
    yield d.Command(report.command, only=d.MARKDOWN)
    yield d.Paragraph(report.command, only=d.NOTEBOOK)
