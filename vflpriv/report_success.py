"""The report's claims about attacks: each beside the attack that was run, with its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vflpriv.audits.attack_success import Success
from vflpriv.audits.success_verdict import judge_success, success_p_value
from vflpriv.claims import SuccessClaim
from vflpriv.report import SuccessClaimRow
from vflpriv.run import Attempt, Audited

__all__ = ["SuccessTest", "success_row", "success_tests"]


@dataclass(frozen=True)
class SuccessTest:
    """A claim, the attempt that tests it if one does, and the claim's raw p-value (1 where nothing was tried)."""

    claim: SuccessClaim
    attempt: Attempt | None
    p_value: float

    @property
    def success(self) -> Success | None:
        return None if self.attempt is None else self.attempt.success


def success_tests(audited: Audited) -> list[SuccessTest]:
    """One for each claim: its attack through the first view of its adversary. Chosen by place, never by outcome."""
    found = []
    data = audited.system.data
    for claim in audited.success_claims:
        views = claim.adversary.each(data.devices)
        fitting = (a for a in audited.attempts if a.attack == claim.attack and a.adversary in views)
        attempt = next(fitting, None)
        tested = attempt is not None and attempt.success is not None and data.classes == claim.classes
        p = success_p_value(claim, attempt.success) if tested and attempt and attempt.success else 1.0
        found.append(SuccessTest(claim, attempt, p))
    return found


def success_row(
    test: SuccessTest, adjusted: Mapping[int, float], *, classes: int, alpha: float, reproduce: str
) -> SuccessClaimRow:
    claim, found = test.claim, test.success
    verdict = judge_success(
        claim,
        success=found,
        refusal=None if test.attempt is None else test.attempt.refusal,
        classes=classes,
        p_adjusted=adjusted[id(test)],
        alpha=alpha,
    )
    return SuccessClaimRow(
        key=claim.key,
        source=claim.source,
        where=claim.where,
        statement=claim.statement,
        unit=claim.unit.value,
        adversary=str(claim.adversary),
        attack=claim.attack,
        rate=claim.rate,
        success=found.rate if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        chance=found.chance if found else None,
        guesses=found.guesses if found else 0,
        p_adjusted=adjusted[id(test)],
        verdict=verdict.word,
        reason=verdict.reason,
        reproduce=reproduce,
    )
