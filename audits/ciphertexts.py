"""Messages that a ledger calls ciphertext: whether what was recorded of them can be one.

No test shows that a ciphertext hides what is in it, so that the best verdict is "unmeasured". But some bytes cannot be
those of a ciphertext: numbers in clear, the same bytes for several records, bytes that are far from uniform. They then
count as sent in clear.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vflpriv.common.formatting import percent
from vflpriv.common.lazy import stats
from vflpriv.core.audit import Finding
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.law import Law
from vflpriv.core.ledger import Ledger
from vflpriv.core.releases import Release
from vflpriv.core.views import Adversary
from vflpriv.core.wire import CIPHERTEXT, Message, Party
from vflpriv.laws import Exact

__all__ = ["Sealed", "recorded_ciphertexts"]

AUDIT = "ciphertext"
_ALPHA = 1e-6
"""The probability with which a test objects to bytes that are uniform."""
_READINGS: Mapping[str, float] = {"<f8": 41 / 2048, ">f8": 41 / 2048, "<f4": 41 / 256, ">f4": 41 / 256}
"""How bytes may be read as floats, and how often uniform ones then lie between 2^-20 and 2^21: 41 of all exponents."""
_USUAL = (2.0**-20, 2.0**21)
_FAR = 0.05
"""The distance from uniform bytes, in total variation, that leading bytes and padding of a ciphertext do not reach."""
_EACH_EXPECTED = 5
"""Pearson's statistic needs that each of the 256 bytes is expected so often."""

_Bytes = NDArray[np.uint8]


def recorded_ciphertexts(ledger: Ledger, messages: Sequence[Message], claims: Sequence[Claim]) -> list[Finding]:
    """One finding for each recorded kind that the ledger calls opaque.

    A kind that cannot be ciphertext refutes the claims about adversaries from whom it was said to be hidden, or leaves
    them unsupported; it then counts as sent in clear.
    """
    findings = []
    for release in ledger.releases:
        own = [m for m in messages if m.kind == release.kind]
        if release.noise.sealed_by and own:
            findings.append(_finding(release, release.noise, _judge(own, release.noise), claims))
    return findings


class Sealed:
    """The messages that adversaries do not read: those of kinds that the ledger calls opaque and that may be."""

    def __init__(self, ledger: Ledger, findings: Iterable[Finding]) -> None:
        kinds = {f.subject for f in findings if f.audit == AUDIT and f.verdict is Verdict.UNMEASURED}
        self._noises = {r.kind: r.noise for r in ledger.releases if r.kind in kinds and r.noise.sealed_by}

    def hides(self, message: Message, adversary: Adversary) -> bool:
        """Whether this adversary has no key, or nothing that it could read was recorded."""
        noise = self._noises.get(message.kind)
        return noise is not None and (message.is_ciphertext or noise.observed_by(adversary.kind) is None)

    def kinds_in_clear(self, messages: Iterable[Message], adversary: Adversary) -> frozenset[str]:
        """Kinds whose values were recorded as the ends of their links read them, and this adversary cannot."""
        return frozenset(m.kind for m in messages if not m.is_ciphertext and self.hides(m, adversary))


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """What was seen of the messages of a kind, and what follows."""

    verdict: Verdict
    sentence: str


def _judge(messages: Sequence[Message], noise: Law) -> _Judged:
    """The gravest of all objections to these messages as ciphertext."""
    clear = [m for m in messages if not m.is_ciphertext]
    if clear and not any(noise.observed_by(_end(party)) is None for m in clear for party in (m.sender, m.receiver)):
        sentence = f"{len(messages)} messages, recorded as its two ends read them; what others see was not recorded"
        return _Judged(verdict=Verdict.UNMEASURED, sentence=sentence)
    if clear:
        name, value = next(iter(clear[0].tensors.items()), ("none", None))
        held = "no tensors" if value is None else f"{str(value.dtype).removeprefix('torch.')} values in {name}"
        sentence = f"{len(clear)} of {len(messages)} messages hold {held}, which is no ciphertext"
        return _Judged(verdict=Verdict.VIOLATED, sentence=sentence)
    total = sum(m.payload_bytes for m in messages)
    recorded = [m.tensors[CIPHERTEXT][0].numpy() for m in messages if CIPHERTEXT in m.tensors]
    if not any(rows.size for rows in recorded):
        sentence = f"{total} bytes in {len(messages)} messages; only their number was recorded, and nothing is tested"
        return _Judged(verdict=Verdict.UNMEASURED, sentence=sentence)
    different = _different(recorded)
    return _equal(recorded) or _floats(different) or _uniform(different)


def _end(party: Party) -> str:
    return "server" if party.is_server else "device"


def _different(recorded: Sequence[_Bytes]) -> list[_Bytes]:
    """Each ciphertext once, to however many it was sent, by their lengths."""
    by_length: dict[int, set[bytes]] = {}
    for rows in recorded:
        by_length.setdefault(rows.shape[1], set()).update(row.tobytes() for row in rows)
    return [
        np.frombuffer(b"".join(sorted(rows)), dtype=np.uint8).reshape(len(rows), length)
        for length, rows in by_length.items()
        if length
    ]


def _equal(recorded: Sequence[_Bytes]) -> _Judged | None:
    """Whether two ciphertexts of one message are the same, where that cannot be chance."""
    pairs = sum(len(rows) * (len(rows) - 1) / 2 * 256.0 ** -min(rows.shape[1], 100) for rows in recorded)
    repeated = sum(len(rows) - len(np.unique(rows, axis=0)) for rows in recorded if rows.shape[1])
    if not repeated or pairs > _ALPHA:
        return None
    sentence = (
        f"{repeated} of {sum(map(len, recorded))} ciphertexts occur more than once in a message: equal values are "
        "encrypted alike, so that whoever sees them learns which records have the same value"
    )
    return _Judged(verdict=Verdict.VIOLATED, sentence=sentence)


def _floats(different: Sequence[_Bytes]) -> _Judged | None:
    """Whether the bytes are floats of usual size, far more often than uniform ones are."""
    readings = []
    for reading, chance in _READINGS.items():
        views = [rows.view(reading) for rows in different if not rows.shape[1] % int(reading[-1])]
        number, usual = sum(view.size for view in views), sum(_usual(view) for view in views)
        if 2 * usual > number and len(_READINGS) * stats.binom.sf(usual - 1, number, chance) <= _ALPHA:
            readings.append((usual / number, number, reading))
    if not readings:
        return None
    share, number, reading = max(readings)
    sentence = (
        f"its bytes are numbers in clear: {percent(share)} of its {number} words of {reading[-1]} bytes are floats "
        f"between 1e-6 and 2e6, and {percent(_READINGS[reading])} of a ciphertext's"
    )
    return _Judged(verdict=Verdict.VIOLATED, sentence=sentence)


def _usual(read: NDArray[np.floating]) -> int:
    """How many of these floats are of usual size, or 0."""
    with np.errstate(invalid="ignore"):
        sizes = np.abs(read)
    return int(np.count_nonzero((sizes == 0) | ((sizes >= _USUAL[0]) & (sizes < _USUAL[1]))))


def _uniform(different: Sequence[_Bytes]) -> _Judged:
    """Whether the bytes are uniform."""
    counts = np.sum([np.bincount(rows.ravel(), minlength=256) for rows in different], axis=0)
    total, number = int(counts.sum()), sum(map(len, different))
    if total < _EACH_EXPECTED * 256:
        return _Judged(verdict=Verdict.UNMEASURED, sentence=f"{total} different bytes are too few to be tested")
    distance = float(np.abs(counts / total - 1 / 256).sum() / 2)
    p = float(stats.chisquare(counts).pvalue)
    if p > _ALPHA or distance < _FAR:
        sentence = f"{total} bytes in {number} different ciphertexts may be those of a ciphertext"
        return _Judged(verdict=Verdict.UNMEASURED, sentence=sentence)
    entropy = -sum(share * math.log2(share) for share in counts / total if share)
    sentence = (
        f"its bytes are not those of a ciphertext: {entropy:.2f} bits of entropy per byte in {total} bytes, a "
        "ciphertext's have 8 (record ciphertexts without headers and text encodings)"
    )
    return _Judged(verdict=Verdict.UNSUPPORTED, sentence=sentence)


def _finding(release: Release, noise: Law, judged: _Judged, claims: Sequence[Claim]) -> Finding:
    """A kind that may be ciphertext says nothing for a claim; one that is not counts as sent in clear."""
    sealed = judged.verdict is Verdict.UNMEASURED
    kinds = release.seen_by
    harmed = [c.key for c in claims if c.adversary.kind in kinds and noise.observed_by(c.adversary.kind) is None]
    what = f"{release.what}; called opaque, and no ciphertext"
    return Finding(
        audit=AUDIT,
        subject=release.kind,
        verdict=judged.verdict,
        sentence=f"{release.kind}: {judged.sentence}",
        figure=float(not sealed),
        measure="objections",
        claim_units=frozenset(release.sensitivity),
        claim_keys=None if sealed else frozenset(harmed),
        decides_alone=not sealed,
        measures=False,
        undeclared=() if sealed else (replace(release, noise=Exact(), what=what),),
    )
