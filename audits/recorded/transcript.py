"""Audits of what a transcript holds: tensors that the ledger leaves out, the noise on messages, and ciphertexts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vflpriv.audits.ciphertexts import recorded_ciphertexts
from vflpriv.audits.recorded.noise import recorded_noises
from vflpriv.audits.wire import recorded_tensors
from vflpriv.common.registry import register
from vflpriv.common.store import TensorForm
from vflpriv.core.audit import Audit, AuditContext, Finding
from vflpriv.core.systems import Offer

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CiphertextAudit", "RecordedNoiseAudit", "RecordedWireAudit"]

_NOISE_WORK = 3
"""How long a test of a message's noise takes, beside an attack that reads it."""
_NEEDS = frozenset({Offer.MESSAGES, Offer.LEDGER_FILE})


@register("audit")
class RecordedWireAudit(Audit[Any]):
    """Looks for tensors of recorded messages that the ledger file does not cover."""

    name = "recorded-wire"
    topic = "wire"
    summary = "looks for tensors of recorded messages that the ledger file does not cover"
    order = 61
    needs = _NEEDS

    def run(self, source: Any, context: AuditContext) -> list[Finding]:
        del context
        return list(recorded_tensors(source.ledger, source.messages, [r.kind for r in source.config.release]))


@register("audit")
class RecordedNoiseAudit(Audit[Any]):
    """Tests whether recorded messages have the noise that the ledger file declares."""

    name = "recorded-noise"
    topic = "noise"
    summary = "tests whether recorded messages have the noise that the ledger file declares"
    order = 62
    needs = _NEEDS

    def work(self, source: Any, context: AuditContext) -> int:
        del context
        noised = {r.kind for r in source.ledger.releases if not r.once and r.noise.bounds_size}
        return _NOISE_WORK * sum(m.kind in noised for m in source.messages)

    def run(self, source: Any, context: AuditContext) -> list[Finding]:
        counts = Counter(m.kind for m in source.messages)

        def kept(kind: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
            return context.steps.result(f"noise of {kind}", TensorForm(), compute, work=_NOISE_WORK * counts[kind])

        noises = recorded_noises(
            source.ledger, source.messages, shared=source.shared_kinds, confidence=context.confidence, kept=kept
        )
        releases = source.ledger.releases
        return [
            finding
            for noise in noises
            for finding in noise.findings(context.claims, [r for r in releases if r.kind == noise.kind])
        ]


@register("audit")
class CiphertextAudit(Audit[Any]):
    """Tests whether messages that the ledger file calls ciphertext look like one."""

    name = "ciphertexts"
    topic = "wire"
    summary = "tests whether messages that the ledger file calls ciphertext look like one"
    order = 63
    needs = _NEEDS

    def run(self, source: Any, context: AuditContext) -> list[Finding]:
        return list(recorded_ciphertexts(source.ledger, source.messages, context.claims))
