"""The report's checks of a ledger file against the transcript: is every kind listed, and can the noise be there?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from vflpriv.audits.success_verdict import beyond_p_value
from vflpriv.config_ledger import LedgerConfig
from vflpriv.registry import find
from vflpriv.report import CheckRow
from vflpriv.run import Attempt, Audited
from vflpriv.run_recorded import Recorded
from vflpriv.verdicts import Word

__all__ = ["ledger_checks"]


def ledger_checks(found: Recorded, config: LedgerConfig, reproduce: str) -> list[CheckRow]:
    """One row for each recorded kind that is not public, and one for each noise."""
    messages, audited = found.recording.transcript.messages, found.audited
    counts = Counter(m.kind for m in messages if m.kind not in config.public)
    listed = {r.kind for r in config.release}
    rows = []
    for kind, count in sorted(counts.items()):
        reader = None if kind in listed else _reader(kind, counts, audited, 1 - config.confidence)
        rows.append(_listed(kind, count, kind in listed, reader))
    rows += [
        _row("noise", n.kind, n.p_adjusted, Word.CONSISTENT if n.holds else Word.VIOLATED, n.sentence)
        for n in found.noises
    ]
    return [row.model_copy(update={"reproduce": reproduce}) for row in rows]


def _row(audit: str, subject: str, figure: float, verdict: Word, reason: str) -> CheckRow:
    return CheckRow(audit=audit, subject=subject, unit="", figure=figure, verdict=verdict, reason=reason, reproduce="")


def _listed(kind: str, count: int, listed: bool, reader: Attempt | None) -> CheckRow:
    """A kind that is missing breaks the ledger where an attack learns from it, and leaves it open elsewhere."""
    if listed:
        return _row("ledger", kind, count, Word.CONSISTENT, f"all {count} recorded messages are in the ledger")
    missing = f"{count} recorded messages are not in the ledger"
    if reader is None:
        return _row("ledger", kind, count, Word.UNSUPPORTED, f"{missing}: counted as exact, of everything")
    return _row(
        "ledger", kind, count, Word.VIOLATED, f"{missing}, and {reader.attack} learns {reader.target} from them"
    )


def _reader(kind: str, kinds: Collection[str], audited: Audited, alpha: float) -> Attempt | None:
    """The first attack that reads this kind alone and is right beyond chance, Bonferroni over all attempts."""
    tried = [(a, a.success) for a in audited.attempts if a.success is not None]
    for attempt, success in tried:
        alone = set(kinds) & find("attack", attempt.attack).needs == {kind}
        p = beyond_p_value(success, max(success.chance, success.blind or 0.0))
        if alone and p * len(tried) <= alpha:
            return attempt
    return None
