"""Engines with their settings as sources: what is known of them without training, and what can be trained."""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vflpriv.common.sources import code_hash
from vflpriv.common.store import Store
from vflpriv.core.attack import Conduct, Defences
from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.data import BaseData, VerticalData
from vflpriv.core.engine import Engine, NoiseParameters, Probe
from vflpriv.core.ledger import Ledger
from vflpriv.core.schedules import Schedule
from vflpriv.core.source import Offer, Source
from vflpriv.core.wire import Message, Transcript, Wire

if TYPE_CHECKING:
    import torch

__all__ = ["DeclaredSystem", "System", "accelerated"]


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
            **({} if seeds is None else {"seeds": seeds}),
        )
        if probe is not None:
            engine.attach(probe)
        return engine

    @property
    def offers(self) -> frozenset[Offer]:
        return frozenset({Offer.MESSAGES, Offer.WORLDS, Offer.RELEASE_POINTS, Offer.LABELS, Offer.FEATURES})

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
        tensors = [*self.data.blocks, self.data.labels, *self.data.test_blocks, self.data.test_labels]
        if self.data.validation_labels is not None:
            tensors += [*self.data.validation_blocks, self.data.validation_labels]
        arrays = [tensor.cpu().contiguous().numpy() for tensor in tensors]
        for array in (*arrays, schedule.order, schedule.start, schedule.size, schedule.active):
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
