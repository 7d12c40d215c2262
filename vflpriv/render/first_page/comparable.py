"""Numbers that a person can compare: measured beside claimed ε, useful bounds, verdicts with their cause."""

from __future__ import annotations

from typing import NamedTuple

from vflpriv.common.formatting import NOTHING, clean, epsilon, mu, percent
from vflpriv.core.audit import MU
from vflpriv.core.claims import Verdict
from vflpriv.render.document import Cell
from vflpriv.report.audit import BudgetRow, ClaimRow, SuccessClaimRow
from vflpriv.report.rows import USEFUL

__all__ = ["NO_BOUND", "Shown", "accounted", "bound", "cause", "claimed", "measured", "verdict_words"]

NO_BOUND = "no useful bound"


class Shown(NamedTuple):
    """A number as a table shows it, and a smaller line below it."""

    main: str
    below: str = ""

    @property
    def lines(self) -> str:
        """Both, for a cell of two lines."""
        return "\n".join(line for line in self if line)

    @property
    def line(self) -> str:
        """Both in one line."""
        return f"{self.main} ({self.below})" if self.below else self.main

    @property
    def cell(self) -> Cell:
        """Both as a cell of a table."""
        return Cell(self.main, below=self.below)


def bound(value: float) -> str:
    """An upper bound on ε; above 50 it excludes nothing.

    >>> bound(2.9029), bound(39_870.0), bound(float("inf"))
    ('2.90', 'no useful bound', 'no useful bound')
    """
    return epsilon(value) if value <= USEFUL else NO_BOUND


def accounted(budget: BudgetRow | None) -> Shown:
    """The upper bound of a budget: n/a where the unit cannot be exposed, and its size where it is of no use."""
    if budget is None:
        return Shown(NOTHING)
    if budget.not_applicable is not None:
        return Shown("n/a")
    if budget.epsilon_upper > USEFUL:
        return Shown(NO_BOUND, f"ε ≤ {epsilon(budget.epsilon_upper)}")
    return Shown(f"ε ≤ {epsilon(budget.epsilon_upper)}", "" if budget.mu is None else f"μ = {mu(budget.mu)}")


def claimed(claim: ClaimRow | SuccessClaimRow) -> Shown:
    """What a claim promises."""
    if isinstance(claim, SuccessClaimRow):
        return Shown(f"≤ {percent(claim.rate)}")
    return Shown(f"ε = {epsilon(claim.epsilon)}", f"μ = {mu(claim.mu)}")


def measured(claim: ClaimRow | SuccessClaimRow) -> Shown:
    """The figures of the measurement that the verdict quotes, or that there is none.

    The one that refutes the claim comes first; otherwise ε, which assumes nothing of the mechanism, before μ.
    """
    if isinstance(claim, SuccessClaimRow):
        return Shown("not measured" if claim.success is None else percent(claim.success))
    row = claim.deciding
    if row is None:
        refuted = claim.verdict is Verdict.VIOLATED
        return Shown(NOTHING if claim.broken else "refuted" if refuted else "not measured")
    gaussian = ", if Gaussian" if row.assumes_gaussian else ""
    in_epsilon = "" if row.epsilon is None else f"ε {row.relation} {epsilon(row.epsilon)}"
    in_mu = "" if row.mu is None else f"μ {row.relation} {mu(row.mu)}{gaussian}"
    mu_first = not in_epsilon or (row.refutes and row.measure == MU)
    return Shown(in_mu, in_epsilon) if mu_first else Shown(in_epsilon, in_mu)


def cause(claim: ClaimRow | SuccessClaimRow) -> str:
    """The audit whose premise is broken, where that and no measurement makes the claim violated; else empty."""
    if isinstance(claim, SuccessClaimRow) or claim.verdict is not Verdict.VIOLATED:
        return ""
    if any(row.refutes for row in claim.measurements):
        return ""
    return clean(claim.broken[0].partition(" of ")[0]) if claim.broken else ""


def verdict_words(claim: ClaimRow | SuccessClaimRow) -> str:
    """The verdict, with what is broken where that decides: "violated · sensitivity broken"."""
    broken = cause(claim)
    return f"{claim.verdict} · {broken} broken" if broken else str(claim.verdict)
