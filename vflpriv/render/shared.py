"""Text and figures that every format shows alike: the verdict, a claim's measurement, how much a cell leaks."""

from __future__ import annotations

import math
from collections.abc import Iterable

from vflpriv.common.formatting import NOTHING, clean, confidence, epsilon, mu, p_value, percent, shorten
from vflpriv.core.claims import SEVERITY, Verdict
from vflpriv.report.attacks import Cell, Contest, FeatureCell
from vflpriv.report.audit import AttackRow, BudgetRow, ClaimRow, MeasurementRow, Report, SystemRow

__all__ = [
    "banner",
    "best_attack",
    "cell_level",
    "contest_cells",
    "gravest",
    "leak_level",
    "leak_points",
    "measurement_sentences",
    "names_of_rows",
    "tabled",
    "trial_sentences",
    "upper_bound",
    "why_infinite",
]

_LEAK_STEPS = (0.05, 0.25, 0.5)
"""Where one level of leakage ends and the next begins."""


def tabled(claim: ClaimRow) -> list[MeasurementRow]:
    """The measurements of a claim that take no statistics or count errors in two worlds: rows of a table."""
    return [row for row in claim.measurements if row.proves or row.errors is not None]


def measurement_sentences(claim: ClaimRow) -> list[str]:
    """What each measurement showed that counts no errors."""
    return [_sentence(row) for row in claim.measurements if row.errors is None]


def _sentence(row: MeasurementRow) -> str:
    bounds = [] if row.mu is None else [f"μ {row.relation} {mu(row.mu)}"]
    if row.epsilon is not None:
        curve = row.epsilon_gaussian
        gaussian = "" if curve is None else f" ({epsilon(curve)} for the Gaussian curve)"
        bounds.append(f"ε {row.relation} {epsilon(row.epsilon)}{gaussian}")
    sure = "exactly" if row.exact else "with certainty" if row.proves else f"at {confidence(row.confidence)}"
    tested = "" if row.p_adjusted is None else f"; p = {p_value(row.p_adjusted)} (Holm)"
    verdict = "refutes the claim" if row.refutes else "does not refute the claim"
    name = _capital(row.subject.replace("-", " "))
    return f"{name}: {clean(row.outcome)}, {', '.join(bounds)} {sure}{tested}, {verdict}"


def trial_sentences(claim: ClaimRow) -> list[str]:
    """How the trials of a claim were made, and what they could have found."""
    notes = [clean(note) for row in claim.measurements for note in row.notes]
    powers = [
        f"With 2 × {row.trials} trials, a mechanism with {row.power_excess:g} × the claimed {clean(row.measure)} is "
        f"called violated with a probability of at most {percent(row.power)}"
        for row in claim.measurements
        if row.power is not None
    ]
    return list(dict.fromkeys((*notes, *powers)))


def _capital(text: str) -> str:
    return clean(text[:1].upper() + text[1:])


def why_infinite(budget: BudgetRow) -> str:
    """The messages that make epsilon infinite; empty where it is finite or no single message is the cause."""
    if math.isfinite(budget.epsilon_upper):
        return ""
    return "; ".join(clean(message) for message in budget.unprotected)


def upper_bound(budget: BudgetRow) -> str:
    """The upper bound on epsilon of a budget; n/a where the unit cannot be exposed to this adversary."""
    return "n/a" if budget.not_applicable is not None else epsilon(budget.epsilon_upper)


def gravest(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The gravest of these verdicts; None if there are none."""
    present = set(verdicts)
    return next((verdict for verdict in SEVERITY if verdict in present), None)


def banner(report: Report) -> str:
    """The verdict of a report as a sentence. A claim that was not refuted is never called verified."""
    total = len(report.verdicts)
    verdict = report.verdict
    if report.broken_premise:
        return f"A premise is broken: {clean(report.broken_premise)}"
    if verdict is None:
        return "No claim to check"
    number = report.count(verdict)
    subject = f"{number} of {total} claims {'is' if number == 1 else 'are'}" if total > 1 else "The claim is"
    if verdict is Verdict.CONSISTENT:
        return f"{subject} consistent with what was measured"
    if verdict is Verdict.UNMEASURED:
        trusted = ", which was trusted" if report.ledger_trusted else ""
        return f"{subject} unmeasured: only the ledger speaks for {'it' if number == 1 else 'them'}{trusted}"
    return f"{subject} {verdict}"


def leak_level(leakage: float | None, low: float | None) -> int:
    """0 if no attack applies or the interval includes no leakage; then 1 to 4 as the leakage grows.

    >>> [leak_level(x, low) for x, low in ((None, None), (0.3, -0.1), (0.03, 0.01), (0.3, 0.2), (0.9, 0.8))]
    [0, 0, 1, 3, 4]
    """
    if leakage is None or low is None or low <= 0:
        return 0
    return 1 + sum(leakage > step for step in _LEAK_STEPS)


def cell_level(cell: Cell | None) -> int:
    """The level of a cell of the attack matrix, by which it is coloured."""
    return 0 if cell is None else leak_level(cell.leakage, cell.low)


def contest_cells(contest: Contest[Cell]) -> tuple[str, str, str]:
    """The best static and the best adaptive attack of a contest with what each leaks, and the defence's mark."""
    mark = "†" if contest.only_static else ""
    return _leaks(contest.static), _leaks(contest.adaptive), mark


def _leaks(cell: Cell | None) -> str:
    if cell is None or cell.leakage is None:
        return NOTHING
    leakage = leak_points(cell.leakage)
    if isinstance(cell, FeatureCell):
        leakage = f"{cell.leakage:+.3f} of {cell.measure}"
    return f"{leakage} ({clean(cell.attack)}, {clean(cell.adversary)})"


def leak_points(rate: float | None) -> str:
    """Leakage in percentage points.

    >>> leak_points(0.894), leak_points(-0.02), leak_points(None)
    ('+89.4', '-2.0', '–')
    """
    return NOTHING if rate is None else f"{100 * rate:+.1f}"


def best_attack(system: SystemRow) -> AttackRow | None:
    """The attack that gains most from the protocol, among those that apply."""
    return max((a for a in system.attacks if a.success is not None), key=lambda a: a.leakage, default=None)


def names_of_rows(rows: Iterable[tuple[str, str]]) -> list[str]:
    """First column of a matrix in a terminal: each system, with its defences indented below it.

    >>> names_of_rows([("split", "none"), ("split", "alibi"), ("fdml", "alibi"), ("fdml", "rr")])
    ['split', '  alibi', 'fdml, alibi', '  rr']
    """
    names, previous = [], None
    for system, defence in rows:
        short = shorten(system, 20)
        first = short if defence == "none" else f"{short}, {shorten(defence, 34)}"
        names.append(first if system != previous else f"  {shorten(defence, 34)}")
        previous = system
    return names
