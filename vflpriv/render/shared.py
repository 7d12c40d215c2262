"""What every renderer says in the same words: the verdict, a claim's measurement, why an epsilon is infinite."""

from __future__ import annotations

import math
from collections.abc import Iterable

from vflpriv.common.formatting import clean, confidence, epsilon, mu, p_value, shorten
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.claims import SEVERITY, Verdict
from vflpriv.report.audit import AttackRow, BudgetRow, ClaimRow, MeasurementRow, OneRunRow, Report, SystemRow

__all__ = [
    "banner",
    "best_attack",
    "gravest",
    "headline",
    "leak_level",
    "measured_mu",
    "names_of_rows",
    "one_run_sentence",
    "why_infinite",
    "worst_word",
]

_HARSHNESS = {kind.value: place for place, kind in enumerate(CanaryKind)}
_STEPS = (0.05, 0.25, 0.5)


def headline(claim: ClaimRow) -> MeasurementRow | None:
    """The measurement that stands for a claim: of its harshest canary. Chosen by kind, never by outcome.

    The largest of several 95 % bounds would be one of less than 95 %.
    """
    return max(claim.measurements, key=lambda m: _HARSHNESS.get(m.canary, -1), default=None)


def measured_mu(claim: ClaimRow) -> float | None:
    """The bound on μ that stands for a claim: of two worlds or, where there were no such trials, of one run."""
    best = headline(claim)
    if best is not None:
        return best.mu_lower
    return None if claim.one_run is None else claim.one_run.mu_lower


def one_run_sentence(row: OneRunRow) -> str:
    """What a training with many canaries showed."""
    gaussian = "" if row.epsilon_from_mu is None else f" ({epsilon(row.epsilon_from_mu)} for the Gaussian curve)"
    found = f"μ ≥ {mu(row.mu_lower)}, ε ≥ {epsilon(row.epsilon_lower)}{gaussian} at {confidence(row.confidence)}"
    verdict = "refutes the claim" if row.refutes else "does not refute the claim"
    return f"One run: {row.sentence}, {found}; p = {p_value(row.p_adjusted)} (Holm), {verdict}"


def why_infinite(budget: BudgetRow) -> str:
    """The messages that make epsilon infinite; empty where it is finite or no message is to blame."""
    if math.isfinite(budget.epsilon_upper):
        return ""
    return "; ".join(clean(message) for message in budget.unprotected)


def gravest(words: Iterable[Verdict]) -> Verdict | None:
    """The gravest of some verdicts; None of none."""
    found = set(words)
    return next((word for word in SEVERITY if word in found), None)


def worst_word(report: Report) -> Verdict | None:
    """The gravest verdict of the report; None without claims."""
    return report.verdict


def banner(report: Report) -> str:
    """The verdict as a sentence. What was not refuted is never called verified."""
    total = len(report.verdicts)
    word = worst_word(report)
    if word is None:
        return "No claim to check"
    number = report.count(word)
    subject = f"{number} of {total} claims {'is' if number == 1 else 'are'}" if total > 1 else "The claim is"
    if word is Verdict.CONSISTENT:
        return f"{subject} consistent with what was measured"
    return f"{subject} {word}"


def leak_level(leakage: float | None, low: float | None) -> int:
    """0 if nothing applies or the interval reaches down to no leak; then 1 to 4 as the leak grows.

    >>> [leak_level(x, low) for x, low in ((None, None), (0.3, -0.1), (0.03, 0.01), (0.3, 0.2), (0.9, 0.8))]
    [0, 0, 1, 3, 4]
    """
    if leakage is None or low is None or low <= 0:
        return 0
    return 1 + sum(leakage > step for step in _STEPS)


def best_attack(system: SystemRow) -> AttackRow | None:
    """The attack that gains most from the protocol, among those that apply."""
    return max((a for a in system.attacks if a.success is not None), key=lambda a: a.leakage, default=None)


def names_of_rows(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Systems with their defences below them, for a terminal that has no room for two columns.

    >>> names_of_rows([("split", "none"), ("split", "alibi"), ("fdml", "alibi"), ("fdml", "rr")])
    ['split', '  alibi', 'fdml, alibi', '  rr']
    """
    names, last = [], None
    for system, defence in rows:
        own = shorten(system, 20)
        first = own if defence == "none" else f"{own}, {shorten(defence, 20)}"
        names.append(first if system != last else f"  {shorten(defence, 20)}")
        last = system
    return names
