"""The report of an audit in a terminal: aligned tables, the verdict in the last line, readable without colour."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from vflpriv.common import formatting as f
from vflpriv.core.claims import SEVERITY, Verdict
from vflpriv.core.measurement import KNOWN_NOISE
from vflpriv.core.units import Unit
from vflpriv.render.console import Cell, Writer
from vflpriv.render.features import FeatureSection, features_table
from vflpriv.render.first_page.comparable import NO_BOUND, Shown, accounted, claimed, measured, verdict_words
from vflpriv.render.first_page.page import FirstPage, Group
from vflpriv.render.shared import banner, measurement_sentences, tabled, trial_sentences, upper_bound, why_infinite
from vflpriv.report.attacks import FeatureCell
from vflpriv.report.audit import BudgetRow, ClaimRow, MeasurementRow, Report, SuccessClaimRow, SystemRow

__all__ = ["print_features", "print_refused", "print_report"]

_STYLES = {
    Verdict.VIOLATED: "bold red",
    Verdict.UNSUPPORTED: "bold yellow",
    Verdict.UNMEASURED: "bold blue",
    Verdict.CONSISTENT: "bold green",
    Verdict.NOT_APPLICABLE: "dim",
}

_UNITS_SHOWN = (Unit.LABEL, Unit.FEATURES)
"""Units whose budgets are printed for a system without claims; the HTML page has all units."""


def print_report(report: Report, console: Console) -> None:
    """Claims first, then the evidence of each system, then one line with the verdict."""
    writer = Writer(console)
    claims = [(system, claim) for system in report.systems for claim in system.claims]
    claims.sort(key=lambda pair: SEVERITY.index(pair[1].verdict))
    if claims:
        writer.table("Claims, worst first", _CLAIMS, (_claim(system, claim) for system, claim in claims), leading=1)
    about_attacks = [(system, claim) for system in report.systems for claim in system.success_claims]
    if about_attacks:
        rows = (_success_claim(system, claim) for system, claim in about_attacks)
        writer.table("Claims about attacks", _SUCCESS_CLAIMS, rows, leading=1)
    for system in report.systems:
        _system(writer, system)
    print_features(report.features, writer)
    reasons = [
        (
            _verdict(c.verdict),
            f"{f.shorten(s.key, 30)}, {f.shorten(c.key, 60)}: {f.clean(c.reason)}\n$ {f.shorten(c.reproduce, 2000)}",
        )
        for s in report.systems
        for c in s.all_claims
    ]
    writer.list(reasons)
    writer.list([(Text("to change", style="bold"), _change(group)) for group in FirstPage(report).findings])
    verdict = report.verdict
    icon, style = (f"{verdict.icon} ", _STYLES[verdict]) if verdict else ("", "bold")
    writer.line(Text(f"{icon}{banner(report)}", style))


def print_features(cells: Sequence[FeatureCell], writer: Writer) -> None:
    """The results of attacks on features, the reasons why others do not apply, and the worst leak in one line."""
    if not cells:
        return
    section = FeatureSection(cells)
    if section.attacks:
        writer.table(*features_table(section))
    print_refused([name for name, _ in section.reasons if name not in section.attacks], writer)
    writer.line(Text(section.headline, style="bold"))


def _verdict(verdict: Verdict) -> Text:
    return Text(f"{verdict.icon} {verdict}", style=_STYLES[verdict])


_CLAIMS = "system/claim;seen by/unit;>claimed;?>accounted,/paper;>accounted;>measured;verdict"
_SUCCESS_CLAIMS = "system/claim;seen by, unit/attack;>claimed/success ≤;>measured/success;?>interval;verdict"
_MEASURED = ">trials;>FPR;>FNR;>ε ≥/any;>ε ≥/Gauss;>μ ≥;?>μ ≥/known σ;?>of accounted/μ;>p/Holm;refutes"


def _claim(system: SystemRow, claim: ClaimRow) -> tuple[Cell, ...]:
    return (
        f"{f.shorten(system.key, 20)}\n{f.shorten(claim.key, 40)}",
        f"{f.shorten(claim.adversary, 30)}\n{f.clean(claim.unit)}",
        claimed(claim).lines,
        _two_lines(accounted(claim.paper_reading)),
        _two_lines(accounted(claim.accounted)),
        measured(claim).lines,
        _words(claim),
    )


def _two_lines(shown: Shown) -> str:
    """The number with its second line; words on two lines by themselves."""
    return "no useful\nbound" if shown.main == NO_BOUND else shown.lines


def _words(claim: ClaimRow | SuccessClaimRow) -> Text:
    """The verdict in a narrow column."""
    words = verdict_words(claim).replace(" · ", "_·\n").replace(" ", "\n").replace("_", " ")
    return Text(f"{claim.verdict.icon} " + words.replace("\n", "\n  "), style=_STYLES[claim.verdict])


def _change(group: Group) -> str:
    """What to change for the claims of a system."""
    return f"{f.shorten(group.system.key, 30)}{f', {group.scope}' if group.scope else ''}: {' '.join(group.changes)}"


def _success_claim(system: SystemRow, claim: SuccessClaimRow) -> tuple[Cell, ...]:
    return (
        f"{f.shorten(system.key, 20)}\n{f.shorten(claim.key, 40)}",
        f"{f.shorten(claim.adversary, 30)}, {f.clean(claim.unit)}\n{f.shorten(claim.attack, 40)}",
        f.percent(claim.rate),
        f.percent(claim.success),
        f.interval(claim.low, claim.high),
        _words(claim),
    )


def _system(writer: Writer, system: SystemRow) -> None:
    title = f.shorten(system.title, 60)
    for claim in system.claims:
        rows = tabled(claim)
        if rows:
            name = f"{title} – measured for {f.shorten(claim.key, 40)}"
            writer.table(name, f"canary;{_MEASURED}", (_measurement(row) for row in rows))
        for sentence in trial_sentences(claim):
            writer.line(f"{sentence}.")
        for sentence in measurement_sentences(claim):
            writer.line(f"{title} – {f.shorten(claim.key, 40)}. {sentence}")
    # The budgets of claims are in the first table; the other budgets would only distract from it.
    if system.budgets and not system.claims:
        rows = [_budget(row) for row in system.budgets if row.unit in _UNITS_SHOWN]
        writer.table(f"{title} – accounted", "seen by;unit;reading;>ε ≤;>μ;?batches;?>participations;note", rows)
    if system.sensitivity:
        _sensitivity(writer, system, f"{title} – sensitivity")
    if system.checks:
        rows = [(f.clean(c.audit), f.clean(c.subject), _verdict(c.verdict), f.clean(c.reason)) for c in system.checks]
        writer.table(f"{title} – premises", "audit;of;verdict;reason", rows)
    if system.attacks:
        _attacks(writer, system, f"{title} – attacks")
    if system.importance_caveat:
        writer.line(f"{title} – importance of each device. {f.clean(system.importance_caveat)}")


def _measurement(row: MeasurementRow) -> tuple[Cell, ...]:
    rates = (None, None) if row.errors is None else row.errors.rates
    return (
        f.shorten(row.subject, 20),
        f.count(row.trials),
        *map(f.percent, rates),
        f.epsilon(row.epsilon),
        f.epsilon(row.epsilon_gaussian),
        f.mu(row.mu),
        f.mu(row.bound(KNOWN_NOISE)),
        f.ratio(row.mu, row.mu_accounted),
        f.p_value(row.p_adjusted),
        Text("yes", style="bold red") if row.refutes else "no",
    )


def _budget(row: BudgetRow) -> tuple[Cell, ...]:
    names = (f.shorten(row.adversary, 24), f.clean(row.unit), f.shorten(row.reading, 12))
    if row.not_applicable is not None:
        return (*names, "n/a", f.NOTHING, f.clean(row.batches), f.NOTHING, f.shorten(row.not_applicable, 120))
    numbers = (upper_bound(row), f.mu(row.mu), f.clean(row.batches), f.count(row.participations))
    return (*names, *numbers, f.shorten(why_infinite(row), 120))


def _sensitivity(writer: Writer, system: SystemRow, title: str) -> None:
    """Units with the same search result share a line."""
    units: dict[tuple[str, ...], list[str]] = {}
    for row in system.sensitivity:
        numbers = (f.exact(row.declared), f.exact(row.observed), f.count(row.searched))
        key = (
            f.shorten(row.mechanism, 60),
            *numbers,
            f.shorten(row.witness, 120),
            "not broken" if row.holds else "broken",
        )
        units.setdefault(key, []).append(f.clean(row.unit))
    rows = [
        (name, ", ".join(names), *numbers, Text(outcome, style="bold red") if outcome == "broken" else outcome)
        for (name, *numbers, outcome), names in units.items()
    ]
    writer.table(title, "mechanism;unit;>declared;>observed;?>searched;witness;holds?", rows)


def _attacks(writer: Writer, system: SystemRow, title: str) -> None:
    """Successes in a table; what does not apply in one line."""
    rows: list[tuple[Cell, ...]] = []
    others: dict[str, None] = {}
    for row in system.attacks:
        names = (f.shorten(row.attack, 40), f.shorten(row.adversary, 24))
        if row.not_applicable is not None:
            others[names[0]] = None
            continue
        numbers = (f.percent(row.success), f.interval(row.low, row.high), f.percent(row.chance), f.percent(row.blind))
        rows.append((*names, f.clean(row.target), *numbers, f.sampled(row.guesses, row.population)))
    if rows:
        writer.table(title, "attack;seen by;?target;>success;>interval/over records;>chance;>no/signal;?>guesses", rows)
    print_refused([name for name in others if name not in {row[0] for row in rows}], writer)


def print_refused(names: Sequence[str], writer: Writer) -> None:
    """One line for all attacks that apply nowhere; the reports say why."""
    distinct = list(dict.fromkeys(f.shorten(name, 40) for name in names))
    if distinct:
        writer.line(f"Not applicable, for reasons that the report gives: {', '.join(distinct)}.")
