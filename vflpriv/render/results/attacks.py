"""What is said of an attack matrix: leakage by system, defence and attack, which defence to take, broken limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from vflpriv.common import formatting as f
from vflpriv.core.attack import NO_DEFENCE
from vflpriv.core.claims import Verdict
from vflpriv.render import document as d
from vflpriv.render.plots.defences import defence_plot, point_mark
from vflpriv.render.results.features import features_section, refused_cell, refused_line
from vflpriv.render.results.integrity import integrity_section
from vflpriv.render.shared import cell_level, contest_cells, leak_points, names_of_rows
from vflpriv.report.attacks import ONLY_STATIC, AttackReport, Contest, TrainedRow, contests_of
from vflpriv.report.attacks import Cell as AttackCell
from vflpriv.report.defences import DefenceFrontier, DefencePoint, defence_capabilities, defence_frontiers

__all__ = ["attacks_document"]

_NOT_NOTEBOOK = d.WRITTEN | d.TERMINAL | d.PAGE
_SHOWN_LIMITS = 3
"""Broken limits that stand beside the headline of a page; all of them are in its first section."""
_EXPLAINED = (
    "Points by which success exceeds chance and the same adversary without the protocol, through the view that gains "
    "most (share of right guesses below). Coloured where the interval lies above zero."
)
_CAPABILITY = (
    "DCS is VFLAIR’s Defence Capability Score, 1 at best: it falls with the mean success of these attacks, chance "
    "included, and with the test accuracy that is lost."
)
_FRONTIER = (
    "Every defence at every strength: how much the attack on labels that gains most learns beyond its baseline, and "
    "the accuracy on held-out records. Up and to the left is better. Numbered are the defences that no other "
    "dominates, grey those that another one matches or beats in both. Lines are the intervals over {seeds} seeds."
)
_ADVICE = (
    "To take: of the defences that cost at most {loss:g} points of accuracy and whose interval of the leakage lies "
    "below that without a defence, the one whose interval ends lowest. It is chosen by the same trainings that it is "
    "shown with: the intervals are not corrected for the choice. Attacks that were not tried may do better."
)
_BEYOND = (
    "Points by which the best view's success exceeds chance and the same adversary without the protocol (success in "
    "brackets); mean of {seeds} seeds. Bold: the {level} interval lies above zero."
)
_QUICK = "a quick look: no defence was tried, and seeds, rounds and candidates were capped"
_ALLOWS = (
    "Accounted is the ε of one label under this view; “allows” is the most by which any attack can then exceed the "
    "best guess without the protocol."
)


@d.described_by.register
def attacks_document(report: AttackReport) -> d.Document:
    """Leakage in points for each system, defence and attack, through the view that gains most."""
    name, devices = report.data.get("name", f.NOTHING), report.data.get("devices", f.NOTHING)
    return d.Document(
        headline=report.headline,
        line=f"{report.headline}; exit code {report.exit_code}",
        heading="Attacks",
        verdict=Verdict.VIOLATED if report.broken else None,
        eyebrow="Attacks on vertical federated learning",
        said=list(_said(report)),
        facts=(
            ("data", f"{name}, {devices} devices"),
            ("seeds", str(report.seeds)),
            ("known labels per class", str(report.labels_per_class)),
            ("confidence", f.confidence(report.confidence)),
            ("vflpriv", report.tool_version),
        ),
        blocks=list(_blocks(report)),
        source=f"attacks.json ({report.schema_version})",
    )


def _said(report: AttackReport) -> Iterator[d.Block]:
    """The broken limits, and how limits were tested."""
    yield d.Paragraph(d.strong(report.headline), only=d.WRITTEN)
    yield d.Bullets([d.strong(line) for line in report.broken], only=d.WRITTEN)
    if report.broken:
        more = len(report.broken) - _SHOWN_LIMITS
        others = (d.link(f"and {more} more", "limits"),) if more > 0 else ()
        yield d.Bullets((*map(f.clean, report.broken[:_SHOWN_LIMITS]), *others), only=d.PAGE)
    elif report.limits:
        yield d.Paragraph(f"No mean lies above {' or '.join(report.limits)} with the stated confidence.", only=d.PAGE)
    else:
        yield d.Paragraph("No limit was set: these are the results of attacks, not a verdict.", only=d.PAGE)
    for note in filter(None, (_QUICK if report.quick else None, report.sample_note, report.limit_note)):
        yield d.Paragraph(note, only=d.PAGE)
        yield d.Paragraph(f"{note[:1].upper()}{note[1:]}.", only=d.WRITTEN)


def _blocks(report: AttackReport) -> Iterator[d.Block]:
    chosen = defence_frontiers(report)
    yield _limits(report)
    yield _which_defence(report, chosen)
    refused = [attack for attack, _ in report.reasons if attack not in report.attacks]
    left_out = [f"defence {name} of {', '.join(who)}" for (names, _), who in report.left_out.items() for name in names]
    leakage = [
        d.Paragraph(_BEYOND.format(seeds=report.seeds, level=f.confidence(report.confidence)), only=d.WRITTEN),
        _matrix(report),
        d.Static("legend"),
        *refused_line([*refused, *left_out]),
        *_contests(report.contests, "labels"),
        *_contests(contests_of(report.features), "features"),
    ]
    yield d.Section("Leakage", leakage, "leakage", contents="Leakage", only=_NOT_NOTEBOOK)
    tried = [cell for cell in report.cells if cell.leakage is not None]
    caption = "Each attack through each view, with both intervals; leakage in points."
    every = d.Table(_ATTEMPTS, tried, caption=caption, place="every-caption")
    allows = d.Paragraph(_ALLOWS, "muted", only=d.PAGE)
    yield d.Section("Every attempt", (every, allows), "every", contents="Every attempt", only=d.WRITTEN | d.PAGE)
    if tried:
        yield d.Table(_LISTED, tried, only=d.NOTEBOOK)
    yield features_section(report.features)
    yield integrity_section(report.integrity)
    yield _not_applicable(report)
    yield from _last_lines(report, chosen)


def _last_lines(report: AttackReport, chosen: Sequence[DefenceFrontier]) -> Iterator[d.Block]:
    """What to take and which limits are broken, where a terminal shows it without scrolling."""
    yield d.Terms([(frontier.system, frontier.advice) for frontier in chosen], only=d.TERMINAL)
    limits = (line.partition(": ") for line in report.broken)
    yield d.Terms([(d.Span(limit, "alarm"), where) for limit, _, where in limits], only=d.TERMINAL)
    for note in filter(None, (report.sample_note, report.limit_note)):
        yield d.Paragraph(note, only=d.TERMINAL)
    for line in report.broken:
        yield d.Paragraph(line, only=d.NOTEBOOK)


def _limits(report: AttackReport) -> d.Section:
    number = len(report.broken)
    summary = (
        f"{number} combination{'s' if number > 1 else ''} of attack, system and defence above a limit, with the stated "
        "confidence"
    )
    fold = d.Fold(summary, (d.Bullets([f.clean(line) for line in report.broken]),), opened=number < 10)
    return d.Section("Broken limits", (fold,) if number else (), "limits", contents="Broken limits", only=d.PAGE)


def _which_defence(report: AttackReport, chosen: Sequence[DefenceFrontier]) -> d.Section:
    """The advice for each system; on a page, with a picture of all defences."""
    if not chosen:
        return d.Section("Which defence", ())
    blocks = [
        d.Terms([(frontier.system, frontier.advice) for frontier in chosen], only=d.WRITTEN),
        d.Paragraph(_FRONTIER.format(seeds=report.seeds), only=d.PAGE),
        d.Paragraph(_ADVICE.format(loss=100 * report.affordable_loss), "muted", only=d.PAGE),
        d.Group(
            "small-plots frontiers", [_frontier(frontier, f"f{n}") for n, frontier in enumerate(chosen, 1)], only=d.PAGE
        ),
    ]
    return d.Section("Which defence", blocks, "frontier", contents="Which defence", only=d.WRITTEN | d.PAGE)


def _frontier(frontier: DefenceFrontier, place: str) -> d.Group:
    """The picture of one system, and the defences that have a number in it."""
    title = (d.Paragraph(frontier.title, "muted"),) if frontier.title != frontier.system else ()
    figure = d.Figure(lambda: defence_plot(frontier), f"privacy and utility of {frontier.system}")
    points = d.Bullets([_point(frontier, point) for point in frontier.named], f"{place}-point")
    return d.Group("frontier", (d.Heading(frontier.system, 3), *title, figure, points))


def _point(frontier: DefenceFrontier, point: DefencePoint) -> d.Content:
    mark = point_mark(frontier, point)
    name = "no defence" if point is frontier.undefended else f.clean(point.defence)
    figures = [leak_points(point.leakage), f.percent(point.accuracy)]
    figures += [] if point.epsilon is None else [f"ε ≤ {f.epsilon(point.epsilon)}"]
    *others, last = figures
    whole = [part for text in others for part in (d.Span(f"{text},", "whole"), " ")]
    return (d.Span(mark.symbol, f"mark {mark.colour}"), f" {name}: ", *whole, d.Span(last, "whole"))


def _matrix(report: AttackReport) -> d.Table:
    """A row for each system and defence, a column for each attack."""
    trained = [row for row in report.trained if row.not_applicable is None]
    names = names_of_rows((row.system, row.defence) for row in trained)
    reasons = {key: number for number, key in enumerate(report.reasons, 1)}
    scores = defence_capabilities(report) if any(row.defence != NO_DEFENCE for row in trained) else {}

    def leakage(attack: str, pair: tuple[str, TrainedRow]) -> d.Cell:
        row = pair[1]
        cell = report.worst(row.system, row.defence, attack)
        if cell is None or cell.leakage is None:
            return refused_cell(reasons[attack, cell.not_applicable] if cell and cell.not_applicable else 0, "why")
        success = f.percent(cell.success)
        detail = (f"{success}, {f.clean(cell.adversary)}",)
        return d.Cell(leak_points(cell.leakage), below=success, detail=detail, tone=f"leak{cell_level(cell)}")

    def score(pair: tuple[str, TrainedRow]) -> str:
        value = scores.get((pair[1].system, pair[1].defence))
        return f.NOTHING if value is None else f"{value:.3f}"

    columns = [
        d.Column("system/  defence", lambda pair: pair[0], only=d.TERMINAL),
        d.Column("System", lambda pair: pair[1].system, only=d.WRITTEN | d.PAGE),
        d.Column("Defence", lambda pair: pair[1].defence, only=d.WRITTEN | d.PAGE),
        d.Column(">Test accuracy", lambda pair: f.percent(pair[1].accuracy), "test/accuracy"),
        *((d.Column(">DCS", score, only=d.WRITTEN | d.PAGE),) if scores else ()),
        *(d.Column(f">{attack}", partial(leakage, attack), _short(attack)) for attack in report.attacks),
    ]
    title = f"Leakage in points: success beyond chance and beyond the adversary by itself, mean of {report.seeds} seeds"
    rows = list(zip(names, trained, strict=True))
    caption = f"{_EXPLAINED} {_CAPABILITY}" if scores else _EXPLAINED
    return d.Table(columns, rows, title=title, caption=caption, place="matrix-caption")


def _short(attack: str) -> str:
    return attack.removeprefix("label_").replace("_", "/")


def _contests(contests: Sequence[Contest[Any]], target: str) -> Iterator[d.Block]:
    """Static and adaptive attacks side by side, where an adaptive one was tried."""
    if not contests:
        return
    about = "largest leakage by attacks that do not know the defence, and by those that do"
    yield d.Heading(f"Attacks on {target} that know the defence", 2, only=d.WRITTEN)
    yield d.Paragraph(f"The {about}. {ONLY_STATIC}.", only=d.WRITTEN)
    names = names_of_rows((c.system, c.defence) for c in contests)
    columns = (
        d.Column("system/  defence", lambda pair: pair[0], only=d.TERMINAL),
        d.Column("System", lambda pair: pair[1].system, only=d.WRITTEN | d.PAGE),
        d.Column("Defence", lambda pair: pair[1].defence, only=d.WRITTEN | d.PAGE),
        d.Column("Static", lambda pair: _contestant(pair[1].static, contest_cells(pair[1])[0])),
        d.Column("Adaptive", lambda pair: _contestant(pair[1].adaptive, contest_cells(pair[1])[1])),
        d.Column("†", lambda pair: contest_cells(pair[1])[2]),
    )
    caption = f"Attacks on {target}: {about}. {ONLY_STATIC}.".replace("attacks that", "those that", 1)
    title = f"{target.capitalize()}: {about}"
    rows = list(zip(names, contests, strict=True))
    yield d.Table(columns, rows, title=title, caption=caption, place=f"adaptive-{target}")
    if any(c.only_static for c in contests):
        yield d.Paragraph(ONLY_STATIC, only=d.TERMINAL)


def _contestant(cell: AttackCell | None, text: str) -> d.Content | d.Cell:
    """What the best attack of a kind leaks, coloured on pages."""
    return d.Cell(text, tone=f"leak{cell_level(cell)} quiet")


_LISTED = (
    d.Column("system", lambda c: c.system),
    d.Column("defence", lambda c: c.defence),
    d.Column("attack", lambda c: c.attack),
    d.Column("seen by", lambda c: c.adversary),
    d.Column(">success", lambda c: f.percent(c.success)),
    d.Column(">leakage", lambda c: f.percent(c.leakage)),
    d.Column(">interval", lambda c: f.seeds_interval(c.low, c.high)),
)
_ATTEMPTS = (
    d.Column("System", lambda c: c.system),
    d.Column("Defence", lambda c: c.defence),
    d.Column("Attack", lambda c: c.attack_name),
    d.Column("Seen by", lambda c: c.adversary),
    d.Column(">Success", lambda c: f.percent(c.success)),
    d.Column(">Interval", lambda c: f.seeds_interval(c.success_low, c.success_high)),
    d.Column(">Chance", lambda c: f.percent(c.chance)),
    d.Column(">No signal", lambda c: f.percent(c.blind)),
    d.Column(">Leakage", lambda c: d.Cell(leak_points(c.leakage), tone=f"leak{cell_level(c)} quiet")),
    d.Column(">Interval", lambda c: f.seeds_interval(c.low, c.high)),
    d.Column(">Accounted ε ≤", lambda c: f.epsilon(c.epsilon)),
    d.Column(">Allows", lambda c: leak_points(c.allowed)),
)


def _not_applicable(report: AttackReport) -> d.Section:
    """Why attacks and defences do not apply; the cells of the matrix lead to the reasons of attacks."""
    reasons = [
        (d.strong(attack), f": {why} ", d.muted(f"({', '.join(who)})")) for (attack, why), who in report.reasons.items()
    ]
    reasons += [
        (d.strong(", ".join(names)), f": {why} ", d.muted(f"({', '.join(who)})"))
        for (names, why), who in report.left_out.items()
    ]
    blocks = d.Bullets(reasons, "why") if reasons else d.Paragraph("Nothing.")
    return d.Section("Not applicable", (blocks,), "not", contents="Not applicable", only=d.WRITTEN | d.PAGE)
