"""The first trainings of a user's system, in both worlds with one seed: what they send, and whether it repeats."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vflpriv.core.wire import Message
from vflpriv.recording.checked_wire import CheckedWire, MemoryWire
from vflpriv.recording.files.format import Entry
from vflpriv.recording.recorder import RecordingWire
from vflpriv.recording.worlds_file import TrialsConfig
from vflpriv.run.own_training.function import OwnTraining

__all__ = ["Reference", "sizes"]

_ATTEMPTS = 4
"""Seeds with which both worlds are trained before they are said to be the same."""


def sizes(config: TrialsConfig) -> dict[str, Any]:
    """What every wire of the training is told."""
    return {"devices": config.devices, "classes": config.classes, "records": config.records}


@dataclass(frozen=True, eq=False, kw_only=True)
class Reference:
    """What trainings with the same seed sent in either world, and what is known before the trials."""

    worlds: tuple[Sequence[Message], Sequence[Message]]
    labels: Tensor
    """(records,) the class of each record in world 0; -1 where it is not known."""
    record_labels: tuple[int, int]
    """The label of the record that differs, in either world; the same where it is not known."""
    digest: str
    """A hash of all that was sent in both worlds: another one if the data, or a library, is another."""
    repeats: bool
    """Whether a second training with the same seed in the same world sent the same bits."""
    differ: bool
    """Whether the worlds sent different bits, with one of the seeds at least."""
    seeds: int
    """With how many seeds both worlds were trained."""

    @classmethod
    def of(cls, training: OwnTraining, config: TrialsConfig, folder: Path, seeds: Sequence[int]) -> Reference:
        """Record a training in world 0 to a folder, then train in world 1, and once more in world 0."""
        recorded = _recorded(training, config, folder, seeds[0])
        other, again = (_kept(training, config, world, seeds[0]) for world in (1, 0))
        tried, differ = 1, other.digest != again.digest
        for seed in seeds[1:_ATTEMPTS]:
            if differ:
                break
            pair = [_kept(training, config, world, seed).digest for world in (0, 1)]
            tried, differ = tried + 1, pair[0] != pair[1]
        unknown = torch.full((config.records,), -1)
        labels = [unknown if wire.known_labels is None else wire.known_labels for wire in (again, other)]
        own = [int(known[config.record or 0]) for known in labels]
        return cls(
            worlds=(again.transcript.messages, other.transcript.messages),
            labels=labels[0],
            record_labels=(own[0], own[1]),
            digest=f"{recorded}/{other.digest}",
            repeats=recorded == again.digest,
            differ=differ,
            seeds=tried,
        )

    @property
    def messages(self) -> list[Message]:
        """What was sent in either world."""
        return [message for sent in self.worlds for message in sent]

    @property
    def rounds(self) -> int:
        return 1 + max((m.round for m in self.messages), default=0)


class _DigestingWire(CheckedWire):
    """Hashes every message that passes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sent = hashlib.sha256()

    def add(self, *args: Any, **options: Any) -> tuple[Entry, dict[str, Tensor]]:
        entry, tensors = super().add(*args, **options)
        ids = options.get("ids", args[5] if len(args) > 5 else None)
        self._sent.update(f"\0{entry.round} {entry.way} {entry.device} {entry.to} {entry.kind}".encode())
        for name, value in (*tensors.items(), *(() if ids is None else (("", ids),))):
            self._sent.update(f"\0{name} {value.dtype} {tuple(value.shape)}\0".encode())
            self._sent.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return entry, tensors

    @property
    def digest(self) -> str:
        return self._sent.hexdigest()


class _DigestingRecorder(_DigestingWire, RecordingWire):
    """Writes a transcript."""


class _DigestingMemory(_DigestingWire, MemoryWire):
    """Keeps messages in memory."""


def _recorded(training: OwnTraining, config: TrialsConfig, folder: Path, seed: int) -> str:
    # The same number each time: the transcript of a training that is repeated has the same hash.
    run = hashlib.sha256(f"{training.name}/{seed}".encode()).hexdigest()[:32]
    wire = _DigestingRecorder(folder, name=training.name, run=run, **sizes(config))
    try:
        training.run(wire, 0, seed)
    except BaseException:
        wire.abandon()
        raise
    wire.finish()
    return wire.digest


def _kept(training: OwnTraining, config: TrialsConfig, world: int, seed: int) -> _DigestingMemory:
    wire = _DigestingMemory(**sizes(config))
    training.run(wire, world, seed)
    wire.close()
    return wire
