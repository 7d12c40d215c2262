"""The audit of a ledger file's completeness: whether it lists every kind of message that was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from vflpriv.audits.success import beyond_p_value
from vflpriv.common.registry import find, register
from vflpriv.core.audit import Audit, AuditContext, Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.systems import Offer

__all__ = ["LedgerAudit", "ledger_findings"]


@register("audit")
class LedgerAudit(Audit[Any]):
    """Compares the kinds of recorded messages with those that the ledger file lists or calls public."""

    name = "ledger"
    topic = "wire"
    summary = "compares the kinds of recorded messages with those that the ledger file lists"
    order = 60
    needs = frozenset({Offer.MESSAGES, Offer.LEDGER_FILE})

    def run(self, source: Any, context: AuditContext) -> list[Finding]:
        return ledger_findings(source, [a for a in context.attempts if a.target == "labels"])


def ledger_findings(system: Any, attempts: Sequence[Any]) -> list[Finding]:
    """Whether the ledger lists every recorded kind that is not public; one finding for each kind.

    A kind that is missing breaks the ledger if an attack learns from it, and leaves it unsupported otherwise. It is
    accounted for as an exact release of everything, so no claim rests on it and it counts by itself.
    """
    config = system.config
    counts = Counter(m.kind for m in system.messages if m.kind not in config.public)
    listed = {r.kind for r in config.release}
    findings = []
    for kind, count in sorted(counts.items()):
        verdict, sentence = Verdict.CONSISTENT, f"all {count} recorded messages are in the ledger"
        if kind not in listed:
            reader = _reader(kind, counts, attempts, 1 - config.confidence)
            verdict, sentence = _missing(count, reader)
        findings.append(
            Finding(
                audit="ledger",
                subject=kind,
                verdict=verdict,
                sentence=sentence,
                figure=count,
                measure="recorded messages",
                claim_units=frozenset(),
                decides_alone=True,
                measures=False,
            )
        )
    return findings


def _missing(count: int, reader: Any | None) -> tuple[Verdict, str]:
    """The verdict on a kind that is not in the ledger, and why."""
    missing = f"{count} recorded messages are not in the ledger"
    if reader is None:
        return Verdict.UNSUPPORTED, f"{missing}: counted as exact, of everything"
    return Verdict.VIOLATED, f"{missing}, and {reader.attack} learns {reader.target} from them"


def _reader(kind: str, kinds: Collection[str], attempts: Sequence[Any], alpha: float) -> Any | None:
    """The first attack that reads this kind alone and is right beyond chance, Bonferroni over all attempts."""
    tried = [(a, a.success) for a in attempts if a.success is not None]
    for attempt, success in tried:
        alone = set(kinds) & find("attack", attempt.attack).needs == {kind}
        p = beyond_p_value(success, max(success.chance, success.blind or 0.0))
        if alone and p * len(tried) <= alpha:
            return attempt
    return None
