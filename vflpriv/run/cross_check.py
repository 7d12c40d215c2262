"""Cross-checks as data: other libraries' bounds beside the accounted budgets of claims."""

from __future__ import annotations

from collections.abc import Sequence

from vflpriv.accountants.cross_checks import cross_checks
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Reading
from vflpriv.core.systems import Source
from vflpriv.report.account import AccountedClaim, Accounts, CrossCheckRow

__all__ = ["with_cross_checks"]


def with_cross_checks(accounts: Accounts, systems: Sequence[tuple[Source, Sequence[Claim]]]) -> Accounts:
    """The same accounts, with what other libraries answer about the budgets of every claim."""
    rows = []
    for row, (system, claims) in zip(accounts.systems, systems, strict=True):
        checked = [_checked(accounted, system, claim) for accounted, claim in zip(row.claims, claims, strict=True)]
        rows.append(row.model_copy(update={"claims": tuple(checked)}))
    return accounts.model_copy(update={"systems": tuple(rows)})


def _checked(accounted: AccountedClaim, system: Source, claim: Claim) -> AccountedClaim:
    """Both readings where they differ; a reading with an infinite budget has nothing to be checked."""
    rows = []
    for budget in (accounted.accounted, accounted.paper_reading):
        if budget is None:
            continue
        exposure = system.ledger.exposure(claim.adversary, claim.unit, reading=Reading(budget.reading))
        rows += [
            CrossCheckRow(
                reading=budget.reading,
                library=check.library,
                epsilon=check.epsilon,
                error=check.error,
                note=check.note,
                refusal=check.refusal,
                too_low=check.is_too_low(budget.epsilon_lower),
            )
            for check in cross_checks(exposure, claim.delta)
        ]
    return accounted.model_copy(update={"cross_checks": tuple(rows)})
