"""The report's checks of a ledger file against the transcript: is every kind listed, and can the noise be there?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from vflpriv.audits._bounds import Floats
from vflpriv.audits.recorded_noise import noise_p_value
from vflpriv.config_ledger import LedgerConfig
from vflpriv.formatting import p_value
from vflpriv.registry import find
from vflpriv.report import CheckRow
from vflpriv.run import Audited
from vflpriv.transcripts import Recording
from vflpriv.verdicts import Word
from vflpriv.wire import Message

__all__ = ["ledger_checks"]


def ledger_checks(config: LedgerConfig, recording: Recording, audited: Audited, reproduce: str) -> list[CheckRow]:
    """One row for each recorded kind that is not public, and one for each noise."""
    messages = recording.transcript.messages
    counts = Counter(m.kind for m in messages if m.kind not in config.public)
    listed = {r.kind for r in config.release}
    found = [_listed(kind, n, kind in listed, audited) for kind, n in sorted(counts.items())]
    found += _noises(config, messages, audited)
    return [row.model_copy(update={"reproduce": reproduce}) for row in found]


def _row(audit: str, subject: str, figure: float, verdict: Word, reason: str) -> CheckRow:
    return CheckRow(audit=audit, subject=subject, unit="", figure=figure, verdict=verdict, reason=reason, reproduce="")


def _listed(kind: str, count: int, listed: bool, audited: Audited) -> CheckRow:
    """A kind that is missing breaks the ledger where an attack learns from it, and leaves it open elsewhere."""
    if listed:
        return _row("ledger", kind, count, Word.CONSISTENT, f"all {count} recorded messages are in the ledger")
    missing = f"{count} recorded messages are not in the ledger"
    readers = [
        a
        for a in audited.attempts
        if a.success is not None and kind in find("attack", a.attack).needs and a.success.low > a.success.chance
    ]
    if not readers:
        return _row("ledger", kind, count, Word.UNSUPPORTED, f"{missing}: counted as exact, of everything")
    first = readers[0]
    return _row("ledger", kind, count, Word.VIOLATED, f"{missing}, and {first.attack} learns {first.target} from them")


def _noises(config: LedgerConfig, messages: list[Message], audited: Audited) -> Iterator[CheckRow]:
    """Tests of the declared noise, at a family-wise error of 1 - confidence over all of them (Bonferroni)."""
    releases = {r.kind: r for r in audited.system.ledger.releases}
    shared = {r.kind for r in config.release if r.shared}
    tested = {r.kind: _values(messages, r.kind, r.kind in shared) for r in config.release if not r.once}
    found = {kind: noise_p_value(releases[kind].noise, values) for kind, values in tested.items()}
    p_values = {kind: p for kind, p in found.items() if p is not None}
    for kind, p in p_values.items():
        adjusted, entries = min(1.0, p * len(p_values)), sum(v.size for v in tested[kind])
        small = adjusted <= 1 - config.confidence
        said = f"{releases[kind].noise} on each of {entries} recorded entries"
        reason = f"{said}: {'they are too small to hold it' if small else 'they are large enough to hold it'}"
        reason += f" (p = {p_value(adjusted)})"
        yield _row("noise", kind, p, Word.VIOLATED if small else Word.CONSISTENT, reason)


def _values(messages: list[Message], kind: str, shared: bool) -> list[Floats]:
    """The payloads of a kind; of a shared one, what the first device of a round was sent."""
    first: dict[int, int] = {}
    chosen = []
    for m in messages:
        if m.kind == kind and (not shared or first.setdefault(m.round, m.device.index) == m.device.index):
            chosen += [t.double().numpy() for t in m.tensors.values()]
    return chosen
