"""Results in a notebook: a headline and small tables, as a fragment of HTML that needs nothing else, or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from vflpriv.common import formatting as f
from vflpriv.core.claims import Verdict
from vflpriv.render.account import bound
from vflpriv.render.html.report import environment
from vflpriv.render.markdown import escape, table
from vflpriv.render.shared import banner, measured_mu
from vflpriv.report.account import Accounts
from vflpriv.report.attacks import AttackReport
from vflpriv.report.audit import ClaimRow, Report, SuccessClaimRow
from vflpriv.report.train import TrainReport

__all__ = ["Grid", "Picture", "as_html", "as_markdown", "picture"]


@dataclass(frozen=True)
class Grid:
    """A table: its columns, of which those that begin with > hold numbers, and its rows of plain text."""

    columns: str
    rows: Sequence[Sequence[str]]

    @property
    def header(self) -> list[tuple[str, bool]]:
        return [(name.removeprefix(">"), name.startswith(">")) for name in self.columns.split(";")]


@dataclass(frozen=True)
class Picture:
    """What is shown of a result."""

    headline: str
    line: str
    """For a shell."""
    word: Verdict | None = None
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = ()


def as_html(shown: Picture) -> str:
    """A fragment with its own style; every text in it is escaped."""
    return environment().get_template("notebook.html.j2").render(shown=shown)


def as_markdown(shown: Picture) -> str:
    """The same for places that show Markdown."""
    blocks = [f"**{escape(shown.headline)}**"]
    for grid in shown.grids:
        marks = "".join("-" if number else ":" for _, number in grid.header)
        header = [escape(name) for name, _ in grid.header]
        blocks.append(table(header, marks, [[escape(cell) for cell in row] for row in grid.rows]))
    return "\n\n".join([*blocks, *(escape(note) for note in shown.notes)]) + "\n"


@singledispatch
def picture(result: object) -> Picture:
    """What is shown of a result, by its type."""
    raise TypeError(f"no picture of {type(result).__name__}")


_CLAIMS = "verdict;system;claim;seen by;unit;>δ;>claimed ε;>accounted ε ≤;>claimed μ;>measured μ ≥"
_ABOUT = "verdict;system;claim;seen by;attack;>claimed ≤;>measured;>interval"


@picture.register
def _(report: Report) -> Picture:
    rows = [_claim(s.key, c) for s in report.systems for c in s.claims]
    about = [_about(s.key, c) for s in report.systems for c in s.success_claims]
    attacks = [
        (s.key, a.attack, a.adversary, f.percent(a.success), f.interval(a.low, a.high), f.percent(a.chance))
        for s in report.systems
        if not s.all_claims
        for a in s.attacks
        if a.success is not None
    ]
    grids = [Grid(_CLAIMS, rows), Grid(_ABOUT, about)]
    grids.append(Grid("system without a claim;attack;seen by;>success;>interval;>chance", attacks))
    return Picture(
        banner(report),
        f"{report.headline}; exit code {report.exit_code}",
        report.verdict,
        tuple(grid for grid in grids if grid.rows),
        (f"Confidence {f.confidence(report.confidence)}, seed {report.seed}.",),
    )


@picture.register
def _(claim: ClaimRow) -> Picture:
    row = _claim("", claim)
    grid = Grid(_CLAIMS.replace("system;", ""), [(row[0], *row[2:])])
    return _one(claim, grid)


@picture.register
def _(claim: SuccessClaimRow) -> Picture:
    row = _about("", claim)
    grid = Grid(_ABOUT.replace("system;", ""), [(row[0], *row[2:])])
    return _one(claim, grid)


def _one(claim: ClaimRow | SuccessClaimRow, grid: Grid) -> Picture:
    name = f"{claim.source}, {claim.where}"
    words = f"{claim.key}, seen by {claim.adversary}: {claim.verdict}"
    return Picture(name, f.clean(words), claim.verdict, (grid,), (claim.reason, claim.reproduce))


def _claim(system: str, claim: ClaimRow) -> tuple[str, ...]:
    measured = measured_mu(claim)
    names = (f"{claim.verdict.icon} {claim.verdict}", system, claim.key, claim.adversary, claim.unit)
    accounted = (f.delta(claim.delta), f.epsilon(claim.epsilon), bound(claim.accounted))
    return (*names, *accounted, f.mu(claim.mu), "not measured" if measured is None else f.mu(measured))


def _about(system: str, claim: SuccessClaimRow) -> tuple[str, ...]:
    names = (f"{claim.verdict.icon} {claim.verdict}", system, claim.key, claim.adversary, claim.attack)
    success = "not measured" if claim.success is None else f.percent(claim.success)
    return (*names, f.percent(claim.rate), success, f.interval(claim.low, claim.high))


@picture.register
def _(report: AttackReport) -> Picture:
    rows = []
    for cell in report.cells:
        if cell.leakage is not None:
            names = (cell.system, cell.defence, cell.attack, cell.adversary)
            rows.append((*names, f.percent(cell.success), f.percent(cell.leakage), f.interval(cell.low, cell.high)))
    grid = Grid("system;defence;attack;seen by;>success;>leakage;>interval", rows)
    word = Verdict.VIOLATED if report.broken else None
    line = f"{report.headline}; exit code {report.exit_code}"
    return Picture(report.headline.capitalize(), line, word, (grid,) if rows else (), report.broken)


@picture.register
def _(accounts: Accounts) -> Picture:
    claims, budgets = [], []
    for s in accounts.systems:
        for c in s.claims:
            names = (s.key, c.key, c.adversary, c.unit, f.delta(c.delta), f.epsilon(c.epsilon))
            claims.append((*names, bound(c.accounted)))
        open_ = [b for b in s.budgets if b.not_applicable is None]
        budgets += [(s.key, b.adversary, b.unit, b.batches, b.reading, f.delta(b.delta), bound(b)) for b in open_]
    grids = [Grid("system;claim;seen by;unit;>δ;>claimed ε;>accounted ε ≤", claims)]
    grids.append(Grid("system;seen by;unit;batches;reading;>δ;>accounted ε ≤", budgets))
    line = f"{len(accounts.systems)} accounted for by {accounts.accountant}"
    headline = f"What can be accounted for, by the accountant {accounts.accountant}"
    return Picture(headline, line, None, tuple(grid for grid in grids if grid.rows))


@picture.register
def _(report: TrainReport) -> Picture:
    rows = []
    for r in report.systems:
        u, t = r.utility, r.traffic
        useful = (f.percent(u.accuracy), f.interval(u.accuracy_low, u.accuracy_high)) if u else (f.NOTHING, f.NOTHING)
        sent = (f.size(t.up), f.size(t.down)) if t else (f.NOTHING, f.NOTHING)
        rows.append((r.key, r.engine, f.count(r.rounds), *useful, *sent))
    grid = Grid("system;engine;>rounds;>test accuracy;>interval;>up;>down", rows)
    line = "; ".join(f"{row[0]}: accuracy {row[3]}" for row in rows)
    return Picture("One training of each system", f.clean(line), None, (grid,))
