"""A recorded training as a system: its schedule read off the transcript, its releases and claims from the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vflpriv.core.claims import Claim
from vflpriv.core.data import VerticalData
from vflpriv.core.ledger import Ledger
from vflpriv.core.schedules import Schedule
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Message
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.schedule import RecordedSchedule
from vflpriv.recording.transcripts import Answers, Recording, read_answers, read_transcript

__all__ = ["ForeignEngine", "ForeignSystem", "read_recording"]


@dataclass(frozen=True)
class ForeignEngine:
    """Stands where a system has its engine: it knows a ledger and claims, and cannot train."""

    known: Ledger
    claimed: tuple[Claim, ...] = ()
    name: str = "recorded"

    def ledger(self, settings: Any, schedule: Schedule) -> Ledger:
        del settings, schedule
        return self.known

    def claims(self, settings: Any, schedule: Schedule) -> tuple[Claim, ...]:
        del settings, schedule
        return self.claimed


@dataclass(frozen=True, eq=False, kw_only=True)
class ForeignSystem:
    """A recorded training as a system that can be accounted for, and what it was read from."""

    system: System
    recording: Recording
    answers: Answers | None
    schedule: RecordedSchedule
    shared: frozenset[str]
    """Kinds of messages that are one value for all devices."""


def read_recording(folder: Path, config: LedgerConfig) -> ForeignSystem:
    """Read a transcript, check it, and put it together with its ledger."""
    recording = read_transcript(folder)
    _check_views(config, recording.head.devices)
    answers = read_answers(folder, recording.head)
    head, messages = recording.head, recording.transcript.messages
    shared = frozenset(r.kind for r in config.release if r.shared)
    recorded = RecordedSchedule.of(
        messages,
        records=head.records,
        devices=head.devices,
        shared=shared,
        public=frozenset(config.public),
        sampled=config.batches.sampled(),
    )
    ledger = Ledger(
        schedule=recorded.schedule,
        releases=config.releases(recorded, _ways(messages)),
        label_holders=frozenset(config.label_holders),
    )
    system = System(
        key=config.key,
        engine=ForeignEngine(  # type: ignore[arg-type]
            ledger, tuple(c.claim({}) for c in config.claim)
        ),
        settings=config,
        data=_data(recording, answers),
        schedule=recorded.schedule,
        seed=config.seed,
        torch_device=torch.device("cpu"),
    )
    return ForeignSystem(system=system, recording=recording, answers=answers, schedule=recorded, shared=shared)


def _ways(messages: Sequence[Message]) -> Mapping[str, frozenset[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for m in messages:
        found[m.kind].add("down" if m.sender.is_server else "up")
    return {kind: frozenset(ways) for kind, ways in found.items()}


def _data(recording: Recording, answers: Answers | None) -> VerticalData:
    """What reports say of the data; there are no features in a transcript."""
    head = recording.head
    nothing = tuple(torch.empty(head.records, 0) for _ in range(head.devices))
    return VerticalData(
        name=head.name,
        classes=head.classes,
        blocks=nothing,
        labels=torch.full((head.records,), -1) if answers is None else answers.labels,
        test_blocks=(),
        test_labels=torch.empty(head.tests, dtype=torch.int64),
    )


def _check_views(config: LedgerConfig, devices: int) -> None:
    """Whether claims speak of devices that there are."""
    for place, c in enumerate((*config.claim, *config.attack_claim)):
        try:
            for one in Adversary.parse(c.view).each(devices):
                one.members(devices)
        except InputError as error:
            raise InputError(f"ledger.claim.{place}.view", error.value, error.expected) from error
