"""Results in a shell and in a notebook: one line, or a headline and small tables as HTML or as Markdown."""

from __future__ import annotations

from functools import singledispatch

from vflpriv.common import formatting as f
from vflpriv.common.registry import register
from vflpriv.core.claims import Verdict
from vflpriv.render.first_page.comparable import accounted, claimed, measured, verdict_words
from vflpriv.render.grid import Grid
from vflpriv.render.html.page import environment
from vflpriv.render.markdown import escape
from vflpriv.render.overview import Overview
from vflpriv.render.pages import page_of
from vflpriv.render.shared import banner, upper_bound
from vflpriv.report.account import Accounts
from vflpriv.report.attacks import AttackReport
from vflpriv.report.audit import ClaimRow, Report, SuccessClaimRow
from vflpriv.report.train import TrainReport

__all__ = ["HtmlDisplay", "LineDisplay", "MarkdownDisplay", "overview"]


@register("display")
class LineDisplay:
    """The `repr` of a result."""

    name = "line"
    summary = "one line, for a shell"

    def render(self, result: object) -> str:
        """The type and the one line of the overview."""
        return f"<{type(result).__name__}: {overview(result).line}>"


@register("display")
class HtmlDisplay:
    """What a notebook shows of a result."""

    name = "html"
    summary = "a fragment of HTML with its own style"

    def render(self, result: object) -> str:
        """Every text in it is escaped."""
        return environment().get_template("notebook.html.j2").render(shown=overview(result))


@register("display")
class MarkdownDisplay:
    """What is shown of a result where only Markdown can be shown."""

    name = "markdown"
    summary = "a headline and tables in Markdown"

    def render(self, result: object) -> str:
        """Every text in it is escaped."""
        shown = overview(result)
        blocks = [f"**{escape(shown.headline)}**"]
        blocks += [grid.markdown for grid in shown.grids]
        return "\n\n".join([*blocks, *(escape(note) for note in shown.notes)]) + "\n"


@singledispatch
def overview(result: object) -> Overview:
    """What is shown of a result, by its type."""
    page = page_of(result)
    if page is None:
        raise TypeError(f"no overview of {type(result).__name__}")
    return page.overview(result)


_CLAIMS = "verdict;system;claim;seen by;unit;>δ;>claimed;>accounted;>measured"
_SUCCESS_CLAIMS = "verdict;system;claim;seen by;attack;>claimed ≤;>measured;>interval"


@overview.register
def _(report: Report) -> Overview:
    rows = [_claim(s.key, c) for s in report.systems for c in s.claims]
    about_attacks = [_success_claim(s.key, c) for s in report.systems for c in s.success_claims]
    attacks = [
        (s.key, a.attack, a.adversary, f.percent(a.success), f.interval(a.low, a.high), f.percent(a.chance))
        for s in report.systems
        if not s.all_claims
        for a in s.attacks
        if a.success is not None
    ]
    grids = [Grid(_CLAIMS, rows), Grid(_SUCCESS_CLAIMS, about_attacks)]
    grids.append(Grid("system without a claim;attack;seen by;>success;>interval;>chance", attacks))
    return Overview(
        banner(report),
        f"{report.headline}; exit code {report.exit_code}",
        report.verdict,
        tuple(grid for grid in grids if grid.rows),
        (
            f"Confidence: intervals at {f.confidence(report.confidence)}, verdicts at "
            f"{f.confidence(report.verdict_confidence)}; seed {report.seed}.",
        ),
    )


@overview.register
def _(claim: ClaimRow) -> Overview:
    row = _claim("", claim)
    grid = Grid(_CLAIMS.replace("system;", ""), [(row[0], *row[2:])])
    return _claim_overview(claim, grid)


@overview.register
def _(claim: SuccessClaimRow) -> Overview:
    row = _success_claim("", claim)
    grid = Grid(_SUCCESS_CLAIMS.replace("system;", ""), [(row[0], *row[2:])])
    return _claim_overview(claim, grid)


def _claim_overview(claim: ClaimRow | SuccessClaimRow, grid: Grid) -> Overview:
    name = f"{claim.source}, {claim.where}"
    line = f"{claim.key}, seen by {claim.adversary}: {claim.verdict}"
    notes = (claim.reason, *(change.sentence for change in claim.changes), claim.reproduce)
    return Overview(name, f.clean(line), claim.verdict, (grid,), notes)


def _claim(system: str, claim: ClaimRow) -> tuple[str, ...]:
    names = (f"{claim.verdict.icon} {verdict_words(claim)}", system, claim.key, claim.adversary, claim.unit)
    shown = (claimed(claim), accounted(claim.accounted), measured(claim))
    return (*names, f.delta(claim.delta), *(number.line for number in shown))


def _success_claim(system: str, claim: SuccessClaimRow) -> tuple[str, ...]:
    names = (f"{claim.verdict.icon} {claim.verdict}", system, claim.key, claim.adversary, claim.attack)
    success = "not measured" if claim.success is None else f.percent(claim.success)
    return (*names, f.percent(claim.rate), success, f.interval(claim.low, claim.high))


@overview.register
def _(report: AttackReport) -> Overview:
    rows = []
    for cell in report.cells:
        if cell.leakage is not None:
            names = (cell.system, cell.defence, cell.attack, cell.adversary)
            rows.append(
                (*names, f.percent(cell.success), f.percent(cell.leakage), f.seeds_interval(cell.low, cell.high))
            )
    grid = Grid("system;defence;attack;seen by;>success;>leakage;>interval", rows)
    verdict = Verdict.VIOLATED if report.broken else None
    line = f"{report.headline}; exit code {report.exit_code}"
    return Overview(report.headline.capitalize(), line, verdict, (grid,) if rows else (), report.broken)


@overview.register
def _(accounts: Accounts) -> Overview:
    claims, budgets = [], []
    for s in accounts.systems:
        for c in s.claims:
            names = (s.key, c.key, c.adversary, c.unit, f.delta(c.delta), f.epsilon(c.epsilon))
            claims.append((*names, upper_bound(c.accounted)))
        applicable = [b for b in s.budgets if b.not_applicable is None]
        budgets += [
            (s.key, b.adversary, b.unit, b.batches, b.reading, f.delta(b.delta), upper_bound(b)) for b in applicable
        ]
    grids = [Grid("system;claim;seen by;unit;>δ;>claimed ε;>accounted ε ≤", claims)]
    grids.append(Grid("system;seen by;unit;batches;reading;>δ;>accounted ε ≤", budgets))
    line = f"budgets of {len(accounts.systems)} systems by {accounts.accountant}"
    headline = f"Accounted budgets, by the accountant {accounts.accountant}"
    return Overview(headline, line, None, tuple(grid for grid in grids if grid.rows))


@overview.register
def _(report: TrainReport) -> Overview:
    rows = []
    for r in report.systems:
        u, t = r.utility, r.traffic
        useful = (f.percent(u.accuracy), f.interval(u.accuracy_low, u.accuracy_high)) if u else (f.NOTHING, f.NOTHING)
        sent = (f.size(t.up), f.size(t.down)) if t else (f.NOTHING, f.NOTHING)
        rows.append((r.key, r.engine, f.count(r.rounds), *useful, *sent))
    grid = Grid("system;engine;>rounds;>test accuracy;>interval;>up;>down", rows)
    line = "; ".join(f"{row[0]}: accuracy {row[3]}" for row in rows)
    return Overview("One training of each system", f.clean(line), None, (grid,))
