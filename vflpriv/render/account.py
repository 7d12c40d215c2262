"""What `vflpriv account` and `vflpriv calibrate` print in a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import groupby

from rich.console import Console

from vflpriv.common import formatting as f
from vflpriv.core.units import Unit
from vflpriv.render.console import Writer
from vflpriv.render.shared import why_infinite
from vflpriv.report.account import AccountedClaim, AccountRow, Accounts
from vflpriv.report.audit import BudgetRow

__all__ = ["bound", "print_accounts"]

_CLAIMS = "claim;seen by;unit;>δ;>claimed/ε;>paper/ε ≤;>rigorous/ε ≤;>claimed/μ;>rigorous/μ"
_BUDGETS = ";".join(["seen by;batches;reading", *(f">{unit.value}" for unit in Unit)])


def print_accounts(accounts: Accounts, console: Console) -> None:
    """Claims beside what can be accounted for, a table of all views and units, and what the numbers rest on."""
    writer = Writer(console)
    for system in accounts.systems:
        _system(writer, system)


def _system(writer: Writer, system: AccountRow) -> None:
    size = f"{system.records} records, {system.devices} devices, {system.rounds} rounds of {system.batch_size}"
    noise = "" if system.noise_std is None else f", noise std {system.noise_std:.6g}"
    writer.line(f"{f.shorten(system.key, 40)}: {system.engine}, {size} ({system.schedule}){noise}")
    if system.claims:
        writer.table("Claimed beside accounted", _CLAIMS, (_claim(c) for c in system.claims))
    writer.table(f"Accounted ε at δ = {f.delta(system.delta)}", _BUDGETS, _budgets(system.budgets))
    rows = [*(b for c in system.claims for b in (c.accounted, c.paper_reading) if b is not None), *system.budgets]
    # Of a message that is unbounded for several units one line is enough.
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


def _claim(claim: AccountedClaim) -> tuple[str, ...]:
    paper = claim.paper_reading
    return (
        f.shorten(claim.key, 40),
        f.clean(claim.adversary),
        claim.unit,
        f.delta(claim.delta),
        f.epsilon(claim.epsilon),
        f.NOTHING if paper is None else bound(paper),
        bound(claim.accounted),
        f.mu(claim.mu),
        f.mu(claim.accounted.mu),
    )


def _budgets(rows: Iterable[BudgetRow]) -> Iterable[tuple[str, ...]]:
    """A line for each view and reading; where a unit has one reading only, it stands in the first."""
    for _, group in groupby(rows, key=lambda row: row.adversary.split("(")[0]):
        found = list(group)
        for reading in dict.fromkeys(row.reading for row in found):
            here = {row.unit: row for row in found if row.reading == reading}
            shown = [here.get(unit.value) for unit in Unit]
            names = dict.fromkeys(row.adversary for row in here.values())
            yield (
                # The worst device may be another one for another unit.
                next(iter(names)) if len(names) == 1 else "device",
                found[0].batches,
                reading,
                *(f.NOTHING if row is None else bound(row) for row in shown),
            )


def bound(row: BudgetRow) -> str:
    """The upper bound of a budget, or why there is none to print."""
    return "n/a" if row.not_applicable is not None else f.epsilon(row.epsilon_upper)


def _place(row: BudgetRow) -> str:
    return f"{row.unit} unit seen by {row.adversary}"


def _distinct(texts: Iterable[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]
