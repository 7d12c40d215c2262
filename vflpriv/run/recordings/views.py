"""What each adversary sees of a recorded training."""

from __future__ import annotations

from dataclasses import replace

from vflpriv.audits.ciphertexts import Sealed
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Transcript
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.system import RecordedSystem

__all__ = ["DEVICES_TRIED", "hidden_kinds", "view_of"]

DEVICES_TRIED = 4
"""How many devices are looked at where a claim is about any device."""


def view_of(system: RecordedSystem, adversary: Adversary, sealed: Sealed, transcript: Transcript | None = None) -> View:
    """The messages that an adversary observes and reads, without the kinds that the ledger says it does not see.

    They are those of the whole recording, or of a part of it.
    """
    whole = transcript or system.recording.transcript
    view = View.of(whole, adversary, devices=system.recording.head.devices, classes=system.classes)
    hidden = hidden_kinds(system.config, adversary)
    seen = (m for m in view.messages if m.kind not in hidden and not sealed.hides(m, adversary))
    return replace(view, messages=tuple(seen))


def hidden_kinds(config: LedgerConfig, adversary: Adversary) -> frozenset[str]:
    """Kinds that the ledger says an adversary does not see; whoever is at an end of a link sees what it carries."""
    if adversary.is_device or adversary.kind == "server":
        return frozenset()
    return frozenset(r.kind for r in config.release if r.seen_by is not None and adversary.kind not in r.seen_by)
