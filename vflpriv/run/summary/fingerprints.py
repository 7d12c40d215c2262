"""Hashes of what a report was made from: configuration, ledger, transcript, code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from vflpriv.common.sources import program_hash
from vflpriv.report.audit import SystemRow
from vflpriv.report.rows import Fingerprint

__all__ = ["fingerprints", "ledger_hash", "value_hash"]


def fingerprints(
    config: Mapping[str, object], systems: Sequence[SystemRow], *, own: Mapping[str, str | None]
) -> tuple[Fingerprint, ...]:
    """The hash of each; `own` are those of a user's transcript or training function, None where it cannot be told.

    The ledger is that of all systems: every release with its noise, sensitivity and observers, and the sampling.
    The code is that of this program with the versions of Python and of the libraries that it computes with.
    """
    hashes = {"configuration": value_hash(config), "ledger": ledger_hash(systems), **own, "code": program_hash()}
    return tuple(Fingerprint(name=name, sha256=value) for name, value in hashes.items() if value is not None)


def ledger_hash(systems: Sequence[SystemRow]) -> str:
    """The hash of all releases of these systems, with the sampling of each."""
    ledger = [
        {
            "system": system.key,
            "releases": [release.model_dump(mode="json") for release in system.releases],
            "sampling": None if system.sampling is None else system.sampling.model_dump(mode="json"),
        }
        for system in systems
    ]
    return value_hash(ledger)


def value_hash(value: object) -> str:
    """Of canonical JSON: sorted keys, no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
