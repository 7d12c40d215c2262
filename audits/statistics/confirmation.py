"""A claim that trials alone refute is tested again on fresh ones, and both have to refute it.

Of many sound systems at the very boundary of their claims, some are refuted by chance: one of 81 was, at p = 5.8e-5. A
second look at other trials costs little, since it is needed only where the first one refutes something, and clears
nearly all of them. The p-value of both together is the larger one: if the claim holds it is as small as α with a
probability of at most α, whatever the first trials showed, and of α² where both are independent.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable
from dataclasses import replace
from statistics import NormalDist

from vflpriv.common.formatting import p_value
from vflpriv.core.audit import AuditContext, ClaimTest, Finding
from vflpriv.core.claims import Claim, Verdict

__all__ = ["MORE", "by_both", "suspected", "times_as_many"]

MORE = 4
"""At most so many times as many fresh trials confirm what the first ones showed."""
_ERRORS = 3
"""Standard errors by which fresh trials may show less and still refute: one in a thousand shows less than that."""


def suspected(groups: Iterable[Collection[Finding]], context: AuditContext) -> frozenset[str]:
    """The keys of the claims that need fresh trials: refuted by the trials of one group, and by nothing else.

    The groups have trainings of their own. A claim that two of them refute has been tested on fresh trials already.
    """
    refuting = [
        {f.claim for f in findings if f.is_test and f.claim is not None and f.verdict is Verdict.VIOLATED}
        for findings in groups
    ]
    counts: dict[str, int] = {}
    for claims in refuting:
        for claim in claims:
            counts[claim] = counts.get(claim, 0) + 1
    return frozenset(claim for claim, count in counts.items() if count == 1 and claim not in context.refuted)


def times_as_many(findings: Iterable[Finding], context: AuditContext) -> int:
    """How many times as many fresh trials confirm these findings: more, where one refutes its claim barely.

    A p-value is that of some number of standard errors, which grows with the root of the number of trials.
    """
    weakest = max((f.p_value or 0.0 for f in findings), default=0.0)
    if weakest <= sys.float_info.min:
        return 1
    seen, asked = (-NormalDist().inv_cdf(p) for p in (weakest, context.verdict_alpha))
    return min(MORE, math.ceil(((asked + _ERRORS) / seen) ** 2))


def by_both(first: Finding, fresh: Finding) -> Finding:
    """What the first trials and fresh ones show of a claim together, with the figures of the fresh ones."""
    measurement = fresh.measurement
    assert measurement is not None
    assert first.measurement is not None
    assert first.p_value is not None
    assert fresh.p_value is not None
    own, other = first.measurement.against, measurement.against
    larger = max(first.p_value, fresh.p_value)
    refuted = fresh.verdict is Verdict.VIOLATED
    done = "confirms" if refuted else "does not confirm"
    sentence = (
        f"{fresh.sentence}, which {done} on fresh trials what {first.trials} others showed (p {_p(first.p_value)})"
    )

    def against(claim: Claim) -> ClaimTest:
        """The test of any claim by both: a p-value that one of them lacks is lacking."""
        assert own is not None
        assert other is not None
        before, after = own(claim), other(claim)
        known = None not in (before.p_value, after.p_value)
        return after._replace(p_value=max(before.p_value or 0.0, after.p_value or 0.0) if known else None)

    both = replace(
        measurement,
        p_value=larger,
        against=None if own is None or other is None else against,
        facts={**measurement.facts, "first_p_value": first.p_value, "first_trials": float(first.trials or 0)},
        notes=tuple(dict.fromkeys((*first.measurement.notes, *measurement.notes))),
    )
    return replace(fresh, sentence=sentence, p_value=larger, measurement=both)


def _p(value: float) -> str:
    written = p_value(value)
    return written.replace("<", "< ") if written.startswith("<") else f"= {written}"
