"""Sources: what is audited, of whatever kind, and what it offers to audits.

There are three kinds: an engine with its settings (`vflpriv.core.systems`), a transcript with the ledger file that
describes it, and a user's training function with such a ledger. Accounting, attacks, audits and reports ask a source,
never which kind it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, ClassVar

from vflpriv.core.attack import Defences
from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.engine import NoiseParameters
from vflpriv.core.ledger import Ledger
from vflpriv.core.schedules import Schedule
from vflpriv.core.wire import Message

__all__ = ["DEFAULT_DELTA", "Offer", "Source"]

DEFAULT_DELTA = NoiseParameters().delta
"""The δ at which ε is reported for sources that state none."""


class Offer(StrEnum):
    """What a source may have for audits."""

    MESSAGES = "messages"
    WORLDS = "worlds"
    RELEASE_POINTS = "release-points"
    LEDGER_FILE = "ledger-file"
    LABELS = "labels"
    LABEL_COINS = "label-coins"
    MEMBER_COINS = "member-coins"
    FEATURES = "features"

    @property
    def description(self) -> str:
        """What it is, as a phrase."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    Offer.MESSAGES: "the messages of a training",
    Offer.WORLDS: "trainings in neighbouring worlds",
    Offer.RELEASE_POINTS: "release points that a probe can be attached to",
    Offer.LEDGER_FILE: "a recorded training and the ledger file that describes it",
    Offer.LABELS: "labels by which guesses are scored",
    Offer.LABEL_COINS: "canaries in labels, whose coins are known",
    Offer.MEMBER_COINS: "canaries that were trained on or left out by a coin",
    Offer.FEATURES: "features by which guesses are scored",
}


class Source(ABC):
    """What is known of anything that can be audited, and what it offers."""

    kind: ClassVar[str]
    """Which kind it is, as reports say it: "an engine"."""

    key: str
    title: str
    schedule: Schedule
    seed: int

    @property
    @abstractmethod
    def ledger(self) -> Ledger:
        """All releases of the training."""

    @property
    @abstractmethod
    def engine_name(self) -> str:
        """The engine that trains it, as reports name it."""

    @property
    @abstractmethod
    def claims(self) -> tuple[Claim, ...]:
        """The guarantees that are published for it."""

    @property
    @abstractmethod
    def success_claims(self) -> tuple[SuccessClaim, ...]:
        """The published guarantees about an attack's success."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """How many labels there are."""

    @property
    @abstractmethod
    def data_facts(self) -> dict[str, Any]:
        """What reports say of the data, ready for JSON."""

    @property
    @abstractmethod
    def settings_facts(self) -> dict[str, Any]:
        """The settings, ready for JSON."""

    @property
    def rounds(self) -> int:
        """Rounds of the training."""
        return self.schedule.rounds

    def rounds_after(self, turns: int) -> int:
        """How many rounds have begun, as the training counts them, after so many, at least one, of the schedule."""
        return turns

    def staleness(self) -> Counter[int]:
        """How many rounds old the embeddings were that rounds read, as `Schedule.staleness` counts them."""
        return self.schedule.staleness()

    @property
    def defences(self) -> Defences:
        """What is public about the defences in force; nothing of a system whose settings are not known."""
        return {}

    @property
    def delta(self) -> float:
        """The δ at which its budgets are reported."""
        return DEFAULT_DELTA

    @property
    def noise_std(self) -> float | None:
        """The std of its noise, where it has one setting for it."""
        return None

    @property
    def secure_noise(self) -> bool | None:
        """Whether its noise comes from the operating system's secure generator; None where that is not known."""
        return None

    @property
    def offers(self) -> frozenset[Offer]:
        """What audits may ask of it."""
        return frozenset()

    @property
    def messages(self) -> Sequence[Message]:
        """Everything that one training sends, where it offers `Offer.MESSAGES`."""
        raise NotImplementedError(f"{self.key} offers no messages")

    def missing(self, needs: Collection[Offer]) -> str | None:
        """What an audit needs and this source does not offer, as a phrase; None if it offers all of it."""
        absent = [offer.description for offer in Offer if offer in needs and offer not in self.offers]
        return f"it needs {' and '.join(absent)}, which {self.kind} does not offer here" if absent else None
