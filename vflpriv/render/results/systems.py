"""What is said of one audited system: its settings, claims, budgets, premises, and what attacks reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from vflpriv.common import formatting as f
from vflpriv.core.claims import Verdict
from vflpriv.core.units import Unit
from vflpriv.render import document as d
from vflpriv.render.plots.budgets import importance_plot, participation_plot, seen_by
from vflpriv.render.results.claims import claim_card
from vflpriv.render.results.features import refused_cell, refused_line
from vflpriv.render.shared import leak_level, leak_points, upper_bound, why_infinite
from vflpriv.report.audit import BudgetRow, CheckRow, Report, SystemRow

__all__ = ["attack_matrix", "attacks_summary", "system_section"]

_SHOWN_SETTINGS = 8
_OPENED_BUDGETS = 8
"""So many budgets are shown without a click."""
_UNITS_SHOWN = (Unit.LABEL, Unit.FEATURES)
"""Units whose budgets a terminal prints for a system without claims; the page has all units."""
_MATRIX = (
    "Points by which guesses are right beyond chance and beyond the same adversary without the protocol, through the "
    "view that gains most (share of right guesses below). Coloured where the interval lies above zero."
)


def system_section(report: Report, system: SystemRow, place: str) -> d.Section:
    """All evidence about one system."""
    number = len(system.all_claims)
    claims = f", {number} claim{'s' if number > 1 else ''}" if number else ""
    note = f"{f.clean(system.key)}{claims}"
    return d.Section(
        system.title,
        list(_blocks(report, system, place)),
        place,
        note=note,
        contents=f.clean(system.key),
        folded=True,
        style="system",
    )


def _blocks(report: Report, system: SystemRow, place: str) -> Iterator[d.Block]:
    yield d.Terms(list(_facts(system)), "facts", only=d.PAGE)
    yield d.Paragraph(_fact_sentence(system), only=d.MARKDOWN)
    for number, claim in enumerate(system.claims, start=1):
        yield claim_card(report, system, claim, f"{place}-c{number}")
    for number, about_attack in enumerate(system.success_claims, start=1):
        yield claim_card(report, system, about_attack, f"{place}-a{number}")
    if not system.all_claims:
        nothing = "This system publishes no claim. What can be accounted for and what attacks reach is below."
        yield d.Paragraph(nothing, "note", only=d.PAGE)
    yield from _budgets(system, place)
    yield from _premises(system, place)
    yield from _attacks(system, place)
    if system.importance_caveat:
        caveat = f"{f.shorten(system.title, 60)} – importance of each device. {f.clean(system.importance_caveat)}"
        yield d.Paragraph(caveat, only=d.TERMINAL)


def _facts(system: SystemRow) -> Iterator[tuple[str, d.Content]]:
    settings = list(f.flat(system.settings))
    first, more = d.Pairs(settings[:_SHOWN_SETTINGS]), settings[_SHOWN_SETTINGS:]
    others = (d.Fold(f"{len(more)} more settings", (d.Pairs(more),)),) if more else ()
    yield "Engine", (d.strong(system.engine), f", {f.count(system.rounds)} rounds", d.BREAK, first, *others)
    yield "Data", d.Pairs(list(f.flat(system.data)))
    if u := system.utility:
        over = d.muted(f"({f.interval(u.accuracy_low, u.accuracy_high)} over {f.count(u.tests)} test records)")
        yield (
            "Utility",
            (
                d.strong(f.percent(u.accuracy)),
                " accuracy ",
                over,
                d.BREAK,
                f"loss {u.loss_before:.3f} → {u.loss_after:.3f}",
            ),
        )
    if t := system.traffic:
        sent = ", ".join(f"{f.count(n)} × {kind}" for kind, n in t.messages.items())
        sizes = f"{f.size(t.up)} up, {f.size(t.down)} down, {f.size(t.ids)} of record ids"
        yield "Traffic", (sizes, d.BREAK, d.muted(sent))
    if s := system.staleness:
        ages = f" rounds old in the median, {f.count(s.largest)} at most"
        never = f"{f.percent(s.never_sent)} of {f.count(s.reads)} reads were of records that had not been sent yet"
        yield (
            "Staleness",
            ("embeddings of inactive devices were ", d.strong(f.count(s.median)), ages, d.BREAK, d.muted(never)),
        )
    if system.importance_caveat:
        yield "Importance of each device", system.importance_caveat
    elif system.importance:
        figure = d.Figure(lambda: importance_plot(system), f"importance of devices of {system.key}")
        yield "Importance of each device", figure


def _fact_sentence(system: SystemRow) -> str:
    facts = [f"Engine {system.engine}, {f.count(system.rounds)} rounds."]
    if u := system.utility:
        facts.append(f"Accuracy {f.percent(u.accuracy)} ({f.interval(u.accuracy_low, u.accuracy_high)}).")
    if t := system.traffic:
        facts.append(f"Traffic {f.size(t.up)} up, {f.size(t.down)} down.")
    if s := system.staleness:
        median, largest = f.count(s.median), f.count(s.largest)
        facts.append(f"Stale embeddings: {median} rounds old in the median, {largest} at most.")
    return " ".join(facts)


def _budgets(system: SystemRow, place: str) -> Iterator[d.Block]:
    """Upper bounds by view and unit, with their assumptions, each of which is written once."""
    if not system.budgets:
        return
    # The budgets of claims are in the first table of a terminal; the others would only distract from it.
    if not system.claims:
        rows = [row for row in system.budgets if row.unit in _UNITS_SHOWN]
        yield d.Table(_BUDGETS, rows, title=f"{f.shorten(system.title, 60)} – accounted", only=d.TERMINAL)
    joined = _joined(system.budgets)
    distinct = dict.fromkeys(line for row in joined for line in row.assumptions)
    numbers = {line: number for number, line in enumerate(distinct, start=1)}

    def notes(row: BudgetRow) -> d.Cell:
        """What makes it infinite, how exact it is, and the numbers of what it assumes."""
        shown: list[d.Content] = []
        if row.epsilon_lower != row.epsilon_upper:
            between = f"ε between {f.epsilon(row.epsilon_lower)} and {f.epsilon(row.epsilon_upper)}"
            shown.append(f"{between}, about {f.epsilon(row.epsilon)}")
        shown += [f"{name}: ε ≈ {f.epsilon(x)} (not a bound)" for name, x in row.approximations.items()]
        if row.assumptions:
            links = [
                d.Span(str(numbers[line]), "reference", link=f"{place}-if-{numbers[line]}") for line in row.assumptions
            ]
            shown.append(("assumptions", *links))
        note = _why(row)
        return d.Cell(d.Span(f"∞ because {note}", "alarm") if why_infinite(row) else note, detail=tuple(shown))

    columns = [*_BUDGETS, d.Column("Notes", notes, only=d.PAGE, style="notes")]
    caption = "Upper bounds on ε by view and unit"
    table = d.Table(columns, joined, caption=caption, place=f"{place}-budgets")
    yield d.Fold("What can be accounted for", (table,), only=d.MARKDOWN)
    number = len(system.budgets)
    summary = f"{number} budget{'s' if number > 1 else ''}, by view and unit"
    yield d.Heading("What can be accounted for", only=d.PAGE)
    assumptions = d.Fold("Assumptions, by their number", (d.Bullets(list(distinct), f"{place}-if"),))
    yield d.Fold(summary, (table, *[assumptions] * bool(distinct)), opened=number <= _OPENED_BUDGETS, only=d.PAGE)
    yield _participations(system)


def _joined(budgets: Sequence[BudgetRow]) -> list[BudgetRow]:
    """The budgets; those that differ by the unit alone share a row, and then those that differ by the adversary.

    What is not protected is the reason why a budget is infinite, and no assumption.
    """
    rows = []
    for row in budgets:
        reasons = tuple(text.removesuffix(f" for the {row.unit} unit") for text in row.unprotected)
        kept = (line for line in row.assumptions if not line.startswith("unprotected: "))
        assumptions = tuple(line.replace(row.adversary, "the adversary") for line in kept)
        changes = {"unprotected": reasons, "assumptions": assumptions, "participation_histogram": {}}
        rows.append(row.model_copy(update=changes))
    for name in ("unit", "adversary"):
        alike: dict[str, list[BudgetRow]] = {}
        for row in rows:
            alike.setdefault(repr(row.model_copy(update={name: ""})), []).append(row)
        joined = {key: ", ".join(getattr(row, name) for row in same) for key, same in alike.items()}
        rows = [same[0].model_copy(update={name: joined[key]}) for key, same in alike.items()]
    return rows


def _why(row: BudgetRow) -> str:
    return f"not applicable: {row.not_applicable}" if row.not_applicable is not None else why_infinite(row)


def _bound(row: BudgetRow) -> d.Cell:
    if row.not_applicable is not None:
        return d.Cell("n/a", tone="muted")
    upper = upper_bound(row)
    return d.Cell((upper, f" ({f.delta(row.delta)})"), tone="strong")


_BUDGETS = (
    d.Column("Seen by", lambda row: f.shorten(row.adversary, 24), only=d.TERMINAL),
    d.Column("Seen by", lambda row: f.clean(row.adversary), only=d.MARKDOWN | d.PAGE),
    d.Column("Unit", lambda row: f.clean(row.unit)),
    d.Column("Reading", lambda row: f.shorten(row.reading, 12), only=d.TERMINAL),
    d.Column("Reading", lambda row: row.reading, only=d.MARKDOWN | d.PAGE),
    d.Column(">ε ≤", upper_bound, only=d.TERMINAL),
    d.Column(">ε ≤ (δ)", _bound, only=d.MARKDOWN | d.PAGE),
    d.Column(">μ", lambda row: f.NOTHING if row.not_applicable is not None else f.mu(row.mu)),
    d.Column("?Batches", lambda row: f.clean(row.batches)),
    d.Column(
        "?>Participations", lambda row: f.NOTHING if row.not_applicable is not None else f.count(row.participations)
    ),
    d.Column("Accountant", lambda row: f"{row.accountant}, {row.method}", only=d.PAGE),
    d.Column("Note", lambda row: f.shorten(row.not_applicable or why_infinite(row), 120), only=d.TERMINAL),
    d.Column("Note", _why, only=d.MARKDOWN),
)


def _participations(system: SystemRow) -> d.Block:
    """Each distinct histogram once, with all views that it is of."""
    views: dict[tuple[tuple[int, int], ...], list[BudgetRow]] = {}
    for row in system.budgets:
        if row.participation_histogram:
            views.setdefault(tuple(sorted(row.participation_histogram.items())), []).append(row)
    several = [rows for counts, rows in views.items() if len(counts) > 1]
    figures = [d.Figure(partial(participation_plot, rows), f"participations of {system.key}") for rows in several]
    alike = [
        f"{seen_by(rows)}: each of {f.count(counts[0][1])} records takes part {f.count(counts[0][0])} times"
        for counts, rows in views.items()
        if len(counts) == 1
    ]
    blocks = (d.Bullets(alike), d.Group("small-plots", figures))
    return d.Fold("How often records take part", blocks, only=d.PAGE if views else d.Medium(0))


def _premises(system: SystemRow, place: str) -> Iterator[d.Block]:
    """What audits found of the premises; units with the same outcome share a row."""
    if not system.checks:
        return
    outcomes: dict[tuple[object, ...], list[CheckRow]] = {}
    for check in system.checks:
        outcomes.setdefault((check.audit, check.subject, check.verdict, check.reason), []).append(check)
    caption = (
        "Premises of the guarantees: messages, noise and sensitivity as declared, and no state that carries a record "
        "into other rounds"
    )
    title = f"{f.shorten(system.title, 60)} – premises"
    yield d.Heading("Do the premises hold?", only=d.PAGE)
    yield d.Heading("Premises", 3, only=d.MARKDOWN)
    usual, _ = Counter(check.reproduce for check in system.checks).most_common(1)[0]
    columns = (*_PREMISES, d.Column("Reproduce", partial(_own_command, usual), only=d.PAGE))
    yield d.Table(columns, list(outcomes.values()), title=title, caption=caption, place=f"{place}-checks")
    yield d.Command(usual, only=d.PAGE)
    # A search has a command for each pair that it saved; those of bounds that hold would hide the others.
    for command in dict.fromkeys(c.reproduce for c in system.checks if c.verdict is not Verdict.CONSISTENT):
        yield d.Command(command, only=d.MARKDOWN)


def _own_command(usual: str, rows: Sequence[CheckRow]) -> d.Content:
    """The first command but that of most checks, which stands below them: the units of a row have one witness."""
    own = next((row.reproduce for row in rows if row.reproduce != usual), "")
    return d.Span(own, "code") if own else "as below"


_PREMISES = (
    d.Column("Verdict", lambda rows: d.Badge(rows[0].verdict), only=d.MARKDOWN | d.PAGE),
    d.Column("Audit", lambda rows: f.clean(rows[0].audit)),
    d.Column("Of", lambda rows: f.clean(rows[0].subject)),
    d.Column("Unit", lambda rows: ", ".join(f.clean(row.unit) for row in rows), only=d.MARKDOWN | d.PAGE),
    d.Column("verdict", lambda rows: d.Badge(rows[0].verdict), only=d.TERMINAL),
    d.Column("Reason", lambda rows: f.clean(rows[0].reason), style="notes"),
)


def _attacks(system: SystemRow, place: str) -> Iterator[d.Block]:
    """The share of right guesses of each attack, and why others do not apply."""
    if not system.attacks:
        return
    applied = [row for row in system.attacks if row.not_applicable is None]
    yield d.Heading("What attacks reach", only=d.PAGE)
    yield d.Heading("What attacks reach", 3, only=d.MARKDOWN)
    caption = "Share of right guesses, against guessing blindly and against the same adversary without the protocol"
    title = f"{f.shorten(system.title, 60)} – attacks"
    if applied:
        yield d.Table(_ATTACKS, applied, title=title, caption=caption, place=f"{place}-attacks")
    else:
        yield d.Paragraph("No attack applies.", only=d.MARKDOWN)
    names = {row.attack for row in applied}
    yield from refused_line([row.attack for row in system.attacks if row.attack not in names])
    views: dict[tuple[str, str], list[str]] = {}
    for row in system.attacks:
        if row.not_applicable is not None:
            views.setdefault((row.attack, row.not_applicable), []).append(row.adversary)
    attacks: dict[tuple[str, str], list[str]] = {}
    for (attack, why), who in views.items():
        attacks.setdefault((", ".join(who), why), []).append(attack)
    if views:
        reasons = d.Bullets([f"{', '.join(some)}, seen by {who}: {why}" for (who, why), some in attacks.items()])
        number = len(views)
        yield d.Fold(f"{number} do{'es' if number == 1 else ''} not apply", (reasons,), only=d.PAGE)
        yield d.Fold("What does not apply", (reasons,), only=d.MARKDOWN)


_RATES = (
    d.Column(">Success", lambda a: d.Cell(f.percent(a.success), tone="strong")),
    d.Column(">Interval over records of one training", lambda a: f.interval(a.low, a.high), "interval/over records"),
    d.Column(">Chance", lambda a: f.percent(a.chance)),
    d.Column(">No signal", lambda a: f.percent(a.blind), "no/signal"),
)
_ATTACKS = (
    d.Column("Attack", lambda a: f.shorten(a.attack_name, 40)),
    d.Column("Seen by", lambda a: f.shorten(a.adversary, 24)),
    d.Column("?Target", lambda a: f.clean(a.target)),
    *_RATES,
    d.Column("?>Guesses", lambda a: f.sampled(a.guesses, a.population), only=d.PAGE | d.TERMINAL),
)


def attacks_summary(systems: Sequence[SystemRow], *, only: d.Medium) -> d.Block:
    """One table over these systems; attacks that do not apply are in the report only."""
    rows = [(system, attack) for system in systems for attack in system.attacks if attack.success is not None]
    named = not only & d.NOTEBOOK
    columns = [
        d.Column("System" if named else "system without a claim", lambda row: row[0].key),
        d.Column(
            ">Test accuracy",
            lambda row: f.percent(row[0].utility.accuracy if row[0].utility else None),
            only=~d.NOTEBOOK,
        ),
        d.Column("Attack", lambda row: row[1].attack_name),
        d.Column("Seen by", lambda row: row[1].adversary),
        d.Column(">Success", lambda row: f.percent(row[1].success)),
        d.Column(">Interval", lambda row: f.interval(row[1].low, row[1].high)),
        d.Column(">Chance", lambda row: f.percent(row[1].chance)),
        d.Column(">No signal", lambda row: f.percent(row[1].blind), only=~d.NOTEBOOK),
    ]
    return d.Table(columns, rows, only=only) if rows or not named else d.Paragraph("No attack applies.", only=only)


def attack_matrix(report: Report) -> Iterator[d.Block]:
    """One row per system, one column per attack that applies to some system, and why others do not apply."""
    tried = [attack for system in report.systems for attack in system.attacks]
    names = dict.fromkeys(attack.attack for attack in tried if attack.success is not None)
    reasons: dict[str, int] = {}
    rows = [(f"s{n}", system) for n, system in enumerate(report.systems, start=1) if system.attacks]
    columns = [
        d.Column("System", lambda row: d.link(f.clean(row[1].key), row[0])),
        d.Column(">Test accuracy", lambda row: f.percent(row[1].utility.accuracy if row[1].utility else None)),
        *(d.Column(f">{name}", partial(_matrix_cell, reasons, name), style="breakable") for name in names),
    ]
    if not tried:
        return
    if names:
        # The cells number the reasons, so they are made before the list of reasons is written.
        table = d.Table(columns, rows, caption=_MATRIX, place="matrix-caption")
        table.shown(d.PAGE)
        yield table
        yield d.Static("legend")
    else:
        yield d.Paragraph("No attack applies; the reasons are with each system.")
    if reasons:
        number = f"{len(reasons)} reason{'s' if len(reasons) > 1 else ''}"
        yield d.Fold(f"What does not apply, for {number}", (d.Bullets(list(reasons), "why"),))


def _matrix_cell(reasons: dict[str, int], name: str, row: tuple[str, SystemRow]) -> d.Cell:
    """An attack through the view that gains most; the number of the reason if it does not apply."""
    views = [attack for attack in row[1].attacks if attack.attack == name]
    best = max((a for a in views if a.success is not None), key=lambda a: a.leakage, default=None)
    if best is None:
        why = next((a.not_applicable for a in views if a.not_applicable), None) or "not tried on this system"
        return refused_cell(reasons.setdefault(why, len(reasons) + 1), "why")
    low = best.leakage - ((best.success or 0.0) - (best.low or 0.0))
    detail = (f"{f.percent(best.success)}, {f.clean(best.adversary)}",)
    return d.Cell(leak_points(best.leakage), detail=detail, tone=f"leak{leak_level(best.leakage, low)}")
