"""Budgets in a terminal: what `vflpriv account` and `vflpriv calibrate` print."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import groupby

from rich.console import Console
from rich.text import Text

from vflpriv.common import formatting as f
from vflpriv.core.units import Unit
from vflpriv.render.console import Cell, Writer
from vflpriv.render.first_page.comparable import accounted
from vflpriv.render.shared import upper_bound, why_infinite
from vflpriv.report.account import AccountedClaim, AccountRow, Accounts, Calibration, CrossCheckRow
from vflpriv.report.audit import BudgetRow

__all__ = ["print_accounts", "print_calibration"]

_CLAIMS = "claim;seen by/unit, δ;>claimed;>accounted,/as in the/paper;>accounted,/rigorous"
_CROSS_CHECKS = "claim;reading;library;>its/ε ≤;>our/ε ≥;>our/ε ≤;note"
_BUDGETS = ";".join(["seen by;batches;reading", *(f">{unit.value.replace('-', '-/')}" for unit in Unit)])


def print_accounts(accounts: Accounts, console: Console) -> None:
    """For each system its claims beside their budgets, all views and units, and what the numbers rest on."""
    writer = Writer(console)
    for system in accounts.systems:
        _system(writer, system)


def _system(writer: Writer, system: AccountRow) -> None:
    size = f"{system.records} records, {system.devices} devices, {system.rounds} rounds of {system.batch_size}"
    noise = "" if system.noise_std is None else f", noise std {system.noise_std:.6g}"
    writer.line(f"{f.shorten(system.key, 40)}: {system.engine}, {size} ({system.schedule}){noise}")
    if system.claims:
        writer.table("Claimed beside accounted", _CLAIMS, (_claim(c) for c in system.claims), leading=1)
    _cross_checks(writer, system.claims)
    _all_budgets(writer, system)
    rows = [*(b for c in system.claims for b in (c.accounted, c.paper_reading) if b is not None), *system.budgets]
    # A message that is unbounded for several units gets one line.
    leaks = {text.split(" for the ")[0]: None for row in rows for text in why_infinite(row).split("; ") if text}
    writer.list([("∞", text) for text in leaks])
    methods = (re.sub(r", grid step [^ ;]*", "", row.method) for row in rows if row.not_applicable is None)
    writer.list([("by", text) for text in _distinct(f.clean(method) for method in methods)])
    notes = (f.clean(note) for row in rows if math.isfinite(row.epsilon_upper) for note in row.assumptions)
    writer.list([("if", text) for text in _distinct(notes)])
    values = (
        f"{name}: ε ≈ {f.epsilon(value)} ({_place(row)})" for row in rows for name, value in row.approximations.items()
    )
    writer.list([("≈", text) for text in _distinct(values)])


def _all_budgets(writer: Writer, system: AccountRow) -> None:
    """Every view and unit; whether batches are known has a column where it differs between views."""
    title, columns, rows = f"Accounted ε at δ = {f.delta(system.delta)}", _BUDGETS, list(_budgets(system.budgets))
    batches = {row[1] for row in rows}
    if len(batches) == 1:
        title, columns = f"{title}, batches {batches.pop()}", columns.replace("batches;", "")
        rows = [(row[0], *row[2:]) for row in rows]
    writer.table(title, columns, rows)


def _claim(claim: AccountedClaim) -> tuple[str, ...]:
    return (
        f.shorten(claim.key, 40),
        f"{f.clean(claim.adversary)}\n{claim.unit}, {f.delta(claim.delta)}",
        f"ε = {f.epsilon(claim.epsilon)}\nμ = {f.mu(claim.mu)}",
        accounted(claim.paper_reading).lines,
        accounted(claim.accounted).lines,
    )


def _cross_checks(writer: Writer, claims: Iterable[AccountedClaim]) -> None:
    """Other libraries beside our bounds; one that lies below our lower bound by more than its error is marked."""
    rows: list[tuple[Cell, ...]] = []
    for claim in claims:
        ours = {b.reading: b for b in (claim.accounted, claim.paper_reading) if b is not None}
        for check in claim.cross_checks:
            budget = ours[check.reading]
            bounds = (f.exact(budget.epsilon_lower), f.exact(budget.epsilon_upper))
            names = (f.shorten(claim.key, 40), check.reading, check.library)
            rows.append((*names, f.exact(check.epsilon), *bounds, _cross_check_note(check)))
    if rows:
        writer.table("Other libraries beside ours", _CROSS_CHECKS, rows)


def _cross_check_note(check: CrossCheckRow) -> Cell:
    if check.refusal is not None:
        return f"not asked: {check.refusal}"
    if check.too_low:
        return Text(f"TOO LOW: below our lower bound; {check.note}".removesuffix("; "), style="bold red")
    return check.note


def _budgets(rows: Iterable[BudgetRow]) -> Iterable[tuple[str, ...]]:
    """One line for each view and reading; a unit whose readings agree has its budget in the first of them."""
    for _, group in groupby(rows, key=lambda row: row.adversary.split("(")[0]):
        of_view = list(group)
        for reading in dict.fromkeys(row.reading for row in of_view):
            by_unit = {row.unit: row for row in of_view if row.reading == reading}
            budgets = [by_unit.get(unit.value) for unit in Unit]
            names = dict.fromkeys(row.adversary for row in by_unit.values())
            yield (
                # The worst device may differ between units.
                next(iter(names)) if len(names) == 1 else "device",
                of_view[0].batches,
                reading,
                *(f.NOTHING if row is None else upper_bound(row) for row in budgets),
            )


def print_calibration(result: Calibration, console: Console) -> None:
    """The noise, the budget that it has, and what this rests on."""
    row = result.budget
    lower = "" if row.epsilon_lower == row.epsilon_upper else f" (at least {row.epsilon_lower:.6g})"
    target = f"target {result.epsilon:g}, at δ = {f.delta(result.delta)}"
    lines = [
        (result.field, f"{result.noise:.7g}"),
        ("accounted ε", f"{row.epsilon_upper:.6g}{lower}, {target}"),
        ("seen by", f"{row.adversary}, batches {row.batches}"),
        ("unit", row.unit),
        ("reading", row.reading),
        ("method", f.clean(row.method)),
    ]
    if row.mu is not None:
        lines.insert(2, ("accounted μ", f"{row.mu:.6g}"))
    if row.participations is not None and row.batches == "known":
        lines.append(("worst record", f"takes part {row.participations} times"))
    Writer(console).list([*lines, *(("if", f.clean(note)) for note in row.assumptions)])


def _place(row: BudgetRow) -> str:
    return f"{row.unit} unit seen by {row.adversary}"


def _distinct(texts: Iterable[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]
