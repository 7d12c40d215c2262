"""Sources of audits, and engines with their settings as such sources: without training, and to be trained.

There are three kinds of sources: an engine with its settings, a transcript with the ledger file that describes it, and
a user's training function with such a ledger. Accounting, attacks, audits and reports ask a source, never which kind it
is.
"""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vflpriv.common.seeds import STREAMS, SecretKey
from vflpriv.common.sources import code_hash
from vflpriv.common.store import Store
from vflpriv.core.attack import Conduct, Defences
from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.data import BaseData, VerticalData
from vflpriv.core.engine import Engine, NoiseParameters, Probe
from vflpriv.core.ledger import Ledger
from vflpriv.core.schedules import Schedule
from vflpriv.core.wire import Message, Transcript, Wire

if TYPE_CHECKING:
    import torch

__all__ = ["DEFAULT_DELTA", "DeclaredSystem", "Offer", "Source", "System", "accelerated"]

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
    TRACE = "trace"

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
    Offer.TRACE: "a training that can be followed operation by operation",
}


class Source(ABC):
    """What is known of anything that can be audited, and what it offers."""

    kind: ClassVar[str]
    """Which kind it is, as reports say it: "an engine"."""
    how_to_offer: ClassVar[Mapping[Offer, str]] = {}
    """What makes it offer something that it may lack, as reports advise it."""

    key: str
    title: str
    schedule: Schedule
    seed: int
    secret_key: SecretKey | None = None
    """The key of its secret random numbers; None where there is none, as in audits, or where it is not known."""

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
    def secret_draws(self) -> tuple[str, ...]:
        """The names of the secret streams that a training draws from, as far as they are known."""
        return ()

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
        absent = [offer for offer in Offer if offer in needs and offer not in self.offers]
        if not absent:
            return None
        described = " and ".join(offer.description for offer in absent)
        advice = [self.how_to_offer[offer] for offer in absent if offer in self.how_to_offer]
        return "; ".join((f"it needs {described}, which {self.kind} does not offer here", *advice))

    def name_of(self, claim: Claim) -> str:
        """How lines of the report call a claim."""
        return claim.where


@dataclass(frozen=True, eq=False, kw_only=True)
class DeclaredSystem(Source):
    """A registered engine class and complete settings, in which the noise is a number: what is known without training.

    Of the data it needs names and shapes only.
    """

    kind: ClassVar[str] = "an engine"
    key: str
    engine: type[Engine]
    settings: Any
    data: BaseData
    schedule: Schedule
    seed: int
    title: str = ""
    tuning_runs: int | None = None
    """Trainings on the same data before this one, which budgets count; None if nobody said how many."""

    @property
    def ledger(self) -> Ledger:
        ledger = self.engine.ledger(self.settings, self.schedule)
        return replace(ledger, tuning_runs=self.tuning_runs, fitted=self.data.fitted)

    @property
    def engine_name(self) -> str:
        return str(self.engine.name)

    @property
    def claims(self) -> tuple[Claim, ...]:
        calibrated: tuple[Claim, ...] = self.settings.calibrated_claims
        return calibrated or tuple(self.engine.claims(self.settings, self.schedule))

    @property
    def success_claims(self) -> tuple[SuccessClaim, ...]:
        return tuple(self.engine.success_claims(self.settings, self.schedule))

    @property
    def classes(self) -> int:
        return self.data.classes

    @property
    def data_facts(self) -> dict[str, Any]:
        return {**self.data.facts, "features": [math.prod(shape) for shape in self.data.shapes]}

    @property
    def settings_facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.settings.model_dump_json())
        return facts

    @property
    def defences(self) -> Defences:
        in_force: Defences = self.settings.defences_in_force
        return in_force

    @property
    def delta(self) -> float:
        return self.noise_parameters.delta

    @property
    def noise_std(self) -> float | None:
        return self.noise_parameters.std

    @property
    def secure_noise(self) -> bool | None:
        return self.noise_parameters.secure

    @property
    def noise_parameters(self) -> NoiseParameters:
        """What the settings say of the noise."""
        parameters: NoiseParameters = self.settings.noise_parameters
        return parameters


@dataclass(frozen=True, eq=False, kw_only=True)
class System(DeclaredSystem):
    """A system that can be trained."""

    data: VerticalData
    torch_device: torch.device
    secret_key: SecretKey | None = None
    """The key of its secret random numbers, which come from the seed where there is none, as audits train it."""

    noisy_features: bool = False
    """Whether noise was added to features of its data."""

    def __post_init__(self) -> None:
        if self.secret_key is None and self.secure_noise:
            object.__setattr__(self, "secret_key", SecretKey.fresh())

    def train(
        self,
        replicas: Sequence[int],
        *,
        data: VerticalData | None = None,
        probe: Probe | None = None,
        conducts: Mapping[int, Conduct] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> Engine:
        """An engine ready to run these replicas.

        `data` takes the place of the system's own, `probe` is attached to its release points, `conducts` are those of
        dishonest devices, and `seeds`, one for each replica, take the place of the system's seed.
        """
        engine = self.engine(
            self.data if data is None else data,
            self.settings,
            schedule=self.schedule,
            seed=self.seed,
            replicas=replicas,
            torch_device=self.torch_device,
            conducts=conducts,
            key=self.secret_key,
            reproducible=self.secret_key is None,
            **({} if seeds is None else {"seeds": seeds}),
        )
        if probe is not None:
            engine.attach(probe)
        return engine

    @cached_property
    def secret_draws(self) -> tuple[str, ...]:
        asked = set(self.train([0]).randomness.secret_draws)
        asked |= {"batches"} if self.schedule.batching.sampled else set()
        asked |= {"features"} if self.noisy_features else set()
        return tuple(name for name in STREAMS if name in asked)

    @property
    def offers(self) -> frozenset[Offer]:
        known = {Offer.MESSAGES, Offer.WORLDS, Offer.RELEASE_POINTS, Offer.LABELS, Offer.FEATURES, Offer.TRACE}
        return frozenset(known)

    @cached_property
    def messages(self) -> Sequence[Message]:
        transcript = Transcript()
        self.train([0]).run(Wire(transcript))
        return transcript.messages

    def result_key(self, store: Store, *parts: object) -> str | None:
        """The key of a result of this system; None, with a warning, if not all code that decides it can be read."""
        if store.folder is None:
            return None
        code = None if self._code is None else self._fingerprint
        return store.key(code, self.engine.__qualname__, *parts)

    def fingerprint(self) -> str:
        """A hash of all that decides what a training of this system does, the source of its engine included."""
        return self._fingerprint

    @cached_property
    def _code(self) -> str | None:
        defence = self.settings.defence
        return code_hash(self.engine, type(self.settings), *([] if defence is None else [type(defence)]))

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        code = self._code or f"unknown code {uuid.uuid4()}"
        settings = self.settings.model_dump_json()
        schedule = self.schedule
        sizes = (schedule.batching, schedule.records, schedule.batch_size, schedule.devices)
        shapes = (self.data.classes, self.data.vocabulary, self.data.grid)
        for part in (
            code,
            self.engine.name,
            settings,
            self.seed,
            self.torch_device.type,
            self.data.name,
            shapes,
            sizes,
        ):
            digest.update(f"{part}\0".encode())
        digest.update(self.data.digest())
        for array in (schedule.order, schedule.start, schedule.size, schedule.active):
            digest.update(f"{array.dtype} {array.shape}\0".encode())
            digest.update(array.tobytes())
        for path in self.settings.files:
            digest.update(_file_digest(path))
        return digest.hexdigest()


def accelerated(system: System) -> bool:
    """Whether tasks of this system may each have a GPU of their own; one that names its GPU stays there."""
    return system.torch_device.type == "cuda" and system.torch_device.index is None


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
