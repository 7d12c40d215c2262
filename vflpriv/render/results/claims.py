"""What is said of one claim: the numbers side by side, the reason for its verdict, and the evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from vflpriv.common import formatting as f
from vflpriv.core.audit import KNOWN_NOISE
from vflpriv.core.claims import Verdict
from vflpriv.render import document as d
from vflpriv.render.first_page.comparable import (
    NO_BOUND,
    accounted,
    bound,
    cause,
    claimed,
    measured,
    verdict_words,
)
from vflpriv.render.first_page.page import Line
from vflpriv.render.plots.budgets import records_plot, rounds_plot
from vflpriv.render.plots.tradeoff import tradeoff_plot
from vflpriv.render.shared import measurement_sentences, tabled, trial_sentences, why_infinite
from vflpriv.render.statement import statement
from vflpriv.report.audit import BudgetRow, ClaimRow, MeasurementRow, Report, SuccessClaimRow, SystemRow
from vflpriv.report.rows import USEFUL, ViewBudget

__all__ = ["claim_card", "claims_table", "success_claims_table"]

AnyClaim = ClaimRow | SuccessClaimRow
_NAMED = d.WRITTEN | d.NOTEBOOK


def claims_table(lines: Sequence[Line], *, only: d.Medium, caption: str = "", place: str = "") -> d.Table:
    """Claims beside their numbers; on a page each has the sentence that says what its verdict means below it."""
    return d.Table(
        _CLAIMS,
        lines,
        title="Claims, worst first",
        caption=caption,
        place=place,
        style="claims",
        tall=True,
        below=lambda line: line.meaning,
        only=only,
    )


def _verdict(claim: AnyClaim) -> d.Badge:
    return d.Badge(claim.verdict, verdict_words(claim))


def _narrow_verdict(claim: AnyClaim) -> d.Badge:
    """The verdict in a narrow column."""
    return d.Badge(claim.verdict, verdict_words(claim).replace(" · ", ",\n").replace(" ", "\n"))


def _on_page(line: Line) -> d.Cell:
    """The claim's statement, which leads to its evidence, and where it comes from."""
    claim = line.claim
    last = f"δ = {f.delta(claim.delta)}" if isinstance(claim, ClaimRow) else claim.attack
    detail = f"{claim.source}, {claim.where}; {claim.unit}, seen by {claim.adversary}; {last}"
    return d.Cell(d.link(f"“{f.clean(claim.statement)}”", line.place), detail=(detail,))


def _accounted(claim: AnyClaim) -> d.Cell:
    if isinstance(claim, SuccessClaimRow):
        return d.Cell("no ε")
    shown = accounted(claim.accounted)
    return d.Cell(shown.main, below=shown.below, exact=f.exact(claim.accounted.epsilon_upper))


def _accounted_in_words(claim: AnyClaim) -> str:
    """The rigorous bound, and the paper's own where it differs."""
    if isinstance(claim, SuccessClaimRow):
        return "no ε"
    paper = claim.paper_reading
    return accounted(claim.accounted).line + (f"; as in the paper ε ≤ {bound(paper.epsilon_upper)}" if paper else "")


def _narrow_accounted(budget: BudgetRow | None) -> d.Cell:
    shown = accounted(budget)
    return d.Cell("no useful", below="bound") if shown.main == NO_BOUND else shown.cell


def _measured(claim: AnyClaim) -> d.Cell:
    shown = measured(claim)
    return d.Cell(shown.main, below=shown.below, tone="strong" if claim.verdict is Verdict.VIOLATED else "")


def _narrow_measured(claim: AnyClaim) -> d.Cell:
    """The figures with what they assume on a line of its own, so that the table fits a terminal of 80 columns."""
    shown = measured(claim)
    return d.Cell(shown.main.replace(", if", ",\nif"), below=shown.below.replace(", if", ",\nif"))


_CLAIMS = (
    d.Column("Verdict", lambda line: _verdict(line.claim), only=_NAMED),
    d.Column("System", lambda line: line.system.key, only=_NAMED),
    d.Column(
        "system/claim",
        lambda line: d.Cell(f.shorten(line.system.key, 20), below=f.shorten(line.claim.key, 40)),
        only=d.TERMINAL,
    ),
    d.Column(
        "Claim",
        lambda line: f"“{f.clean(line.claim.statement)}” ({line.claim.source}, {line.claim.where})",
        only=d.WRITTEN,
    ),
    d.Column("Claim", lambda line: line.claim.key, only=d.NOTEBOOK),
    d.Column("Claim", _on_page, only=d.PAGE),
    d.Column("Seen by", lambda line: line.claim.adversary, only=_NAMED),
    d.Column("Unit", lambda line: line.claim.unit, only=_NAMED),
    d.Column(
        "seen by/unit",
        lambda line: d.Cell(f.shorten(line.claim.adversary, 30), below=f.clean(line.claim.unit)),
        only=d.TERMINAL,
    ),
    d.Column(">Claimed", lambda line: claimed(line.claim).cell),
    d.Column("?>accounted,/paper", lambda line: _narrow_accounted(line.claim.paper_reading), only=d.TERMINAL),
    d.Column(">accounted", lambda line: _narrow_accounted(line.claim.accounted), only=d.TERMINAL),
    d.Column(">Accounted", lambda line: _accounted_in_words(line.claim), only=d.WRITTEN),
    d.Column(">Accounted", lambda line: _accounted(line.claim), only=d.PAGE | d.NOTEBOOK),
    d.Column(">Measured", lambda line: _measured(line.claim), only=~d.TERMINAL),
    d.Column(">measured", lambda line: _narrow_measured(line.claim), only=d.TERMINAL),
    d.Column(
        ">δ",
        lambda line: f.delta(line.claim.delta) if isinstance(line.claim, ClaimRow) else f.NOTHING,
        only=_NAMED,
    ),
    d.Column("Verdict", lambda line: _verdict(line.claim), only=d.PAGE),
    d.Column("verdict", lambda line: _narrow_verdict(line.claim), only=d.TERMINAL),
)


def success_claims_table(report: Report) -> d.Table:
    """Claims about attacks, which have no ε, in a terminal."""
    rows = [(system, claim) for system in report.systems for claim in system.success_claims]
    columns = (
        d.Column("system/claim", lambda row: d.Cell(f.shorten(row[0].key, 20), below=f.shorten(row[1].key, 40))),
        d.Column(
            "seen by, unit/attack",
            lambda row: d.Cell(
                f"{f.shorten(row[1].adversary, 30)}, {f.clean(row[1].unit)}", below=f.shorten(row[1].attack, 40)
            ),
        ),
        d.Column(">claimed/success ≤", lambda row: f.percent(row[1].rate)),
        d.Column(">measured/success", lambda row: f.percent(row[1].success)),
        d.Column("?>interval", lambda row: f.interval(row[1].low, row[1].high)),
        d.Column("verdict", lambda row: _narrow_verdict(row[1])),
    )
    return d.Table(columns, rows, title="Claims about attacks", tall=True, only=d.TERMINAL)


class _Alone(NamedTuple):
    """A claim without its system."""

    claim: AnyClaim


@d.described_by.register(ClaimRow)
@d.described_by.register(SuccessClaimRow)
def claim_document(claim: AnyClaim) -> d.Document:
    """One claim in a shell or a notebook."""
    columns = [column for column in _CLAIMS if column.title != "System"]
    notes = (claim.reason, *(change.sentence for change in claim.changes), claim.reproduce)
    return d.Document(
        headline=f"{claim.source}, {claim.where}",
        line=f.clean(f"{claim.key}, seen by {claim.adversary}: {claim.verdict}"),
        verdict=claim.verdict,
        blocks=(
            d.Table(columns, [_Alone(claim)], only=d.NOTEBOOK),
            *(d.Paragraph(note, only=d.NOTEBOOK) for note in notes),
        ),
    )


def claim_card(report: Report, system: SystemRow, claim: AnyClaim, place: str) -> d.Card:
    """The claim's verdict with its reason, its numbers, the command that repeats it, and the evidence."""
    title = (f"{claim.source}, {claim.where}, ", d.muted(f"seen by {claim.adversary}"))
    blocks: list[d.Block] = [
        d.Paragraph(claim.reason, "reason", only=d.PAGE),
        d.Paragraph((d.strong(verdict_words(claim)), f": {claim.reason}"), only=d.MARKDOWN),
    ]
    if isinstance(claim, ClaimRow):
        blocks += _claim(report, system, claim, place)
    else:
        blocks += _success_claim(report, claim)
    return d.Card(title, _verdict(claim), blocks, place, "claim")


def _claim(report: Report, system: SystemRow, claim: ClaimRow, place: str) -> Iterator[d.Block]:
    for change in claim.changes:
        yield d.Paragraph((d.strong("To change:"), f" {change.sentence}"), "to-change", only=d.PAGE)
    unit = f"“{f.clean(claim.statement)}” Unit: {claim.unit} – {claim.unit_description}."
    yield d.Paragraph(unit, "muted", only=d.PAGE)
    yield d.Group("three", list(_numbers(claim)), only=d.PAGE)
    if claim.views:
        yield d.Heading("Accounted for the same unit and δ, by adversary", 5, only=d.PAGE)
        names: dict[d.Content, list[str]] = {}
        for view in claim.views:
            names.setdefault(_view(view), []).append(view.adversary)
        yield d.Terms([(", ".join(views), bound) for bound, views in names.items()], "views", only=d.PAGE)
    yield d.Heading("Reproduce", 5, only=d.PAGE)
    yield d.Command(claim.reproduce, only=d.PAGE)
    tests = list(_tests(system, claim, place))
    shown = claim.verdict is Verdict.VIOLATED
    evidence = [*_figures(claim), *tests]
    yield d.Fold(_evidence_summary(claim), evidence, "evidence", opened=shown, only=d.PAGE)
    yield d.Group("", tests, only=d.MARKDOWN | d.TERMINAL)
    systems = tuple(f"{s.key}: " for s in report.systems)
    shared = {line for line in report.not_tested if not line.startswith(systems)}
    terms = [(name, _lines(_stated(lines, shared))) for name, lines in statement(report, system, claim)]
    yield d.Fold("Differential-privacy statement", (d.Terms(terms),), "statement", only=d.PAGE)
    yield d.Command(claim.reproduce, only=d.MARKDOWN)


def _stated(lines: Sequence[str], shared: Collection[str]) -> list[d.Content]:
    """The lines of a statement; those that every statement of the page has stand in a section of their own."""
    own: list[d.Content] = [line for line in lines if line not in shared]
    number = len(lines) - len(own)
    return own + [d.link(f"{f.count(number)} more of all systems: what was not tested", "untested")] * bool(number)


def _lines(lines: Sequence[d.Content]) -> d.Content:
    return lines[0] if len(lines) == 1 else d.Bullets(lines)


def _evidence_summary(claim: ClaimRow) -> str:
    number = len(claim.measurements)
    tests = f"{number} measurement{'s' if number > 1 else ''}, " if number else ""
    spending = "ε over rounds and records, " if claim.spending else ""
    return f"Evidence: trade-off curve, {tests}{spending}assumptions"


def _numbers(claim: ClaimRow) -> Iterator[d.Number]:
    """Claimed, accounted and measured, side by side."""
    at = f"δ = {f.delta(claim.delta)}"
    where = f"{at}; {claim.unit}, seen by {claim.adversary}"
    claimed_mu = f"μ = {f.mu(claim.mu)}"
    exact = f.exact(claim.epsilon)
    yield d.Number("Claimed", f.epsilon(claim.epsilon), claimed_mu, (where,), sign="ε =", exact=exact)
    if claim.paper_reading:
        yield _accounted_number("Accounted, paper’s reading", claim.paper_reading)
    yield _accounted_number("Accounted, rigorous" if claim.paper_reading else "Accounted", claim.accounted)
    best, shown = claim.deciding, measured(claim)
    if best is None:
        value = f"{cause(claim)} broken" if cause(claim) else shown.main
        yield d.Number("Measured", value, figure=False, style="measured")
        return
    certain = "exactly" if best.exact else "with certainty"
    sure = certain if best.proves else f"at {f.confidence(best.confidence)} confidence"
    line = f"{at}, {sure}; {best.unit}, seen by {best.adversary}; {best.effort}"
    sign, _, value = shown.main.rpartition(" ")
    yield d.Number("Measured", value, shown.below, (line,), sign=sign, style="measured")


def _accounted_number(label: str, budget: BudgetRow) -> d.Number:
    if budget.not_applicable is not None:
        return d.Number(label, "not applicable", lines=(budget.not_applicable,), figure=False)
    where = f"δ = {f.delta(budget.delta)}; {budget.unit}, seen by {budget.adversary}, batches {budget.batches}"
    if budget.participations is not None:
        where += f"; worst record takes part {f.count(budget.participations)} times"
    infinite = why_infinite(budget)
    alarms = [f"∞ because {infinite}"] * bool(infinite) + [f"only if {text}" for text in budget.assumed]
    lines: list[d.Content] = [where, *(d.Span(text, "alarm") for text in alarms)]
    upper, exact = f.epsilon(budget.epsilon_upper), f.exact(budget.epsilon_upper)
    mu = "" if budget.mu is None else f"μ = {f.mu(budget.mu)}"
    if budget.epsilon_upper <= USEFUL:
        return d.Number(label, upper, mu, lines, sign="ε ≤", exact=exact)
    return d.Number(label, NO_BOUND, ", ".join(filter(None, (f"ε ≤ {upper}", mu))), lines, exact=exact, figure=False)


def _view(view: ViewBudget) -> d.Content:
    """The budget of one adversary, and what makes it infinite."""
    if view.not_applicable is not None:
        return (d.Span("n/a", "muted"), d.Span(view.not_applicable, "sub"))
    lines = [
        d.Span(f"{text.split(' (')[0]} {text.split(') ')[-1]}", "sub alarm") for text in map(f.clean, view.unprotected)
    ]
    lines += [d.Span(f"only if {text}", "sub alarm") for text in view.assumed]
    if view.paper_reading is not None:
        lines.insert(0, d.Span(f"paper’s reading: {f.epsilon(view.paper_reading)}", "sub"))
    bound_ = d.Span(f.epsilon(view.epsilon_upper), "strong", exact=f.exact(view.epsilon_upper))
    return ("ε ≤ ", bound_, *lines, d.Span(f"batches {view.batches}", "sub"))


def _figures(claim: ClaimRow) -> Iterator[d.Block]:
    """The trade-off curve beside the assumptions, and what the run spent over rounds and records."""
    readings = [("Paper’s reading", claim.paper_reading), ("Rigorous", claim.accounted)]
    assumptions: list[d.Block] = [d.Heading("Assumptions", 5)]
    for name, budget in readings:
        if budget is not None:
            by = d.muted(f"({budget.accountant}, {budget.method})")
            assumptions.append(d.Paragraph((f"{name} ", by), "label"))
            # What is not protected stands beside the figure, as the reason why it is infinite.
            taken = [line for line in budget.assumptions if not line.startswith("unprotected: ")]
            assumptions.append(d.Bullets(taken or (d.muted("none recorded"),)))
    curve = d.Figure(lambda: tradeoff_plot(claim), f"the trade-off curve of {claim.key}")
    yield d.Group("columns", (curve, d.Group("aside", assumptions)))
    if claim.spending:
        rounds = d.Figure(lambda: rounds_plot(claim), f"ε over rounds of {claim.key}")
        records = [
            d.Figure(partial(records_plot, claim, spent), f"ε over records of {claim.key}") for spent in claim.spending
        ]
        yield d.Group("small-plots", (rounds, *records))
        for spent in claim.spending:
            if len(spent.records) == 1:
                ((own, _, number),) = spent.records
                same = f"each of {f.count(number)} records spends ε = {f.exact(own)} by itself"
                yield d.Paragraph(f"In the {spent.reading} reading {same}.", "muted")
        if not any(spent.records for spent in claim.spending):
            yield d.Paragraph(_NO_RECORDS, "muted")


_NO_RECORDS = (
    "No record has an ε of its own: batches are secret, noise is not only Gaussian, or the unit is not a record."
)


def _tests(system: SystemRow, claim: ClaimRow, place: str) -> Iterator[d.Block]:
    """Every measurement with its errors and bounds, and how it was made."""
    title = f.shorten(system.title, 60)
    rows = tabled(claim)
    if rows:
        name = f"{title} – measured for {f.shorten(claim.key, 40)}"
        at = f"claimed μ = {f.mu(claim.mu)}, ε at δ = {f.delta(claim.delta)}"
        caption = f"What this claim was measured with ({at})"
        yield d.Table(_MEASUREMENTS, rows, title=name, caption=caption, place=f"{place}-measured")
    for reason in dict.fromkeys(row.gaussian_refusal for row in claim.measurements):
        if reason is not None:
            yield d.Paragraph(f"No ε by way of μ: {reason}.", "muted", only=d.MARKDOWN | d.PAGE)
    for sentence in trial_sentences(claim):
        yield d.Paragraph(f"{sentence}.", "muted")
    for sentence in measurement_sentences(claim):
        yield d.Paragraph(f"{title} – {f.shorten(claim.key, 40)}. {sentence}", only=d.TERMINAL)
        yield d.Paragraph(f"{sentence}.", only=d.MARKDOWN | d.PAGE)
    yield d.Bullets(list(dict.fromkeys(line for row in claim.measurements for line in row.assumptions)), only=d.PAGE)


def _rates(row: MeasurementRow) -> tuple[d.Cell, d.Cell]:
    """The shares of false positives and of false negatives; pages have their numbers, too."""
    if row.errors is None:
        return d.Cell(f.NOTHING), d.Cell(f.NOTHING)
    counts = (row.errors.false_positives, row.errors.false_negatives)
    positives, negatives = (
        d.Cell(f.percent(rate), detail=(f.count(number),))
        for rate, number in zip(row.errors.rates, counts, strict=True)
    )
    return positives, negatives


def _exact(shown: str, value: float | None, *, tone: str = "", below: str = "", equal: bool = False) -> d.Cell:
    signed = f"= {shown}" if equal and value is not None else shown
    return d.Cell(signed, exact=f.exact(value), tone=tone, detail=(below,) * bool(below))


def _known_noise(row: MeasurementRow) -> d.Cell:
    return _exact(f.mu(row.bound(KNOWN_NOISE)), row.bound(KNOWN_NOISE))


_RECTANGLE = "two separate error rates"
"""What a bound on μ is called that keeps an interval of each error rate."""
_BRIEF = d.MARKDOWN | d.TERMINAL
_MEASUREMENTS = (
    d.Column("Canary", lambda m: f.shorten(m.subject, 20), only=d.TERMINAL),
    d.Column("Canary", lambda m: d.Cell(m.subject, detail=(f"{m.description}; {m.method}",)), only=~d.TERMINAL),
    d.Column("Score", lambda m: m.method, only=d.MARKDOWN),
    d.Column(">Trials per world", lambda m: f.count(m.trials), "trials"),
    d.Column(">False positives", lambda m: _rates(m)[0], "FPR"),
    d.Column(">False negatives", lambda m: _rates(m)[1], "FNR"),
    d.Column(
        ">ε ≥, any mechanism",
        lambda m: _exact(f.epsilon(m.epsilon), m.epsilon, tone="strong", equal=m.exact),
        "ε ≥/any",
    ),
    d.Column(">ε ≥, Gaussian", lambda m: _exact(f.epsilon(m.epsilon_gaussian), m.epsilon_gaussian), "ε ≥/Gauss"),
    d.Column(">μ ≥", lambda m: _exact(f.mu(m.mu), m.mu, equal=m.exact), only=_BRIEF),
    d.Column(
        ">μ ≥, rectangle below",
        lambda m: _exact(f.mu(m.mu), m.mu, tone="strong", below=f.mu(m.bound(_RECTANGLE)), equal=m.exact),
        only=d.PAGE,
    ),
    d.Column("?>μ ≥, known σ", _known_noise, "μ ≥/known σ", _BRIEF),
    d.Column(">μ ≥, if the noise is as stated", _known_noise, only=d.PAGE),
    d.Column("?>Share of accounted μ", lambda m: f.ratio(m.mu, m.mu_accounted), "of accounted/μ"),
    d.Column(">p, Holm", lambda m: f.p_value(m.p_adjusted), "p/Holm", _BRIEF),
    d.Column(
        ">p, Holm; without below",
        lambda m: d.Cell(f.p_value(m.p_adjusted), detail=(f.p_value(m.p_value),)),
        only=d.PAGE,
    ),
    d.Column("Refutes?", lambda m: d.Cell("yes", tone="alarm") if m.refutes else "no", "refutes"),
)


def _success_claim(report: Report, claim: SuccessClaimRow) -> Iterator[d.Block]:
    yield d.Paragraph(f"“{f.clean(claim.statement)}” Unit: {claim.unit}.", "muted", only=d.PAGE)
    about = f"of the guesses of {claim.attack} are right; no ε"
    numbers = [d.Number("Claimed", f.percent(claim.rate), lines=(about,), sign="at most")]
    if claim.success is None:
        numbers.append(d.Number("Measured", "not measured", figure=False, style="measured"))
    else:
        guesses = f"{f.count(claim.guesses)} guesses"
        several = f"mean and interval of {f.count(claim.trainings)} trainings of {guesses}"
        sample = several if claim.trainings > 1 else f"{guesses} of one training"
        interval = f"{f.interval(claim.low, claim.high)} at {f.confidence(report.confidence)} confidence"
        line = f"{interval}; {sample}, chance {f.percent(claim.chance)}; p, Holm {f.p_value(claim.p_adjusted)}"
        numbers.append(d.Number("Measured", f.percent(claim.success), lines=(line,), style="measured"))
    yield d.Group("three", numbers, only=d.PAGE)
    yield d.Command(claim.reproduce, only=d.MARKDOWN | d.PAGE)
