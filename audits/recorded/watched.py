"""What was checked while a training was watched: nothing is certified on a recording that failed a check."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from vflpriv.common.formatting import percent
from vflpriv.common.registry import register
from vflpriv.core.audit import Audit, AuditContext, Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.systems import Offer

__all__ = ["WatchedAudit"]

_FAR = 5.0
"""Standard deviations beyond which a share of labels is not that of the declared randomised response."""


@register("audit")
class WatchedAudit(Audit[Any]):
    """Repeats the checks that failed while modules were watched, and compares noised labels with the ledger."""

    name = "watched"
    topic = "wire"
    summary = "repeats what did not fit together while a recorded training was watched"
    order = 59
    needs = frozenset({Offer.MESSAGES, Offer.LEDGER_FILE})

    def run(self, source: Any, context: AuditContext) -> list[Finding]:
        lines = [*source.recording.head.failed_checks, *_labels(source)]
        return [finding for line in lines for finding in _findings(line, context)]


def _findings(line: str, context: AuditContext) -> Iterator[Finding]:
    """A premise that decides alone, and for each claim that it cannot be consistent."""
    told: dict[str, Any] = {"audit": "watched", "subject": "recording", "figure": 1.0, "measure": "failed checks"}
    sentence = f"a check failed while the training was watched: {line}"
    yield Finding(
        **told,
        verdict=Verdict.UNSUPPORTED,
        sentence=sentence,
        claim_units=frozenset(),
        decides_alone=True,
        measures=False,
        repair="Mend what the check says in the training script, and record again.",
    )
    for claim in context.claims:
        yield Finding(**told, verdict=Verdict.UNMEASURED, sentence=sentence, claim=claim.key, measures=False)


def _labels(source: Any) -> Iterator[str]:
    """What labels that were others in the loss show: wrong ids, unless the ledger has noise on labels that fits."""
    head = source.recording.head
    compared, different = head.labels_compared, head.labels_different
    if not different:
        return
    kept = [r.noise.kept(head.classes or 2) for r in source.ledger.releases]
    seen = f"{different} of {compared} records had another label in the loss than the one that was recorded"
    shares = [1 - share for share in kept if share is not None]
    if not shares:
        yield f"{seen}: the ids are wrong, or the ledger lacks noise on labels"
        return
    if head.classes and not any(_fits(different, compared, share) for share in shares):
        yield f"{seen}, {percent(different / compared)}; the noise in the ledger changes {percent(shares[0])}"


def _fits(different: int, compared: int, share: float) -> bool:
    """Whether so many labels can have been changed if each is with this probability."""
    return abs(different - compared * share) <= 1 + _FAR * math.sqrt(compared * share * (1 - share))
