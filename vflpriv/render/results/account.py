"""What is said of accounted budgets: the results of `vflpriv account` and `vflpriv calibrate`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import NamedTuple

from vflpriv.common import formatting as f
from vflpriv.core.units import Unit
from vflpriv.render import document as d
from vflpriv.render.first_page.comparable import accounted
from vflpriv.render.shared import upper_bound, why_infinite
from vflpriv.report.account import AccountedClaim, AccountRow, Accounts, Calibration, CrossCheckRow
from vflpriv.report.audit import BudgetRow

__all__ = ["accounts_document", "calibration_document"]


@d.described_by.register
def accounts_document(accounts: Accounts) -> d.Document:
    """For each system its claims beside their budgets, all views and units, and what the numbers rest on."""
    return d.Document(
        headline=f"Accounted budgets, by the accountant {accounts.accountant}",
        line=f"budgets of {len(accounts.systems)} systems by {accounts.accountant}",
        outcome="",
        blocks=[
            *(block for system in accounts.systems for block in _system(system)),
            d.Table(_LISTED_CLAIMS, [(s, c) for s in accounts.systems for c in s.claims], only=d.NOTEBOOK),
            d.Table(
                _LISTED_BUDGETS, [(s, b) for s in accounts.systems for b in s.budgets if _applies(b)], only=d.NOTEBOOK
            ),
        ],
    )


_LISTED_CLAIMS = (
    d.Column("system", lambda row: row[0].key),
    d.Column("claim", lambda row: row[1].key),
    d.Column("seen by", lambda row: row[1].adversary),
    d.Column("unit", lambda row: row[1].unit),
    d.Column(">δ", lambda row: f.delta(row[1].delta)),
    d.Column(">claimed ε", lambda row: f.epsilon(row[1].epsilon)),
    d.Column(">accounted ε ≤", lambda row: upper_bound(row[1].accounted)),
)
_LISTED_BUDGETS = (
    d.Column("system", lambda row: row[0].key),
    d.Column("seen by", lambda row: row[1].adversary),
    d.Column("unit", lambda row: row[1].unit),
    d.Column("batches", lambda row: row[1].batches),
    d.Column("reading", lambda row: row[1].reading),
    d.Column(">δ", lambda row: f.delta(row[1].delta)),
    d.Column(">accounted ε ≤", lambda row: upper_bound(row[1])),
)
_CLAIMS = (
    d.Column("claim", lambda c: f.shorten(c.key, 40)),
    d.Column("seen by/unit, δ", lambda c: d.Cell(f.clean(c.adversary), below=f"{c.unit}, {f.delta(c.delta)}")),
    d.Column(">claimed", lambda c: d.Cell(f"ε = {f.epsilon(c.epsilon)}", below=f"μ = {f.mu(c.mu)}")),
    d.Column(">accounted,/as in the/paper", lambda c: accounted(c.paper_reading).cell),
    d.Column(">accounted,/rigorous", lambda c: accounted(c.accounted).cell),
)


def _applies(row: BudgetRow) -> bool:
    return row.not_applicable is None


def _system(system: AccountRow) -> Iterator[d.Block]:
    size = f"{system.records} records, {system.devices} devices, {system.rounds} rounds of {system.batch_size}"
    noise = "" if system.noise_std is None else f", noise std {system.noise_std:.6g}"
    facts = f"{f.shorten(system.key, 40)}: {system.engine}, {size} ({system.schedule}){noise}"
    yield d.Paragraph(facts, only=d.TERMINAL)
    if system.claims:
        yield d.Table(_CLAIMS, system.claims, title="Claimed beside accounted", tall=True, only=d.TERMINAL)
    checks = [_BesideOurs(claim, check) for claim in system.claims for check in claim.cross_checks]
    if checks:
        yield d.Table(_CROSS_CHECKS, checks, title="Other libraries beside ours", only=d.TERMINAL)
    yield _all_budgets(system)
    yield from _grounds(system)


class _BesideOurs(NamedTuple):
    """Another library's figure for a claim, and our budget of the same reading."""

    claim: AccountedClaim
    check: CrossCheckRow

    @property
    def ours(self) -> BudgetRow:
        budgets = (self.claim.accounted, self.claim.paper_reading)
        return next(b for b in budgets if b is not None and b.reading == self.check.reading)

    @property
    def note(self) -> d.Content:
        """A figure that lies below our lower bound by more than its error is marked."""
        check = self.check
        if check.refusal is not None:
            return f"not asked: {check.refusal}"
        too_low = f"TOO LOW: below our lower bound; {check.note}".removesuffix("; ")
        return d.Span(too_low, "alarm") if check.too_low else check.note


_CROSS_CHECKS = (
    d.Column("claim", lambda row: f.shorten(row.claim.key, 40)),
    d.Column("reading", lambda row: row.check.reading),
    d.Column("library", lambda row: row.check.library),
    d.Column(">its/ε ≤", lambda row: f.exact(row.check.epsilon)),
    d.Column(">our/ε ≥", lambda row: f.exact(row.ours.epsilon_lower)),
    d.Column(">our/ε ≤", lambda row: f.exact(row.ours.epsilon_upper)),
    d.Column("note", lambda row: row.note),
)


class _ViewBudgets(NamedTuple):
    """The budgets of one view and reading, by unit."""

    seen_by: str
    batches: str
    reading: str
    by_unit: dict[str, BudgetRow]


def _bound(unit: Unit, view: _ViewBudgets) -> str:
    row = view.by_unit.get(unit.value)
    return f.NOTHING if row is None else upper_bound(row)


def _all_budgets(system: AccountRow) -> d.Table:
    """Every view and unit; whether batches are known has a column where it differs between views."""
    rows = list(_by_view(system.budgets))
    batches = {row.batches for row in rows}
    differs = (d.Column("batches", lambda row: row.batches),) if len(batches) != 1 else ()
    columns = [
        d.Column("seen by", lambda row: row.seen_by),
        *differs,
        d.Column("reading", lambda row: row.reading),
        *(d.Column(f">{unit.value.replace('-', '-/')}", partial(_bound, unit)) for unit in Unit),
    ]
    title = f"Accounted ε at δ = {f.delta(system.delta)}"
    return d.Table(columns, rows, title=title if differs else f"{title}, batches {batches.pop()}", only=d.TERMINAL)


def _by_view(rows: Iterable[BudgetRow]) -> Iterator[_ViewBudgets]:
    """One line for each view and reading; a unit whose readings agree has its budget in the first of them."""
    for _, group in groupby(rows, key=lambda row: row.adversary.split("(")[0]):
        of_view = list(group)
        for reading in dict.fromkeys(row.reading for row in of_view):
            by_unit = {row.unit: row for row in of_view if row.reading == reading}
            names = dict.fromkeys(row.adversary for row in by_unit.values())
            # The worst device may differ between units.
            yield _ViewBudgets(next(iter(names)) if len(names) == 1 else "device", of_view[0].batches, reading, by_unit)


def _grounds(system: AccountRow) -> Iterator[d.Block]:
    """Why budgets are infinite, by which method they were computed, and what they assume: each sentence once."""
    rows = [*(b for c in system.claims for b in (c.accounted, c.paper_reading) if b is not None), *system.budgets]
    sentences = {
        # A message that is unbounded for several units gets one line.
        "∞": (text.split(" for the ")[0] for row in rows for text in why_infinite(row).split("; ")),
        "by": (re.sub(r", grid step [^ ;]*", "", f.clean(row.method)) for row in rows if _applies(row)),
        "if": (f.clean(note) for row in rows if math.isfinite(row.epsilon_upper) for note in row.assumptions),
        "≈": (
            f"{name}: ε ≈ {f.epsilon(value)} ({row.unit} unit seen by {row.adversary})"
            for row in rows
            for name, value in row.approximations.items()
        ),
    }
    for sign, texts in sentences.items():
        yield d.Terms([(sign, text) for text in dict.fromkeys(texts) if text], only=d.TERMINAL)


@d.described_by.register
def calibration_document(result: Calibration) -> d.Document:
    """The noise, the budget that it has, and what this rests on."""
    row = result.budget
    lower = "" if row.epsilon_lower == row.epsilon_upper else f" (at least {row.epsilon_lower:.6g})"
    target = f"target {result.epsilon:g}, at δ = {f.delta(result.delta)}"
    lines = [
        (result.field, f"{result.noise:.7g}"),
        ("accounted ε", f"{row.epsilon_upper:.6g}{lower}, {target}"),
        *([] if row.mu is None else [("accounted μ", f"{row.mu:.6g}")]),
        ("seen by", f"{row.adversary}, batches {row.batches}"),
        ("unit", row.unit),
        ("reading", row.reading),
        ("method", f.clean(row.method)),
    ]
    if row.participations is not None and row.batches == "known":
        lines.append(("worst record", f"takes part {row.participations} times"))
    lines += [("if", f.clean(note)) for note in row.assumptions]
    return d.Document(headline=f"{result.field} = {result.noise:.7g}", outcome="", blocks=(d.Terms(lines),))
