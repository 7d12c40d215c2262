"""Hashes of what a report was made from: configuration, ledger, transcript, code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from vflpriv.common.sources import program_hash
from vflpriv.report.audit import SystemRow
from vflpriv.report.rows import Fingerprint

__all__ = ["fingerprints"]


def fingerprints(
    config: Mapping[str, object], systems: Sequence[SystemRow], *, own: Mapping[str, str | None]
) -> tuple[Fingerprint, ...]:
    """The hash of each; `own` are those of a user's transcript or training function, None where it cannot be told.

    The ledger is that of all systems: every release with its noise, sensitivity and observers, and the sampling.
    The code is that of this program with the versions of Python and of the libraries that it computes with.
    """
    ledger = [
        {
            "system": system.key,
            "releases": [release.model_dump(mode="json") for release in system.releases],
            "sampling": None if system.sampling is None else system.sampling.model_dump(mode="json"),
        }
        for system in systems
    ]
    found = {"configuration": _hash(config), "ledger": _hash(ledger), **own, "code": program_hash()}
    return tuple(Fingerprint(name=name, sha256=value) for name, value in found.items() if value is not None)


def _hash(value: object) -> str:
    """Of canonical JSON: sorted keys, no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
