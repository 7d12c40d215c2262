"""What each adversary sees of a recorded training, and what it holds of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from vflpriv.audits.ciphertexts import Sealed
from vflpriv.common.lazy import torch
from vflpriv.core.views import Adversary, Belongings, View
from vflpriv.core.wire import Transcript
from vflpriv.recording.files.scoring_files import FeatureBlock
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.system import RecordedSystem

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["feature_table", "hidden_kinds", "own_features", "seen_records", "view_of", "without_model"]


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


def own_features(system: RecordedSystem, adversary: Adversary, seen: Tensor) -> dict[int, Belongings]:
    """The features of the adversary's devices; none if those of a device or of a record that is seen are missing.

    What the adversary guesses without the protocol is the baseline of attacks on labels: from a part of its features it
    would guess too little.
    """
    members, every = adversary.members(system.schedule.devices), torch.arange(len(seen))
    for m in members:
        if m not in system.blocks or not bool(torch.isin(every[seen], system.blocks[m].records).all()):
            return {}
    return {m: without_model(feature_table(system.blocks[m], every)) for m in members}


def seen_records(system: RecordedSystem) -> Tensor:
    """(N,) whether any message says that it is about a record."""
    seen = torch.zeros(system.recording.head.records, dtype=torch.bool)
    for message in system.messages:
        if message.records is not None:
            seen[message.records] = True
    return seen


def without_model(features: Tensor) -> Belongings:
    """What is known of a device whose features were recorded: a recording holds no models."""
    return Belongings(features=features, apply=_no_model, initial={}, trained={})


def _no_model(parameters: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    del parameters, rows
    raise ValueError("a recording holds messages, not models")


def feature_table(block: FeatureBlock, every: Tensor) -> Tensor:
    """(N, …) a row for every record: where none was recorded, the mean of the others."""
    if torch.equal(block.records, every):
        return block.rows
    table = block.rows.mean(0).expand(len(every), *block.rows.shape[1:]).clone()
    table[block.records] = block.rows
    return table
