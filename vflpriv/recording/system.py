"""A recorded training as a system: its schedule is read off the transcript, its releases and claims from the ledger."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from vflpriv.core.canaries import MemberCanaries
from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.ledger import Ledger
from vflpriv.core.schedules import Schedule
from vflpriv.core.systems import Offer, Source
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Message
from vflpriv.errors import InputError
from vflpriv.recording.files.scoring_files import FeatureBlock, read_features, read_members
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.schedule import RecordedSchedule
from vflpriv.recording.transcripts import Answers, Recording, read_answers, read_transcript

__all__ = ["RecordedSystem", "read_recording"]


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedSystem(Source):
    """A system that was trained elsewhere, once. It can be accounted for and attacked, but not trained again."""

    kind: ClassVar[str] = "a transcript"
    how_to_offer: ClassVar[Mapping[Offer, str]] = {
        Offer.WORLDS: "it is of one training, and `vflpriv audit --train`, vflpriv.testing.assert_training_epsilon or "
        "an engine of your own (entry point vflpriv.engines) adds trials in two worlds",
        Offer.LABEL_COINS: "labels, canaries = vflpriv.plant(labels, classes=…, canaries=200, seed=…) before training "
        "and wire.labels(labels, canaries=canaries) while recording measure claims about labels",
    }
    key: str
    title: str
    seed: int
    schedule: Schedule
    config: LedgerConfig
    recording: Recording
    recorded: RecordedSchedule
    full_ledger: Ledger
    """The releases of the ledger file, and the recorded kinds that it leaves out."""
    answers: Answers | None
    """The labels by which attacks are scored, with the canaries in them; None if they were not recorded."""
    blocks: Mapping[int, FeatureBlock] = field(default_factory=dict)
    """The features by which attacks are scored, of each device whose features were recorded."""
    members: MemberCanaries | None = None
    """The canaries that were trained on or left out by a coin; None if there are none."""

    @property
    def ledger(self) -> Ledger:
        return self.full_ledger

    @property
    def engine_name(self) -> str:
        return "recorded"

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(c.claim({}) for c in self.config.claim)

    @property
    def success_claims(self) -> tuple[SuccessClaim, ...]:
        return tuple(c.claim(self.classes) for c in self.config.attack_claim)

    @property
    def classes(self) -> int:
        """How many labels there are; 0 if they are the targets of a regression."""
        return self.recording.head.classes or 0

    @property
    def offers(self) -> frozenset[Offer]:
        known = {
            Offer.LABELS: self.answers is not None,
            Offer.LABEL_COINS: self.answers is not None and self.answers.canaries is not None,
            Offer.MEMBER_COINS: self.members is not None,
            Offer.FEATURES: bool(self.blocks),
        }
        return frozenset({Offer.MESSAGES, Offer.LEDGER_FILE, *(offer for offer, there in known.items() if there)})

    @property
    def messages(self) -> Sequence[Message]:
        """Everything that was sent."""
        return self.recording.transcript.messages

    def name_of(self, claim: Claim) -> str:
        """By its key: `where` is optional in a ledger file."""
        return f"claim {claim.key}"

    @property
    def shared_kinds(self) -> frozenset[str]:
        """Kinds of messages that are one value for all devices."""
        return _shared_kinds(self.config)

    @property
    def data_facts(self) -> dict[str, Any]:
        """Facts of the head; the accuracy is the one that was recorded."""
        head = self.recording.head
        facts = {"name": head.name, "records": head.records, "devices": head.devices, "classes": head.classes}
        facts |= {"messages": dict(head.messages), "protection": self.recording.protection}
        return facts if head.accuracy is None else facts | {"accuracy": head.accuracy, "tests": head.tests}

    @property
    def settings_facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.config.model_dump_json())
        return facts

    @property
    def rounds(self) -> int:
        return self.recording.rounds

    def rounds_after(self, turns: int) -> int:
        """Turns of one round are one round."""
        return int(self.recorded.rounds[turns - 1]) + 1

    def staleness(self) -> Counter[int]:
        """Not known: a transcript does not say which embeddings a round read."""
        return Counter()

    @property
    def delta(self) -> float:
        return self.config.delta


def read_recording(folder: Path, config: LedgerConfig) -> RecordedSystem:
    """Read a transcript, check it, and put it together with its ledger."""
    recording = read_transcript(folder)
    _check_views(config, recording.head.devices)
    answers = read_answers(folder, recording.head)
    head, messages = recording.head, recording.transcript.messages
    recorded = RecordedSchedule.of(
        messages,
        records=head.records,
        devices=head.devices,
        shared=_shared_kinds(config),
        public=frozenset(config.public),
        sampled=config.batches.sampled(),
    )
    ledger = Ledger(
        schedule=recorded.schedule,
        releases=config.releases(recorded, _ways(messages)),
        label_holders=frozenset(config.label_holders),
        tuning_runs=config.tuning_runs,
    )
    return RecordedSystem(
        key=config.key,
        title=config.title or head.name,
        seed=config.seed,
        schedule=recorded.schedule,
        config=config,
        recording=recording,
        recorded=recorded,
        full_ledger=ledger,
        answers=answers,
        blocks=read_features(folder, head),
        members=read_members(folder, head),
    )


def _shared_kinds(config: LedgerConfig) -> frozenset[str]:
    return frozenset(r.kind for r in config.release if r.shared)


def _ways(messages: Sequence[Message]) -> Mapping[str, frozenset[str]]:
    """The directions in which each kind of message was sent."""
    ways: defaultdict[str, set[str]] = defaultdict(set)
    for m in messages:
        ways[m.kind].add("across" if m.across else "down" if m.sender.is_server else "up")
    return {kind: frozenset(directions) for kind, directions in ways.items()}


def _check_views(config: LedgerConfig, devices: int) -> None:
    """Refuse claims about devices that are not in the recording."""
    for place, c in enumerate((*config.claim, *config.attack_claim)):
        try:
            for adversary in Adversary.parse(c.view).each(devices):
                adversary.members(devices)
        except InputError as error:
            raise InputError(f"ledger.claim.{place}.view", error.value, error.expected) from error
